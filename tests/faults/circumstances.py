"""What goes on around a run: files that vanish, clocks that go back, homes that are not there, two users, many runs.

    python tests/faults/circumstances.py [--only vanish]

Each line is one case. It holds when the run succeeds, or ends with its own exit code and a message with
what to do; when nothing half-made is left and the next run succeeds. Eight runs at once on one path leave
one environment, and those that had to stand back say so; eight on eight paths with a cold cache download
no wheel more than once. Some five minutes.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from disks import USER, said
from ground import Ran, Report, differences, parser_of
from runs import CONDA, VENV, Site, site

BACKWARDS = """
#define _GNU_SOURCE
#include <time.h>
#include <sys/time.h>
#include <sys/syscall.h>
#include <unistd.h>
static long calls;
static long back(void) { return __sync_add_and_fetch(&calls, 1) * 60; }
int clock_gettime(clockid_t id, struct timespec *t) {
    long done = syscall(SYS_clock_gettime, id, t);
    if (done == 0 && id == CLOCK_REALTIME) t->tv_sec -= back();
    return (int)done;
}
int gettimeofday(struct timeval *restrict t, void *restrict zone) {
    (void)zone;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    t->tv_sec = now.tv_sec; t->tv_usec = now.tv_nsec / 1000;
    return 0;
}
time_t time(time_t *where) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (where) *where = now.tv_sec;
    return now.tv_sec;
}
"""
"""A minute back at each question."""

Wrong = tuple[str | None, str]


def asked(at: Site) -> tuple[str, ...]:
    return (*CONDA, "--channel", at.channel) if at.channel else VENV


def child(
    at: Site, *argv: str | Path, env: dict[str, str] | None = None, head: tuple[str, ...] = ()
) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*head, sys.executable, "-m", "provision", *map(str, argv)], env=at.gpuenv.env if env is None else env, cwd=at.work,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def ended(process: subprocess.Popen[str]) -> Ran:
    out, err = process.communicate(timeout=180)
    return Ran(subprocess.CompletedProcess([], process.returncode, out, err))


def bad(ran: Ran) -> str | None:
    """What is wrong with an end that is no success."""
    if ran.code == 0:
        return None
    if ran.code not in (2, 4, 6, 7) or "this is a bug in gpuenv" in ran.err:
        return f"exit code {ran.code}: {ran.err[-400:]}"
    return None if "hint:" in ran.err else f"no hint: {ran.err[-200:]}"


def whole(at: Site, *, argv: tuple[str, ...] = ()) -> str | None:
    """The next run succeeds and leaves nothing."""
    ran = at.gpuenv(*(argv or ("create", *asked(at))))
    if ran.code == 2 and "is incomplete" in ran.err:  # half of it was deleted after the run had ended
        ran = at.gpuenv("create", *asked(at), "--recreate")
    if ran.code != 0:
        return f"the next run fails ({ran.code}): {ran.err[-300:]}"
    if left := at.drafts():
        return f"left behind: {left}"
    if touched := differences(at.around, at.others()):
        return f"touched: {touched[:4]}"
    return None if "jax" in at.installed() else f"it holds {at.installed()}"


def fresh(at: Site, *, env: bool) -> None:
    at.swept()
    shutil.rmtree(at.env, ignore_errors=True)
    if env:
        ran = at.gpuenv("create", *asked(at))
        assert ran.code == 0, ran.err
    else:
        at.cold()


# --- files that vanish ---------------------------------------------------------------------------


def vanishing(at: Site) -> Iterator[tuple[str, Callable[[], Wrong]]]:
    """Folders taken away at a sixth, two sixths, ... of a run."""
    gone = {
        "caches": ("uv-cache", "cache", "rattler"), "ENV": ("work/.venv", "work/..venv.gpuenv-new"),
        "temporary": ("tmp",), "the old ENV": ("work/.venv", "work/..venv.gpuenv-old"),
    }  # fmt: skip
    for what, names in gone.items():
        for sixth in (1, 2, 3, 4, 5):
            yield f"{what} gone at {sixth}/6", lambda w=what, n=names, s=sixth: _vanished(at, w, n, s)


def _vanished(at: Site, what: str, names: tuple[str, ...], sixth: int) -> Wrong:
    again = what == "the old ENV"
    argv = ("create", *asked(at), *(["--recreate"] if again else []))
    fresh(at, env=again)
    began = time.monotonic()
    ran = at.gpuenv(*argv)
    assert ran.code == 0, ran.err
    length = time.monotonic() - began
    fresh(at, env=again)
    process = child(at, *argv)
    time.sleep(length * sixth / 6)
    for name in names:
        shutil.rmtree(at.folder / name, ignore_errors=True)
    ran = ended(process)
    (at.folder / "tmp").mkdir(exist_ok=True)
    return bad(ran) or whole(at), f"exit {ran.code} {said(ran)[:150] if ran.code else ''}"


# --- clocks --------------------------------------------------------------------------------------


def clocks(at: Site) -> Iterator[tuple[str, Callable[[], Wrong]]]:
    library = at.folder / "cache-backwards.so"
    source = at.folder / "cache-backwards.c"
    source.write_text(BACKWARDS)
    built = (
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, source], check=False).returncode == 0
    )
    at.around = at.others()
    plain = tuple(a for a in asked(at) if a != "--no-verify")
    runs = [("create", *asked(at)), ("create", *asked(at), "--recreate"), ("create", *asked(at), "--with", "bb"), ("list",),
            ("bundle", "out", *plain), ("remove", ".venv")]  # fmt: skip
    for argv in runs if built else ():
        yield f"backwards {argv[0]} {argv[-1]}", lambda a=argv: _backwards(at, a, library)
    yield "files of the future", lambda: _future(at)


def _backwards(at: Site, argv: tuple[str, ...], library: Path) -> Wrong:
    fresh(at, env=argv[0] != "create" or argv[-1] != "--no-verify")
    ran = ended(child(at, *argv, env=at.gpuenv.env | {"LD_PRELOAD": str(library)}))
    shutil.rmtree(at.out, ignore_errors=True)
    if ran.code != 0:
        return f"exit {ran.code}: {ran.err[-300:]}", ""
    return whole(at, argv=("create", *asked(at), "--recreate")), "exit 0"


def _future(at: Site) -> Wrong:
    """Everything that gpuenv keeps was written ten years from now."""
    fresh(at, env=True)
    later = time.time() + 10 * 365 * 86400
    for place in ("uv-cache", "cache", "rattler", "work/.venv", "home/.local"):
        for path in (at.folder / place).rglob("*"):
            if not path.is_symlink():
                os.utime(path, (later, later))
    for argv in (("create", *asked(at)), ("create", *asked(at), "--with", "bb"), ("list",)):
        ran = at.gpuenv(*argv)
        if ran.code != 0:
            return f"{argv[0]} exits {ran.code}: {ran.err[-300:]}", ""
    return whole(at, argv=("create", *asked(at), "--recreate")), "exit 0"


# --- homes ---------------------------------------------------------------------------------------


def homes(at: Site) -> Iterator[tuple[str, Callable[[], Wrong]]]:
    nobody = at.folder / "home" / "nobody"
    for name, home, head in (
        ("HOME is not there", str(nobody / "x"), ()), ("HOME is a file", "/etc/passwd", ()), ("HOME is no path", "x", ()),
        ("no HOME", None, ()), ("no HOME, unknown user", None, USER), ("HOME of another", "/proc", ()),
        ("HOME of another, unknown user", "/", USER),
    ):  # fmt: skip
        yield name, lambda h=home, u=head: _homeless(at, h, u)


def _homeless(at: Site, home: str | None, head: tuple[str, ...]) -> Wrong:
    fresh(at, env=False)
    env = {k: v for k, v in at.gpuenv.env.items() if not k.startswith("XDG_") and k not in ("HOME", "UV_CACHE_DIR",
                                                                                          "RATTLER_CACHE_DIR")}  # fmt: skip
    env |= {"HOME": home} if home else {}
    # Root's own home would be found in the table of users: what is written there is not this test's.
    env |= (
        {}
        if head or home
        else {"XDG_CACHE_HOME": str(at.folder / "cache"), "XDG_DATA_HOME": str(at.folder / "cache")}
    )
    if head:
        subprocess.run(["chown", "-R", "54321:54321", at.folder], check=True)
    try:
        ran = ended(child(at, "create", *asked(at), env=env, head=head))
    finally:
        subprocess.run(["chown", "-R", "0:0", at.folder], check=True)
    shutil.rmtree(at.folder / "home" / "nobody", ignore_errors=True)
    (at.work / "x").exists() and shutil.rmtree(at.work / "x")
    told = " ".join(x for x in ran.err.splitlines() if x.startswith("note:"))[:160]
    wrong = None if ran.code == 0 and "jax" in at.installed() else f"exit {ran.code}: {ran.err[-300:]}"
    at.swept()
    shutil.rmtree(at.env, ignore_errors=True)
    return wrong, f"exit {ran.code} {told}"


# --- several -------------------------------------------------------------------------------------


def users(at: Site) -> Iterator[tuple[str, Callable[[], Wrong]]]:
    for verb in ("create", "recreate", "change", "remove", "own path, another user's caches"):
        yield f"a second user: {verb}", lambda v=verb: _second(at, v)


def _second(at: Site, verb: str) -> Wrong:
    """gpuenv changes no files of another user, says so, and does not use a cache that both users can write."""
    fresh(at, env=True)
    at.folder.chmod(0o755)  # what the second user may not pass is not there for access(2)
    if verb.startswith("own"):  # both could write in it
        subprocess.run(
            ["chmod", "-R", "a+rwX", at.folder / "uv-cache", at.folder / "rattler"], check=False, stderr=-3
        )
    before = at.content()
    env = {k: v for k, v in at.gpuenv.env.items() if not k.startswith("XDG_")} | {
        "HOME": str(at.folder / "cache" / "b")
    }
    for place in ("b", "tmp"):
        (at.folder / "cache" / place).mkdir(exist_ok=True)
        os.chown(at.folder / "cache" / place, 54321, 54321)
    env["TMPDIR"] = str(at.folder / "cache" / "tmp")
    argv = {"create": ["create", *asked(at)], "recreate": ["create", *asked(at), "--recreate"], "change": ["create", *asked(at),
            "--with", "bb"], "remove": ["remove", ".venv"]}.get(verb, ["create", at.folder / "cache" / "b" / "env", *asked(at)])  # fmt: skip
    ran = ended(child(at, *argv, env=env, head=USER))
    wrong = bad(ran) or (
        "the first user's environment changed" if differences(before, at.content()) else None
    )
    if verb in ("recreate", "change", "remove") and ran.code == 0:
        wrong = wrong or "it was let through"
    told = re.search(r"belongs to root \(uid 0\).*gpuenv does not use it", ran.err)
    if verb.startswith("own") and (ran.code != 2 or not told):
        wrong = wrong or f"exit {ran.code}: {ran.err[-300:]}"
    subprocess.run(["chown", "-R", "0:0", at.folder], check=True)
    return wrong or whole(at), f"exit {ran.code} {said(ran)[:170] if ran.code else ''}"


def many(at: Site) -> Iterator[tuple[str, Callable[[], Wrong]]]:
    yield "8 at once on one path", lambda: _one_path(at)
    yield "8 recreates at once on one path", lambda: _one_path(at, "--recreate")
    yield "8 at once on 8 paths, cold cache", lambda: _eight_paths(at)


def _one_path(at: Site, *more: str) -> Wrong:
    fresh(at, env=bool(more))
    ran = [ended(p) for p in [child(at, "create", *asked(at), *more) for _ in range(8)]]
    codes = sorted(r.code for r in ran)
    back = [r for r in ran if r.code != 0]
    told = f"exit codes {codes}"
    if 0 not in codes or any(r.code != 7 or "another gpuenv" not in r.err for r in back):
        return (
            f"{next((r.err[-300:] for r in back if 'another gpuenv' not in r.err), 'none succeeded')}",
            told,
        )
    return whole(at), told


def _eight_paths(at: Site) -> Wrong:
    fresh(at, env=False)
    at.index.requests.clear()
    paths = [at.folder / "cache-envs" / str(i) for i in range(8)]
    ran = [ended(p) for p in [child(at, "create", path, *asked(at)) for path in paths]]
    most = at.index.downloads().most_common(1)
    told = f"exit codes {sorted(r.code for r in ran)}, downloads of one wheel: {most[0][1] if most else 0} at most"
    failed = next((r.err[-300:] for r in ran if r.code), None)
    lacking = [str(p) for p in paths if not failed and "jax" not in at.installed(p)]
    shutil.rmtree(at.folder / "cache-envs", ignore_errors=True)
    if failed or lacking:
        return failed or f"not whole: {lacking}", told
    return "the cache helped nobody" if most and most[0][1] > 2 else None, told


KINDS = {"vanish": vanishing, "clock": clocks, "home": homes, "user": users, "many": many}


def main() -> int:
    """All kinds, for both managers."""
    parser = parser_of(__doc__)
    parser.add_argument("--only", choices=KINDS)
    parser.add_argument("--manager", choices=("venv", "conda"))
    options = parser.parse_args()
    report = Report()
    for manager in ("venv", "conda"):
        if options.manager not in (None, manager):
            continue
        for kind, cases in KINDS.items():
            if options.only not in (None, kind) or (manager == "conda" and kind == "home"):
                continue
            if kind == "user" and os.geteuid() != 0:
                print("a second user: root is needed to be one; not tried")
                continue
            with site(manager) as at:
                for name, case in cases(at):
                    report.case(f"{manager} {name}", *case())
    return report.end("circumstances")


if __name__ == "__main__":
    sys.exit(main())
