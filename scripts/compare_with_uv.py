"""Compare the releases that `gpuenv lock` selects with those of plain `uv pip compile`.

    python scripts/compare_with_uv.py [--only NAME] [--json FILE] [--time] [--rounds N] [--against CHECKOUT]

Each set of tests/data/requirement_sets.yaml is locked for one target (driver 580, H100). uv compiles it with
the same Python, platform and indexes. A named package that is locked in an older release than uv's, and that
`held_back` does not name, is a fault. A set that uv cannot solve is skipped. uv may build source archives in
a temporary folder.

--json FILE keeps the results; the next run with the same file skips these sets. --time runs both again in
alternating rounds and prints medians. --against also runs another checkout of gpuenv in these rounds, and
states whether it writes the same lock. docs/explanation/benchmarks.md explains the columns. The exit status
is 1 if there is a fault, or gpuenv found no lock.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from comparison_table import HEAD, Compared, show
from lock_times import Times, in_rounds
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version
from requirement_sets import SETS, RequirementSet, read_sets

from provision.index.uv import Settings, run_uv
from provision.request import package_sources
from provision.request.shared_options import Choices

ROOT = Path(__file__).resolve().parent.parent
GLIBC = "2.35"
TARGET = ("--driver", "580.65.06", "--gpu", "H100", "--platform", "linux-x86_64", "--glibc", GLIBC)
_TIMEOUT = 600.0
_SOLVES = re.compile(r"solver run (\d+) of at most")
_TOOK = re.compile(r"uv took ([\d., s]+)$", re.MULTILINE)
_PINNED = re.compile(r"^([A-Za-z0-9._-]+)==(\S+)", re.MULTILINE)


@dataclass(frozen=True)
class Checkout:
    """A folder with gpuenv's sources, and variables for its runs, such as its own cache for measuring."""

    folder: Path
    environ: dict[str, str] = field(default_factory=dict)


def compare(
    requirement_set: RequirementSet, scratch: Path, checkouts: list[Checkout], rounds: int
) -> Compared:
    """Lock and compile a set, and list the packages that gpuenv selects in older releases.

    With `rounds`, time both. A second checkout is timed in the same rounds.
    """
    wanted = scratch / "requirements.txt"
    requirement_set.write(wanted)
    result = Compared(name=requirement_set.name, packages=len(requirement_set.named))
    lock = _lock(requirement_set, wanted, result, checkouts[0])
    if lock is None:
        return result
    result.python = str(lock["plan"]["python"])
    result.held_back = {h["package"]: _sentence(h) for h in lock["held_back"]}
    theirs = _compile(wanted, result)
    if theirs is None:
        return result
    decided = _decided_by_builds(lock["plan"], result.held_back)
    ours = {p["name"]: p["version"] for p in lock["packages"] if p["version"]}
    for name, text in _older(requirement_set.named, ours, theirs):
        (result.notes if name in {*result.held_back, *decided} else result.faults).append(text)
    if rounds:
        _time(requirement_set, wanted, result, checkouts, rounds)
    return result


def _time(
    requirement_set: RequirementSet, wanted: Path, result: Compared, checkouts: list[Checkout], rounds: int
) -> None:
    """Time gpuenv, uv and another checkout in rounds."""
    runs = [lambda: _lock(requirement_set, wanted, result, checkouts[0]), lambda: _compile(wanted, result)]
    if checkouts[1:]:
        before = _written(wanted)
        other = Compared(name=requirement_set.name, mine=result.other, stopped=result.stopped)
        _lock(requirement_set, wanted, other, checkouts[1])
        result.same = before == _written(wanted)
        runs.append(lambda: _lock(requirement_set, wanted, other, checkouts[1]))
    in_rounds(rounds, runs)


def _written(wanted: Path) -> bytes | None:
    lock = wanted.parent / "pylock.toml"
    return lock.read_bytes() if lock.exists() else None


def _decided_by_builds(plan: dict[str, Any], held_back: dict[str, str]) -> set[str]:
    """Return the packages that held back framework builds require, such as triton. The plan selects them."""
    builds = [b for b in plan["builds"] if b["framework"] in held_back]
    return {str(canonicalize_name(Requirement(r).name)) for b in builds for r in b["requirements"]}


