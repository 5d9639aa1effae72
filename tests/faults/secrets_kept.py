"""Credentials in every place where an index, a channel or a proxy can have them: they are used and never told.

    python tests/faults/secrets_kept.py [--only pip.conf]

Two places are tried at a time, each in a folder of its own. Each place gets credentials of its own. Commands that succeed, are refused (401), fail half-way (a wheel that
is another one, an index that is gone) and are killed are run with -v, and their output, every file that they
leave (locks, reports, `.gpuenv/`, caches, the temporary folder) and the command lines of all processes while
they run are searched for them. What the user wrote the credentials into, and uv's own cache, is left out.
"""

from __future__ import annotations

import base64
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from ground import ASK, HERE, Ground, Report, ground, parser_of
from loopback import proxying

USER, WORD = "us3r", "s3cr3t-w0rd"
RUN, LONGEST = 120.0, 2400.0
"""The most seconds of one run, and until the last place is begun. Places that are left then count as failed."""
AUTHORIZATION = "Basic " + base64.b64encode(f"{USER}:{WORD}".encode()).decode()


@dataclass
class Place:
    """Where credentials are: in variables, arguments and files (by path below the folder)."""

    name: str
    env: dict[str, str] = field(default_factory=dict)
    args: tuple[str, ...] = ()
    files: dict[str, str] = field(default_factory=dict)
    through_proxy: bool = False
    root: str = ""  # the path that the index lies below; it needs no user then
    asks: bool = True  # what is wanted stands on the command line, not in a file


def places(url: str, at: Ground) -> Iterator[Place]:
    """Each place that DESIGN names, with an index that wants credentials at `url`."""
    secret = url.replace("://", f"://{USER}:{WORD}@")
    config = str(at.folder / "pip.conf")
    own = {"PIP_INDEX_URL": ""}
    wheel = next(iter(at.index.wheels["pip"]))
    below = url.replace("/simple", "/${GPUENV_TEST_WORD}")
    yield Place(
        "variable in a path",
        env={**own, "GPUENV_TEST_WORD": WORD, "GPUENV_GRANT": f"GPUENV_TEST_WORD={url}"},
        args=("-r", "requirements.txt"),
        files={
            "work/requirements.txt": f"--index-url {below}/simple\npip @ {below}/files/pip/{wheel}\njaxlib\n"
        },
        root=f"/{WORD}",
    )
    yield Place("--index", args=("--index", secret))
    yield Place("PIP_INDEX_URL", env={"PIP_INDEX_URL": secret})
    yield Place("GPUENV_INDEX_PYPI", env={"GPUENV_INDEX_PYPI": secret})
    yield Place("UV_DEFAULT_INDEX", env={**own, "UV_DEFAULT_INDEX": secret})
    yield Place("PIP_EXTRA_INDEX_URL", env={"PIP_INDEX_URL": f"{url}-none", "PIP_EXTRA_INDEX_URL": secret})
    yield Place("UV_INDEX", env={"PIP_INDEX_URL": f"{url}-none", "UV_INDEX": f"mine={secret}"})
    yield Place(
        "pip.conf",
        env={**own, "PIP_CONFIG_FILE": config},
        files={"pip.conf": f"[global]\nindex-url = {secret}\n"},
    )
    yield Place(
        "pip.conf, extra",
        env={**own, "PIP_CONFIG_FILE": config},
        files={"pip.conf": f"[global]\nindex-url = {url}-none\nextra-index-url = {secret}\n"},
    )
    yield Place(
        "find-links",
        env={"PIP_INDEX_URL": secret, "PIP_FIND_LINKS": secret.replace("/simple", "/simple/jax/")},
    )
    yield Place(
        "UV_FIND_LINKS",
        env={"PIP_INDEX_URL": secret, "UV_FIND_LINKS": secret.replace("/simple", "/simple/jax/")},
    )
    yield Place(".netrc", files={"home/.netrc": f"machine 127.0.0.1 login {USER} password {WORD}\n"})
    requirements = f"--index-url {secret}\njaxlib\n"
    yield Place(
        "requirements.txt",
        env=own,
        args=("-r", "requirements.txt"),
        files={"work/requirements.txt": requirements},
    )
    direct = secret.replace("/simple", f"/files/pip/{wheel}")
    yield Place(
        "requirements.txt, address",
        env={"PIP_INDEX_URL": secret},
        args=("-r", "requirements.txt"),
        files={"work/requirements.txt": f"pip @ {direct}\n"},
    )
    yield Place(
        "gpuenv.yaml",
        env=own,
        asks=False,
        files={
            "work/gpuenv.yaml": f'frameworks: ["jax"]\ndevice: "cpu"\npython: "{HERE}"\nindexes:\n  pypi: "{secret}"\n'
        },
    )
    proxy = f"http://{USER}:{WORD}@PROXY"
    yield Place("http_proxy", env={"http_proxy": proxy, "no_proxy": ""}, through_proxy=True)
    yield Place("PIP_PROXY", env={"PIP_PROXY": proxy}, through_proxy=True)
    yield Place("ALL_PROXY", env={"ALL_PROXY": proxy}, through_proxy=True)


