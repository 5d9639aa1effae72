"""Compare the releases that `gpuenv lock` takes with those of plain `uv pip compile`.

    python scripts/compare_with_uv.py [--only NAME] [--json FILE] [--time]

Each set of tests/data/requirement_sets.yaml is locked for one target (driver 580, H100) and compiled by uv with the same
Python, platform and indexes. A named package that is locked in an older release than uv's, and that `held_back` does not
name, is a fault. A set that uv cannot solve is passed over. uv may build source archives, in a folder for temporary files.

--json FILE keeps what was compared; the next run with the same file leaves these sets out. --time repeats both and prints
the times of the second runs, and two ratios: of gpuenv's time to that of plain uv, and to that of the slowest run of uv
for the question that gpuenv ended with. The exit status is 1 where a fault was found or gpuenv gave no lock.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from provision.index.uv import Settings, run_uv
from provision.request import read_options
from provision.request.options import Choices

ROOT = Path(__file__).resolve().parent.parent
SETS = ROOT / "tests" / "data" / "requirement_sets.yaml"
GLIBC = "2.35"
TARGET = ("--driver", "580.65.06", "--gpu", "H100", "--platform", "linux-x86_64", "--glibc", GLIBC)
_TIMEOUT = 600.0
_SOLVES = re.compile(r"solves: (\d+) of at most")
_TOOK = re.compile(r"uv took ([\d., s]+)$", re.MULTILINE)
_PINNED = re.compile(r"^([A-Za-z0-9._-]+)==(\S+)", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class RequirementSet:
    """Requirements as a project writes them, with the framework that gpuenv plans for it."""

    name: str
    source: str
    framework: str
    requirements: list[str]

    @property
    def named(self) -> list[str]:
        """The packages that the set names, its framework among them."""
        names = [str(canonicalize_name(Requirement(r).name)) for r in self.requirements]
        return list(dict.fromkeys([*names, self.framework]))

    def write(self, path: Path) -> None:
        """Write the requirements into a file. A framework that they do not name is the last line."""
        mine = {canonicalize_name(Requirement(r).name) for r in self.requirements}
        more = [] if self.framework in mine else [self.framework]
        path.write_text("\n".join([*self.requirements, *more]) + "\n", encoding="utf-8")


@dataclass(kw_only=True)
class Compared:
    """What both took of one set. `error` says why gpuenv gave no lock, `passed_over` why uv gave no answer, `stopped`
    which old release gpuenv asked about: the comparison is then with --allow-old."""

    name: str
    python: str = ""
    packages: int = 0
    solves: int = 0
    seconds: list[float] = field(default_factory=list)
    uv_seconds: list[float] = field(default_factory=list)
    slowest: list[float] = field(default_factory=list)
    held_back: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    error: str = ""
    passed_over: str = ""
    stopped: str = ""

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not (self.faults or self.error)

    @property
    def ratio(self) -> float | None:
        """The time of gpuenv's second run divided by that of uv."""
        both = len(self.seconds) > 1 and len(self.uv_seconds) > 1
        return self.seconds[1] / self.uv_seconds[1] if both else None

    @property
    def needed_ratio(self) -> float | None:
        """The time of gpuenv's second run divided by that of the slowest run of uv for its last question."""
        both = len(self.seconds) > 1 and len(self.slowest) > 1
        return self.seconds[1] / self.slowest[1] if both else None

    def row(self) -> str:
        """One line of the table."""
        times = [f"{runs[-1]:.1f}" if runs else "-" for runs in (self.seconds, self.uv_seconds, self.slowest)]
        ratios = [f"{ratio:.1f}" if ratio else "-" for ratio in (self.ratio, self.needed_ratio)]
        state = (
            "no lock" if self.error else "passed over" if self.passed_over else "ok" if self.ok else "FAULT"
        )
        return (
            f"{self.name:32} {self.python:6} {self.packages:5} {self.solves:3} {times[0]:>6} {times[1]:>6} {ratios[0]:>5} "
            f"{times[2]:>6} {ratios[1]:>5} {len(self.held_back):4}  {state}"
        )


HEAD = f"{'set':32} {'python':6} {'named':>5} {'N':>3} {'s':>6} {'uv s':>6} {'ratio':>5} "
HEAD += f"{'need s':>6} {'ratio':>5} {'held':>4}  result"


def read_sets(path: Path = SETS) -> list[RequirementSet]:
    """Return the sets of a file."""
    return [RequirementSet(**row) for row in yaml.safe_load(path.read_text(encoding="utf-8"))]


def compare(mine: RequirementSet, scratch: Path, *, repeat: bool) -> Compared:
    """Lock and compile a set, and list the packages that gpuenv takes in older releases."""
    wanted = scratch / "requirements.txt"
    mine.write(wanted)
    found = Compared(name=mine.name, packages=len(mine.named))
    lock = _lock(mine, wanted, found)
    if lock is None:
        return found
    found.python = str(lock["plan"]["python"])
    found.held_back = {h["package"]: _sentence(h) for h in lock["held_back"]}
    theirs = _compile(wanted, found)
    if theirs is None:
        return found
    decided = _decided_by_builds(lock["plan"], found.held_back)
    ours = {p["name"]: p["version"] for p in lock["packages"] if p["version"]}
    for name, text in _older(mine.named, ours, theirs):
        (found.notes if name in {*found.held_back, *decided} else found.faults).append(text)
    if repeat:
        _lock(mine, wanted, found)
        _compile(wanted, found)
    return found