# Longer than most functions: a quarter of it is the command line.
def _lock(
    requirement_set: RequirementSet, wanted: Path, result: Compared, checkout: Checkout
) -> dict[str, Any] | None:
    """Lock the set and return the document. Return None without a lock, with the reason in `result`."""
    words = [
        "-m",
        "provision",
        "lock",
        "-f",
        requirement_set.framework,
        "-r",
        wanted.name,
        *TARGET,
        "--json",
        "-v",
    ]
    words += ["-o", "pylock.toml", *(["--allow-old"] if result.stopped else [])]
    (wanted.parent / "pylock.toml").unlink(missing_ok=True)  # a lock that is there keeps its versions
    environ = {"PYTHONPATH": str(checkout.folder), **checkout.environ}
    try:
        done = result.mine.run([sys.executable, *words], wanted.parent, environ, _TIMEOUT)
    except subprocess.TimeoutExpired:
        result.error = f"no answer within {_TIMEOUT:.0f} s"
        return None
    if solves := _SOLVES.search(done.stderr):
        result.solves = int(solves[1])
    if took := _TOOK.findall(done.stderr):
        result.needed.append(max(float(text.rstrip(" s")) for text in took[-1].split(", ")))
    if done.returncode:
        error = json.loads(done.stdout or "{}").get("error", {"message": done.stderr[-1500:], "hint": ""})
        if "--allow-old" in (error["hint"] or "") and not result.stopped:
            result.stopped = error["message"]
            result.mine.clear()
            result.needed.clear()
            return _lock(requirement_set, wanted, result, checkout)
        result.error = f"exit {done.returncode}: {error['message']}"
        return None
    return dict(json.loads(done.stdout))


def _compile(wanted: Path, result: Compared) -> dict[str, str] | None:
    """Compile the set with uv and return its versions. Return None if uv finds none, with the reason in
    `result`."""
    words = [
        "pip", "compile", str(wanted), "--no-header", "--no-annotate", "--python-version", result.python,
        "--python-platform", f"x86_64-manylinux_{GLIBC.replace('.', '_')}",
    ]  # fmt: skip
    sources = package_sources.read_sources(Choices())
    settings = Settings(timeout=_TIMEOUT)
    done = result.uv.measure(lambda: run_uv(words, sources, python=sys.executable, settings=settings))
    if not done.ok:
        result.passed_over = " ".join(done.stderr.split())[-600:] or "uv gave no answer in time"
        return None
    return {str(canonicalize_name(name)): version for name, version in _PINNED.findall(done.stdout)}


def _older(named: list[str], ours: dict[str, str], theirs: dict[str, str]) -> Iterator[tuple[str, str]]:
    for name in named:
        if name not in theirs:
            continue
        if name not in ours:
            yield name, f"{name} is not locked; uv takes {theirs[name]}"
        elif _is_older(ours[name], theirs[name]):
            yield name, f"{name} {ours[name]}; uv takes {theirs[name]}"


def _is_older(version: str, other: str) -> bool:
    """Return whether a version is older than another, ignoring their local parts."""
    return Version(Version(version).public) < Version(Version(other).public)


def _sentence(package: dict[str, Any]) -> str:
    price = f" ({package['alternative']})" if package["alternative"] else ""
    return f"{package['package']} {package['locked']}, not {package['newest']}: {package['because']}{price}"


def _checkouts(against: Path | None, scratch: Path) -> list[Checkout]:
    """Return this checkout and another one, each with an empty cache of gpuenv. uv's cache is the user's."""
    sources = package_sources.read_sources(Choices())
    of_uv = run_uv(["cache", "dir"], sources, python=None).stdout.strip()
    folders = [ROOT, *([against.resolve()] if against else [])]
    bytecode = {"PYTHONDONTWRITEBYTECODE": ""}  # an installed gpuenv has its bytecode after the first run
    return [
        Checkout(folder, {"XDG_CACHE_HOME": str(scratch / f"cache-{at}"), "UV_CACHE_DIR": of_uv, **bytecode})
        for at, folder in enumerate(folders)
    ]


def _kept(path: Path | None) -> dict[str, Compared]:
    if path is None or not path.exists():
        return {}
    rows = json.loads(path.read_text(encoding="utf-8"))
    return {
        row["name"]: Compared(**row | {n: Times(**row[n]) for n in ("mine", "uv", "other")}) for row in rows
    }


# Longer than most functions: half of it declares the options.
def main() -> None:
    """Compare the requested sets and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", action="append", metavar="NAME", help="this set; repeatable")
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="keep the results, and leave out those in it"
    )
    parser.add_argument(
        "--time", action="store_true", help="run both in alternating rounds, and print ratios"
    )
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="rounds of --time (default 3)")
    parser.add_argument(
        "--against", type=Path, metavar="CHECKOUT", help="another gpuenv to time beside this one"
    )
    options = parser.parse_args()
    sets = [s for s in read_sets() if not options.only or s.name in options.only]
    if not sets:
        parser.error(f"--only: no such set; those in {SETS.name}: {', '.join(s.name for s in read_sets())}")
    kept = _kept(options.json)
    rounds = options.rounds if options.time or options.against else 0
    print(HEAD)
    for requirement_set in sets:
        if requirement_set.name not in kept:
            with tempfile.TemporaryDirectory(prefix="gpuenv-compare-") as scratch:
                checkouts = _checkouts(options.against, Path(scratch)) if rounds else [Checkout(ROOT)]
                kept[requirement_set.name] = compare(requirement_set, Path(scratch), checkouts, rounds)
            if options.json:
                rows = [asdict(results) for results in kept.values()]
                options.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
        show(kept[requirement_set.name])
    results = [kept[s.name] for s in sets]
    wrong = sum(not f.ok for f in results)
    print(
        f"{len(results)} sets, {wrong} with faults, {sum(bool(f.passed_over) for f in results)} passed over"
    )
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
