"""Package indexes and conda channels that fail, in every way that one on 127.0.0.1 can be made to.

    python tests/faults/index_faults.py [--only lock|create|update|conda] [--fault reset]

Each case is a command, what of the index fails (a project's page, the metadata of a wheel, a wheel, a
channel's repodata, a package) and how. It holds when the command ends with exit code 6 or 7 within a
minute and a half, its message names the package and the index, the requests for what fails are bounded,
and nothing half-made is left. All of it takes some ten minutes.
"""

from __future__ import annotations

import contextlib
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ground import ASK, Command, Ground, Ran, Report, ground, parser_of
from loopback import proxying

STATUSES = ("401", "403", "404", "410", "429", "500", "503")
TRANSPORT = ("refused", "reset", "truncated", "stuck", "stalled")
CONTENT = ("short", "longer", "tampered", "html", "garbage", "loop")
PROXY = ("407",)
FAULTS = (*STATUSES, *TRANSPORT, *CONTENT, *PROXY)
LONGEST = 90.0
MOST = {"loop": 80}
"""Requests for what fails, where they may be more than 9: two solvers, each with one try and three more."""

HARMLESS = {("lock", "metadata", "longer")}  # bytes after the end
HOST = "127.0.0.1"


@dataclass(frozen=True)
class Case:
    """A command, what of the index fails, and how."""

    command: str
    place: str
    fault: str

    def __str__(self) -> str:
        return f"{self.command:6}  {self.place:8}  {self.fault}"


def cases() -> Iterator[Case]:
    """All of them."""
    for fault in FAULTS:
        for command, place in (("lock", "page"), ("lock", "metadata"), ("create", "wheel"), ("update", "page"),
                               ("update", "wheel"), ("conda", "repodata"), ("conda", "package")):  # fmt: skip
            if (fault == "tampered" and place not in ("wheel", "package")) or (command, fault) == (
                "update",
                "tampered",
            ):
                continue
            if fault == "refused" and place not in ("page", "repodata"):
                continue  # the index as a whole is not there
            yield Case(command, place, fault)


# --- an index ----------------------------------------------------------------------------------


def wheel(at: Ground, name: str, version: str = "") -> str:
    return next(file for file in at.index.wheels[name] if version in file)


def asked_for(case: Case, at: Ground) -> tuple[str, tuple[str, ...], str]:
    """The end of the path that fails, the command line, and the package that must be named."""
    if case.command == "update":
        at.index.add("jax", "99.0", ("jaxlib==99.0",))
        at.index.add("jaxlib", "99.0")
        end = "/simple/jax/" if case.place == "page" else wheel(at, "jax", "99.0")
        return end, ("profiles", "update", "jax", "--index", at.index.url), "jax"
    for name in ("jax", "jaxlib"):  # half of a page with two releases would be a sound page
        for file in [f for f in at.index.wheels[name] if "-99.0-" in f]:
            del at.index.wheels[name][file]
    ends = {
        "page": "/simple/jaxlib/",
        "wheel": wheel(at, "jaxlib"),
        "metadata": wheel(at, "jaxlib") + ".metadata",
    }
    verb = ("create", "--no-verify") if case.command == "create" else ("lock",)
    return ends[case.place], (*verb, *ASK), "jaxlib"


def tried(case: Case, at: Ground) -> tuple[str | None, str]:
    """What is wrong with how a command bears a fault of the index (None where nothing is), and what it says."""
    at.cold()
    for path in at.work.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    shutil.rmtree(at.folder / "config", ignore_errors=True)
    end, argv, package = asked_for(case, at)
    index, env = at.index, at.gpuenv.env
    index.requests.clear()
    index.released.clear()
    index.faults = {} if case.fault in ("refused", "407") else {end: case.fault}
    before = dict(env)
    began = time.monotonic()
    with proxying("Basic nobody") if case.fault == "407" else contextlib.nullcontext("127.0.0.1:9") as other:
        if case.fault == "refused":
            env["PIP_INDEX_URL"] = f"http://{other}/simple"
            argv = tuple(env["PIP_INDEX_URL"] if a == index.url else a for a in argv)
            package = ""
        if case.fault == "407":
            env |= {"http_proxy": f"http://{other}", "no_proxy": ""}
            package = ""
        ran = at.gpuenv(*argv, timeout=300)
    seconds = time.monotonic() - began
    index.released.set()
    env.clear()
    env |= before
    asked = sum(n for path, n in index.requests.items() if path.endswith(end))
    left = sorted(p.name for p in at.work.iterdir()) + sorted(
        p.name for p in at.folder.glob("config/gpuenv/*/*")
    )
    return judged(case, ran, package, asked, seconds, left)


