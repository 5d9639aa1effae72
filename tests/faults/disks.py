"""Disks that fill up and places that cannot be written to.

    python tests/faults/disks.py [--only 'venv create']

A small disk (tmpfs; root is needed to mount it) is filled so far that a run gets a share of the room it
was measured to need: for ENV, for the caches, or for both. It holds when the run ends with exit code 6 or
7, its message says what is full and what to do, nothing half-made is left, the environment that was there
is as it was, and the same command succeeds once there is room. Then the same for places that are mounted
read-only, and for those of another user. Some six minutes.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ground import Ran, Report, differences, parser_of
from runs import CONDA, VENV, Site, site

ROOM = 400 << 20
WORDS = ("full", "disk", "free", "space")
DISK = ("env", "caches", "all")


@dataclass(frozen=True)
class Point:
    """A run, what of it lies on the small disk, and the share of what it needs that is free there."""

    manager: str
    verb: str
    on: str
    share: float

    def __str__(self) -> str:
        return f"{self.manager} {self.verb:9} {self.on:7} {self.share:4.0%}"


POINTS = [
    *(Point(m, "create", on, share) for m in ("venv", "conda")
      for on, shares in (("env", (0.0, 0.3, 0.8)), ("caches", (0.02, 0.6))) for share in shares),
    *(Point(m, "recreate", on, share) for m in ("venv", "conda") for on, share in (("env", 0.5), ("caches", 0.4))),
    *(Point(m, "lock", "env", 0.0) for m in ("venv", "conda")),
    *(Point(m, "bundle", "env", share) for m in ("venv", "conda") for share in (0.0, 0.5)),
]  # fmt: skip


@contextlib.contextmanager
def mounted(folder: Path, *options: str) -> Iterator[None]:
    folder.mkdir(exist_ok=True)
    subprocess.run(["mount", *options, folder], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def argv(manager: str, verb: str, at: Site, env: Path) -> list[str]:
    ask = [*CONDA, "--channel", at.channel] if manager == "conda" else list(VENV)
    plain = [a for a in ask if a != "--no-verify"]
    if verb == "bundle":
        return ["bundle", str(env.parent / "out"), *plain]
    if verb == "lock":
        return [
            "lock",
            *plain,
            "--output",
            str(env.parent / ("conda-lock.yml" if manager == "conda" else "pylock.toml")),
        ]
    return ["create", str(env), *ask, *(["--recreate"] if verb == "recreate" else [])]


def placed(at: Site, point: Point, disk: Path) -> tuple[Path, dict[str, str]]:
    """ENV and the environment variables that put the caches on the disk or beside it."""
    caches = disk if point.on != "env" else at.folder / "elsewhere"
    env = (disk if point.on != "caches" else at.work) / "env"
    names = {"UV_CACHE_DIR": "uv", "XDG_CACHE_HOME": "cache", "RATTLER_CACHE_DIR": "rattler"}
    return env, {k: str(caches / v) for k, v in names.items()}


def tried(at: Site, point: Point) -> tuple[str | None, str]:
    disk = at.folder / "tiny"
    with mounted(disk, "-t", "tmpfs", "-o", f"size={ROOM}", "tmpfs"):
        env, where = placed(at, point, disk)
        before = dict(at.gpuenv.env)
        at.gpuenv.env |= where
        try:
            return judged(at, point, disk, env)
        finally:
            at.gpuenv.env.clear()
            at.gpuenv.env |= before
            for path in (at.folder / "elsewhere", at.work / "env"):
                shutil.rmtree(path, ignore_errors=True)


def judged(at: Site, point: Point, disk: Path, env: Path) -> tuple[str | None, str]:
    command = argv(point.manager, point.verb, at, env)
    first = shutil.disk_usage(disk).used
    ran = at.gpuenv(*command)
    if ran.code != 0:
        return f"without a fault it fails: {ran.err[-300:]}", ""
    need = shutil.disk_usage(disk).used - first
    old = None
    if point.verb == "recreate":
        old = at.content(env)
        if point.on == "caches":
            for path in disk.iterdir():
                shutil.rmtree(path)
    else:
        for path in (*disk.iterdir(), *at.work.glob("env"), *(at.folder / "elsewhere").glob("*")):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    fill = disk / "filler"
    with fill.open("wb") as file:
        os.posix_fallocate(
            file.fileno(), 0, max(4096, shutil.disk_usage(disk).free - int(need * point.share))
        )
    ran = at.gpuenv(*command)
    told = f"{need >> 20} MiB needed, exit {ran.code}: {said(ran)}"
    wrong = badly_told(ran) or left_behind(at, disk, env, point, old)
    fill.unlink()
    again = at.gpuenv(*command)
    if again.code != 0:
        wrong = wrong or f"with room it fails: {again.err[-300:]}"
    elif point.verb in ("create", "recreate") and "jax" not in at.installed(env):
        wrong = wrong or f"with room it holds {at.installed(env)}"
    return wrong, told


def said(ran: Ran) -> str:
    return next((x for x in ran.err.splitlines() if x.startswith("error:")), ran.err[-200:])


def badly_told(ran: Ran, words: tuple[str, ...] = WORDS, codes: tuple[int, ...] = (6, 7)) -> str | None:
    if ran.code not in codes:
        return f"exit code {ran.code}: {ran.err[-300:]}"
    if "Traceback" in ran.err or "panicked" in said(ran):
        return f"a traceback: {ran.err[-300:]}"
    if not any(w in said(ran) or w in ran.err.partition("error:")[2][:300] for w in words):
        return "the message does not say what it was"
    return None if "hint:" in ran.err else "no hint"


def left_behind(at: Site, disk: Path, env: Path, point: Point, old: dict[str, str] | None) -> str | None:
    if old is not None and (not env.exists() or differences(old, at.content(env))):
        return "the old environment is not as it was"
    if old is None and env.exists():
        return "ENV is there"
    names = [
        p.name
        for p in (*disk.iterdir(), *at.work.glob(".env*"))
        if ".gpuenv" in p.name or p.name.startswith(".")
    ]
    names += [p.name for p in (at.folder / "tmp").iterdir() if p.name.startswith(("gpuenv", ".gpuenv"))]
    return f"left behind: {names}" if names else None


# --- read-only, and another user's -----------------------------------------------------------------

PLACES = ("ENV's folder", "ENV", "the caches", "home", "the temporary folder", "the project")
USER = ("setpriv", "--reuid", "54321", "--regid", "54321", "--clear-groups", "--inh-caps", "+dac_read_search",
        "--ambient-caps", "+dac_read_search")  # fmt: skip
"""A user that nobody knows, who may read everything, as the interpreter may lie in a home folder."""


def closed(at: Site, place: str, verb: str, *, user: bool) -> tuple[str | None, str]:
    """A run where a place is mounted read-only, or belongs to somebody else."""
    env = at.work / "inner" / "env"
    (at.work / "inner").mkdir(exist_ok=True)
    ask = [*VENV] if not at.channel else [*CONDA, "--channel", at.channel]
    command = {"create": ["create", env, *ask], "recreate": ["create", env, *ask, "--recreate"], "remove": ["remove", env],
               "lock": ["lock", *[a for a in ask if a != "--no-verify"], "--output", env.parent / "pylock.toml"],
               }[verb]  # fmt: skip
    if verb in ("recreate", "remove") or place == "ENV":
        made = at.gpuenv("create", env, *ask)
        if made.code != 0:
            return f"without a fault it fails: {made.err[-300:]}", ""
    old = at.content(env) if env.exists() else None
    folder = {"ENV's folder": env.parent, "ENV": env, "the caches": at.folder / "cache", "home": at.folder / "home",
              "the temporary folder": at.folder / "tmp", "the project": at.work}[place]  # fmt: skip
    folder.mkdir(exist_ok=True)
    with contextlib.ExitStack() as stack:
        if user:
            ran = as_user(at, folder, command)
        else:
            stack.enter_context(mounted(folder, "--bind", str(folder)))
            subprocess.run(["mount", "-o", "remount,bind,ro", folder], check=True)
            ran = at.gpuenv(*command)
    told = f"exit {ran.code}: {said(ran) if ran.code else ' '.join(x for x in ran.err.splitlines() if 'note' in x)[:150]}"
    wrong = None
    if ran.code != 0:
        wrong = badly_told(
            ran,
            ("cannot", "read-only", "write", "permission", "Permission", "mounted", "may not be"),
            (2, 6, 7),
        )
        if old is not None and (not env.exists() or differences(old, at.content(env))):
            wrong = wrong or "the environment is not as it was"
    shutil.rmtree(at.work / "inner", ignore_errors=True)
    return wrong, told


def as_user(at: Site, folder: Path, command: list) -> Ran:
    """The command as another user, who owns all of the site but this folder."""
    subprocess.run(["chown", "-R", "54321:54321", at.folder], check=True)
    subprocess.run(["chown", "0:0", folder], check=True)
    folder.chmod(0o755)
    try:
        done = subprocess.run(
            [*USER, sys.executable, "-m", "provision", *map(str, command)], env=at.gpuenv.env, cwd=at.work, text=True,
            capture_output=True, timeout=120, check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    finally:
        subprocess.run(["chown", "-R", "0:0", at.folder], check=True)
    return Ran(done)


def main() -> int:
    """All points, then all places."""
    parser = parser_of(__doc__)
    parser.add_argument("--only", default="", help="the beginning of a line: 'venv create', 'conda'")
    options = parser.parse_args()
    if os.geteuid() != 0:
        print("disks: root is needed to mount small ones; nothing was tried")
        return 0
    report = Report()
    for manager in ("venv", "conda"):
        with site(manager) as at:
            for point in POINTS:
                if point.manager == manager and str(point).startswith(options.only):
                    report.case(str(point), *tried(at, point))
            places = [(p, v) for p in PLACES for v in ("create", "recreate", "remove", "lock")]
            for user in (False, True):
                for place, verb in places if manager == "venv" else [("ENV's folder", "create"), ("ENV", "recreate"),
                                                                     ("the caches", "create")]:  # fmt: skip
                    name = f"{manager} {verb:9} {'of another' if user else 'read-only'}: {place}"
                    if name.startswith(options.only):
                        report.case(name, *closed(at, place, verb, user=user))
    return report.end("disks and places")


if __name__ == "__main__":
    sys.exit(main())