# --- looking for them ----------------------------------------------------------------------------


class Titles:
    """Reads the command lines of all processes that start on this machine, again and again."""

    def __init__(self) -> None:
        self.seen: set[str] = set()
        self._others = {folder.name for folder in Path("/proc").iterdir()}
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        first: dict[int, float] = {}
        while not self._done.wait(0.03):
            for folder in Path("/proc").iterdir():
                # Reading hundreds of others again and again would take the core that a run needs.
                if folder.name in self._others:
                    continue
                try:
                    line = (folder / "cmdline").read_bytes()
                except OSError:
                    continue
                if WORD.encode() not in line:
                    continue
                # What the user types is there from the first moment: it must be gone soon after.
                since = first.setdefault(int(folder.name), time.monotonic())
                if b"-m\0provision\0" not in line or time.monotonic() - since > 3.0:
                    self.seen.add(line.replace(b"\0", b" ").decode("utf-8", "replace"))

    def end(self) -> set[str]:
        self._done.set()
        self._thread.join()
        return self.seen


def told_in(at: Ground, given: set[Path]) -> list[str]:
    """The files below the folder with a secret in them, those left out that the user wrote it into."""
    encoded = base64.b64encode(f"{USER}:{WORD}".encode())
    found = []
    for folder, names, files in os.walk(at.folder):
        if Path(folder) == at.folder:
            names[:] = [n for n in names if n != "uv-cache"]
        for name in files:
            path = Path(folder) / name
            if path not in given and path.is_file() and not path.is_symlink():
                data = path.read_bytes()
                if WORD.encode() in data or encoded in data:
                    found.append(str(path.relative_to(at.folder)))
    return found


# --- what is done with them ----------------------------------------------------------------------


def runs(at: Ground, place: Place) -> Iterator[tuple[str, Callable[[], None], tuple[str, ...], set[int]]]:
    """A name, what is prepared, the command line, and the exit codes that are right."""
    index = at.index
    ask = (*(ASK if place.asks else ()), *place.args)
    wheel = next(iter(index.wheels["jaxlib"]))

    def well() -> None:
        index.faults = {}

    def spoiled() -> None:
        at.cold()
        index.faults = {wheel: "tampered"}

    def closed() -> None:
        at.cold()
        index.faults = {"/": "401", wheel: "401"}

    def gone() -> None:
        at.cold()
        index.faults = {"/simple/jaxlib/": "404"}

    def broken() -> None:
        at.cold()
        index.faults = {"/simple/jaxlib/": "garbage"}

    # The index before the one with credentials gets none, and refuses: what is nowhere may be there.
    refusing = any("/simple-none" in text for text in (*place.env.values(), *place.files.values()))
    absent = {9} if refusing else {6}
    yield "lock", well, ("lock", *ask, "-v"), {0}
    yield "lock --json", well, ("lock", *ask, "--json"), {0}
    yield "create", well, ("create", *ask, "-v", "--no-verify"), {0}
    yield "create again", well, ("create", *ask, "--json"), {8}
    yield "verify", well, ("verify", "--device", "cpu", "-v", "--report", "page.html"), {8}
    yield "report", well, ("report",), {0, 8}
    yield "export", well, ("export", "--format", "requirements"), {0, 2, 6}
    yield "export dockerfile", well, ("export", "--format", "dockerfile"), {0, 2, 6}
    yield "repair", well, ("repair", "--json"), {0, 7, 8}
    yield "detect", well, ("detect", "-v"), {0}
    yield "bundle", well, ("bundle", "bundle", *ask), {0, 2, 5, 7} | absent
    yield "update", well, ("profiles", "update", "jax", "-v"), {0, 9}
    yield "wrong wheel", spoiled, ("create", *ask, "-v", "--recreate", "--no-verify"), {7}
    locked = set() if place.asks else {7}  # a project has its lock by then, and nothing is solved
    yield "refused", closed, ("create", *ask, "-v", "--recreate", "--no-verify"), {9} | locked
    yield "refused --json", closed, ("lock", *ask, "--json"), {9}
    yield "not there", gone, ("lock", *ask, "-v"), absent
    yield "no index", broken, ("create", *ask, "--json", "--recreate"), {6} | locked