def judged(
    case: Case, ran: Ran, package: str, asked: int, seconds: float, left: list[str]
) -> tuple[str | None, str]:
    error = next((x for x in ran.err.splitlines() if x.startswith(("error:", "warning:"))), "")
    told = f"exit {ran.code}, {asked} requests, {seconds:.0f} s: {error or ran.err[-200:]}"
    return wrong(case, ran, error, package, asked, seconds, left), told


def wrong(
    case: Case, ran: Ran, error: str, package: str, asked: int, seconds: float, left: list[str]
) -> str | None:
    if (case.command, case.place, case.fault) in HARMLESS:
        return None if ran.code == 0 else "it should do no harm"
    if case.command == "update" and case.place == "wheel" and case.fault in CONTENT and ran.code == 0:
        return None if "left out: jax-99.0" in ran.err else "not told"
    # 9: the index did not answer. Some answers are only known as wrong when their bytes are read.
    right = {7} if case.command == "create" or case.place == "package" else {6, 9}
    if (
        ran.code not in (right | {6, 9} if case.fault in ("407", "refused") else right)
        or "Traceback" in ran.err
    ):
        return "wrong exit code"
    if package not in error or HOST not in error:
        return "names no package or no index"
    if "hint:" not in ran.err:
        return "no hint"
    if asked > MOST.get(case.fault, 9):
        return "too many requests"
    if seconds > LONGEST:
        return "too long"
    return f"left {left}" if left else None


# --- a channel -----------------------------------------------------------------------------------

CONDA = ("create", "--manager", "conda", "--framework", "jax", "--device", "cpu", "--no-verify")
PACKAGE = "jaxlib-0.7.0-cpu_py311h0_0.conda"


def tried_channel(case: Case, patience: int = 5) -> tuple[str | None, str]:
    """The same for a conda channel."""
    import conda_channel

    folder = Path(tempfile.mkdtemp(prefix="gpuenv-channel-faults-"))
    try:
        channel = shutil.copytree(conda_channel.small(), folder / "chan" / "conda-forge")
        gpuenv = Command(folder)
        gpuenv.env |= {"UV_HTTP_TIMEOUT": str(patience)}
        end = "/linux-64/repodata.json" if case.place == "repodata" else PACKAGE
        with conda_channel.serving(channel) as server, proxying("Basic nobody") as proxy:
            url = server.url
            if case.fault == "407":
                gpuenv.env |= {"http_proxy": f"http://{proxy}", "no_proxy": ""}
            elif case.fault == "refused":
                url = "http://127.0.0.1:9/conda-forge"
            else:
                server.faults = {end: case.fault}
            began = time.monotonic()
            ran = gpuenv(*CONDA, "--channel", url, timeout=300)
            seconds = time.monotonic() - began
            server.released.set()
        asked = sum(n for path, n in server.requests.items() if path.endswith(end))
        left = [p.name for p in gpuenv.work.iterdir()]
        named = "jaxlib" if case.place == "package" and case.fault != "407" else ""
        return judged(case, ran, named, asked, seconds, left)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main() -> int:
    """Try the cases that were asked for."""
    parser = parser_of(__doc__)
    parser.add_argument("--only", choices=("lock", "create", "update", "conda"))
    parser.add_argument("--fault", choices=FAULTS)
    options = parser.parse_args()
    report = Report()
    with ground() as at:
        for case in cases():
            if options.only in (None, case.command) and options.fault in (None, case.fault):
                report.case(str(case), *(tried_channel(case) if case.command == "conda" else tried(case, at)))
    return report.end("faults of indexes and channels")


if __name__ == "__main__":
    sys.exit(main())