def _decided_by_builds(plan: dict[str, Any], held_back: dict[str, str]) -> set[str]:
    """The packages that builds of frameworks require which are held back: their lines are left to the plan (triton)."""
    builds = [b for b in plan["builds"] if b["framework"] in held_back]
    return {str(canonicalize_name(Requirement(r).name)) for b in builds for r in b["requirements"]}


def _lock(mine: RequirementSet, wanted: Path, found: Compared) -> dict[str, Any] | None:
    """Lock the set and return the document; None where there is no lock, with the reason in `found`."""
    words = ["-m", "provision", "lock", "-f", mine.framework, "-r", wanted.name, *TARGET, "--json", "-v"]
    words += ["-o", "pylock.toml", *(["--allow-old"] if found.stopped else [])]
    (wanted.parent / "pylock.toml").unlink(missing_ok=True)  # a lock that is there keeps its versions
    began = time.monotonic()
    try:
        done = subprocess.run(
            [sys.executable, *words], cwd=wanted.parent, capture_output=True, text=True, timeout=_TIMEOUT,
            check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        found.error = f"no answer within {_TIMEOUT:.0f} s"
        return None
    found.seconds.append(round(time.monotonic() - began, 2))
    if solves := _SOLVES.search(done.stderr):
        found.solves = int(solves[1])
    if took := _TOOK.findall(done.stderr):
        found.slowest.append(max(float(text.rstrip(" s")) for text in took[-1].split(", ")))
    if done.returncode:
        error = json.loads(done.stdout or "{}").get("error", {"message": done.stderr[-1500:], "hint": ""})
        if "--allow-old" in (error["hint"] or "") and not found.stopped:
            found.stopped = error["message"]
            found.seconds.clear()
            found.slowest.clear()
            return _lock(mine, wanted, found)
        found.error = f"exit {done.returncode}: {error['message']}"
        return None
    return dict(json.loads(done.stdout))


def _compile(wanted: Path, found: Compared) -> dict[str, str] | None:
    """Compile the set with uv and return its versions; None where uv finds none, with the reason in `found`."""
    words = [
        "pip", "compile", str(wanted), "--no-header", "--no-annotate", "--python-version", found.python,
        "--python-platform", f"x86_64-manylinux_{GLIBC.replace('.', '_')}",
    ]  # fmt: skip
    began = time.monotonic()
    sources = read_options.read_sources(Choices())
    done = run_uv(words, sources, python=sys.executable, settings=Settings(timeout=_TIMEOUT))
    if not done.ok:
        found.passed_over = " ".join(done.stderr.split())[-600:] or "uv gave no answer in time"
        return None
    found.uv_seconds.append(round(time.monotonic() - began, 2))
    return {str(canonicalize_name(name)): version for name, version in _PINNED.findall(done.stdout)}


def _older(named: list[str], ours: dict[str, str], theirs: dict[str, str]) -> Iterator[tuple[str, str]]:
    for name in named:
        if name not in theirs:
            continue
        if name not in ours:
            yield name, f"{name} is not locked; uv takes {theirs[name]}"
        elif _is_older(ours[name], theirs[name]):
            yield name, f"{name} {ours[name]}; uv takes {theirs[name]}"


def _is_older(mine: str, other: str) -> bool:
    """Whether a version is older than another, whatever their local parts are."""
    return Version(Version(mine).public) < Version(Version(other).public)


def _sentence(held: dict[str, Any]) -> str:
    price = f" ({held['alternative']})" if held["alternative"] else ""
    return f"{held['package']} {held['locked']}, not {held['newest']}: {held['because']}{price}"


def show(found: Compared) -> None:
    """Print the row of a set, and what is wrong with it."""
    print(found.row(), flush=True)
    for text in filter(None, (*found.faults, found.error, found.passed_over)):
        print(f"    {text}", flush=True)
    if found.stopped:
        print(f"    without --allow-old: {found.stopped}", flush=True)
    for name, text in found.held_back.items():
        if any(n.startswith(f"{name} ") for n in found.notes):
            print(f"    held back: {text}", flush=True)


def _kept(path: Path | None) -> dict[str, Compared]:
    if path is None or not path.exists():
        return {}
    return {row["name"]: Compared(**row) for row in json.loads(path.read_text(encoding="utf-8"))}


def main() -> None:
    """Compare the sets that were asked for and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", action="append", metavar="NAME", help="this set; repeatable")
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="keep the results, and leave out those in it"
    )
    parser.add_argument(
        "--time", action="store_true", help="repeat both, and print the times of the second runs"
    )
    options = parser.parse_args()
    sets = [s for s in read_sets() if not options.only or s.name in options.only]
    if not sets:
        parser.error(f"--only: no such set; those in {SETS.name}: {', '.join(s.name for s in read_sets())}")
    kept = _kept(options.json)
    print(HEAD)
    for mine in sets:
        if mine.name not in kept:
            with tempfile.TemporaryDirectory(prefix="gpuenv-compare-") as scratch:
                kept[mine.name] = compare(mine, Path(scratch), repeat=options.time)
            if options.json:
                rows = [asdict(found) for found in kept.values()]
                options.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
        show(kept[mine.name])
    found = [kept[s.name] for s in sets]
    wrong = sum(not f.ok for f in found)
    print(f"{len(found)} sets, {wrong} with faults, {sum(bool(f.passed_over) for f in found)} passed over")
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