def tried(at: Ground, place: Place, only: set[str] | None = None) -> Iterator[tuple[str, str | None]]:
    """Each command with the place's credentials, and what is wrong with it."""
    index, before = at.index, dict(at.gpuenv.env)
    for path in at.work.iterdir():
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    temporary = at.folder / "tmp"
    temporary.mkdir(exist_ok=True)
    at.gpuenv.env |= {
        "PIP_INDEX_URL": index.url,
        "TMPDIR": str(temporary),
        "UV_HTTP_RETRIES": "0",
        **place.env,
    }
    at.gpuenv.env = {k: v for k, v in at.gpuenv.env.items() if v or k == "no_proxy"}
    given = set()
    for name, text in place.files.items():
        path = at.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o600)
        given.add(path)
    index.needs = None if place.through_proxy or place.root else AUTHORIZATION
    index.root = place.root
    at.cold()
    with the_proxy(at, place):
        for name, prepare, argv, right in runs(at, place):
            if only is None or name in only:
                prepare()
                titles = Titles()
                try:
                    ran = at.gpuenv(*argv, timeout=RUN)
                except subprocess.TimeoutExpired:
                    titles.end()
                    yield name, f"it took longer than {RUN} s"
                    continue
                yield name, wrong(ran, right, titles.end(), told_in(at, given))
        index.faults = {}
        if only is None or "killed" in only:
            yield "killed", killed(at, (*(ASK if place.asks else ()), *place.args), given)
    index.needs, index.faults, index.root = None, {}, ""
    at.gpuenv.env = before
    for path in given:
        path.unlink(missing_ok=True)


@contextmanager
def the_proxy(at: Ground, place: Place) -> Iterator[None]:
    if not place.through_proxy:
        yield
        return
    with proxying(AUTHORIZATION) as address:
        at.gpuenv.env |= {k: v.replace("PROXY", address) for k, v in at.gpuenv.env.items()}
        yield


def wrong(ran, right: set[int], titles: set[str], files: list[str]) -> str | None:
    for stream, text in (("stdout", ran.out), ("stderr", ran.err)):
        if WORD in text:
            line = next(x for x in text.splitlines() if WORD in x)
            return f"told on {stream}: {line.strip()}"
    if titles:
        return f"in a command line: {titles.pop()}"
    if files:
        return f"in {', '.join(files)}"
    if ran.code not in right or "Traceback" in ran.err:
        return f"exit code {ran.code}: {ran.err[-400:]}"
    return None


def killed(at: Ground, ask: tuple[str, ...], given: set[Path]) -> str | None:
    """What a run leaves that is killed while uv is at work."""
    at.cold()
    index = at.index
    index.stalled.clear()
    index.released.clear()
    index.faults = {"/simple/jaxlib/": "stalled"}
    argv = [sys.executable, "-m", "provision", "lock", *ask]
    running = subprocess.Popen(
        argv, env=at.gpuenv.env, cwd=at.work, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    asked = index.stalled.wait(30)
    running.send_signal(signal.SIGKILL)
    running.wait()
    index.released.set()
    index.faults = {}
    # A killed run leaves its own scratch folder, which nobody else may enter; uv ends with it.
    scratch = [p for p in (at.folder / "tmp").iterdir() if p.stat().st_mode & 0o077 == 0]
    for path in scratch:
        shutil.rmtree(path)
    left = told_in(at, given)
    shutil.rmtree(at.folder / "tmp", ignore_errors=True)
    return (f"in {', '.join(left)}" if left else None) if asked else "the index was never asked"


def main() -> int:
    """Try the places that were asked for."""
    parser = parser_of(__doc__)
    parser.add_argument("--only", help="the beginning of a place's name")
    options = parser.parse_args()
    report, began = Report(), time.monotonic()
    with ground() as at:
        names = [p.name for p in places(at.index.url, at) if p.name.startswith(options.only or "")]
    left = iter(names)

    def work() -> None:
        with ground() as at:
            by_name = {place.name: place for place in places(at.index.url, at)}
            for name in left:
                if time.monotonic() - began > LONGEST:
                    report.case(name, "no time was left to try it")
                    continue
                for run, problem in tried(at, by_name[name]):
                    report.case(f"{name}: {run}", problem)

    with ThreadPoolExecutor(2) as workers:
        for done in [workers.submit(work) for _ in range(min(2, len(names)))]:
            done.result()
    return report.end("credentials")


if __name__ == "__main__":
    sys.exit(main())
