"""Compare the locks of `gpuenv lock` with those of plain `uv pip compile`.

    python scripts/compare_with_uv.py [--only NAME] [--jobs N] [--json FILE] [--time] [--against CHECKOUT]

Each set of tests/data/requirement_sets.yaml is locked for one target (driver 580, H100). uv compiles it with the
same Python, platform and indexes, in two orders: the lines as the project writes them, and gpuenv's order, packages that
need a framework first, then the frameworks, because uv decides early lines first. uv solves a set if it solves one of the orders. Where gpuenv
finds no lock, uv tries several Pythons. uv may build source archives in a temporary folder.

What uv solves, gpuenv has to solve, or to exit with code 5 because of a measured row. Every package is compared with
uv's second answer, or with the first one if there is no second. A package in an older release needs a reason:
`held_back` has one that names what decides (`has_cause`), the plan decides it, or it is not named and something is
held back. The reason is false if gpuenv locks uv's versions without a further note where they are named. A set with a source that cannot be reached is
counted apart.

--json FILE keeps the results; the next run with the same file leaves out these sets (--retry: but those with faults).
--jobs N compares N sets at a time. --time runs both tools again in alternating rounds, and prints ratios. --against
also runs another checkout of gpuenv in these rounds, with --allow-old where its hint asks for that, and states
whether it writes the same lock. docs/explanation/benchmarks.md explains the columns. The exit status is 1 for a fault.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any

from comparison_table import CLOSED, HEAD, Compared, show, summary
from lock_times import Times, in_rounds
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version
from requirement_sets import FRAMEWORK_PACKAGES, SETS, RequirementSet, read_sets

from provision import profiles
from provision.config.options import Choices
from provision.config.sources import read_sources
from provision.index.uv import Settings, run_uv

ROOT = Path(__file__).resolve().parent.parent
GLIBC = "2.35"
TARGET = ("--driver", "580.65.06", "--gpu", "H100", "--platform", "linux-x86_64", "--glibc", GLIBC)
PYTHONS = ("3.13", "3.12", "3.11", "3.10", "3.9")
"""The Pythons that uv tries for a set that gpuenv does not lock."""
_RAN_UV = re.compile(r"uv took [\d.]")
_NOTES = re.compile(r"^(?:note|warning): (.*)", re.MULTILINE)
_REQUIRES = re.compile(r"([A-Za-z0-9._-]+) (\S+) requires ([A-Za-z0-9._-]+)((?:===|[<>=!~]=?)[^\s;]+)")
_RELEASE = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)(?: |[<>=!~]=?)(\d[A-Za-z0-9.+]*)")
_PINNED = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;]+)(?:.*# via (.*))?", re.MULTILINE)


@dataclass(frozen=True)
class Checkout:
    """A folder with gpuenv's sources, and variables for its runs, such as its own cache for measuring."""

    folder: Path
    environ: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Answer:
    """The versions that uv selects, and which packages require each of them; or the error."""

    versions: dict[str, str] = field(default_factory=dict)
    required_by: dict[str, list[str]] = field(default_factory=dict)
    error: str = ""


class Comparison:
    """One set, in a folder of its own. `limit` are the seconds of each run."""

    def __init__(self, requirement_set: RequirementSet, scratch: Path, limit: float) -> None:
        """Write the requirements."""
        self.set, self.limit = requirement_set, limit
        self.given, self.binding_first = scratch / "requirements.txt", scratch / "binding-first.txt"
        self.written = scratch / "pylock.toml"
        self.binding: list[str] = []  # the named packages that need a framework
        self.solved: list[Path] = []  # the orders that uv solves
        self.set.write(self.given)
        self.result = Compared(
            name=self.set.name, frameworks=self.set.all_frameworks, packages=len(self.set.named)
        )

    def run(self, checkouts: Sequence[Checkout], rounds: int) -> Compared:
        """Lock and compile the set, list the older packages and, with `rounds`, time both."""
        result = self.result
        lock = self._lock(checkouts[0], result)
        if lock:
            result.python = str(lock["plan"]["python"])
            result.held_back = {h["package"]: _sentence(h) for h in lock["held_back"]}
        theirs = self._ask_uv().versions
        if lock and theirs:
            result.with_reason, result.follows, result.without_reason = judge(self.set.named, lock, theirs)
            if result.with_reason and self._accepts(theirs, lock, checkouts[0]):
                false = (
                    f"{text}, and gpuenv locks uv's versions if they are named" for text in result.with_reason
                )
                result.with_reason, result.without_reason = [], [*false, *result.without_reason]
            if rounds:
                self._time(checkouts, rounds)
        return result

    def _accepts(self, theirs: dict[str, str], lock: dict[str, Any], checkout: Checkout) -> bool:
        """Return whether gpuenv locks uv's versions without a further note, and none that is bound is older than its own.

        Then the reasons why it locked older ones are false.
        """
        ours = _list_versions(lock)
        named = [n for n in self.set.named if n in theirs]
        bound = [n for n in named if n in ours and (n in self.binding or n in FRAMEWORK_PACKAGES)]
        if any(_is_older(theirs[n], ours[n]) for n in bound):
            return False
        written, pinned = self.written.read_bytes(), self.given.with_name("pinned.txt")
        pins = [f"{n}=={Version(theirs[n]).public}" for n in named]
        pinned.write_text("\n".join([*self.set.lines(), *pins]) + "\n", encoding="utf-8")
        tried = Compared(name=self.set.name)
        accepted = self._lock(checkout, tried, wanted=pinned)
        self.written.write_bytes(written)
        if accepted is None or not set(tried.notes) <= set(self.result.notes):
            return False
        locked = _list_versions(accepted)
        return all(n in locked and not _is_older(locked[n], theirs[n]) for n in named)

    def _lock(
        self, checkout: Checkout, result: Compared, *more: str, wanted: Path | None = None
    ) -> dict[str, Any] | None:
        """Lock the set and return the document. Return None without a lock, with the reason in `result`."""
        frameworks = [word for name in self.set.frameworks for word in ("--framework", name)]
        words = [
            "-m",
            "provision",
            "lock",
            *frameworks,
            "-r",
            (wanted or self.given).name,
            *TARGET,
            "--json",
            "-v",
            *more,
        ]
        self.written.unlink(missing_ok=True)  # a lock that is there keeps its versions
        environ = {"PYTHONPATH": str(checkout.folder), **checkout.environ}
        try:
            done = result.mine.run(
                [sys.executable, *words, "-o", self.written.name], self.given.parent, environ, self.limit
            )
        except subprocess.TimeoutExpired:
            result.error = f"no answer within {self.limit:.0f} s"
            return None
        result.exit, result.solves = done.returncode, len(_RAN_UV.findall(done.stderr))
        result.error = _error(done) if done.returncode else ""
        result.notes = _NOTES.findall(done.stderr)
        return None if done.returncode else dict(json.loads(done.stdout))

    def _ask_uv(self) -> Answer:
        """Compile the set in both orders. Return the second answer if there is one."""
        result, errors = self.result, []
        for python in [result.python] if result.python else PYTHONS:
            result.uv, result.uv_binding = Times(), Times()
            answers = {self.given: self._compile(self.given, result.uv, python)}
            self.binding = _list_binding(self.set.named, answers[self.given])
            if self.set.lines(self.binding) != self.set.lines():
                self.set.write(self.binding_first, self.binding)
                answers[self.binding_first] = self._compile(self.binding_first, result.uv_binding, python)
            self.solved = [path for path, answer in answers.items() if not answer.error]
            if self.solved:
                result.python, result.uv_error = python, ""
                return answers[self.solved[-1]]
            errors.append(answers[self.given].error)
        result.uv_error = errors[0]
        return Answer(error=errors[0])

    def _compile(self, wanted: Path, times: Times, python: str) -> Answer:
        """Compile requirements with uv."""
        words = [
            "pip", "compile", str(wanted), "--no-header", "--annotation-style", "line", "--python-platform",
            f"x86_64-manylinux_{GLIBC.replace('.', '_')}", "--python-version", python,
        ]  # fmt: skip
        sources = read_sources(Choices())
        settings = Settings(timeout=self.limit)
        done = times.measure(lambda: run_uv(words, sources, python=_interpreter(python), settings=settings))
        if not done.ok:
            return Answer(
                error=" ".join(done.stderr.split())[-600:] or f"no answer within {self.limit:.0f} s"
            )
        return read_answer(done.stdout)

    def _time(self, checkouts: Sequence[Checkout], rounds: int) -> None:
        """Time gpuenv, both orders of uv that it solves, and another checkout, in rounds."""
        result = self.result
        times = {self.given: result.uv, self.binding_first: result.uv_binding}
        runs: list[Callable[[], object]] = [partial(self._lock, checkouts[0], result)]
        runs += [partial(self._compile, path, times[path], result.python) for path in self.solved]
        if checkouts[1:]:
            mine, other = self._read_written(), Compared(name=self.set.name, mine=result.other)
            more: tuple[str, ...] = ()
            if not self._lock(checkouts[1], other) and "--allow-old" in other.error:
                result.other.clear()
                more = ("--allow-old",)
                self._lock(checkouts[1], other, *more)
            result.same, result.other_error = mine == self._read_written(), other.error
            if not other.error:
                runs.append(partial(self._lock, checkouts[1], other, *more))
        in_rounds(rounds, runs)

    def _read_written(self) -> bytes | None:
        return self.written.read_bytes() if self.written.exists() else None


def read_answer(text: str) -> Answer:
    """Read what `uv pip compile --annotation-style line` prints."""
    versions, required_by = {}, {}
    for name, version, via in _PINNED.findall(text):
        package = str(canonicalize_name(name))
        versions[package] = version
        required_by[package] = [via for via in via.split(", ") if via and not via.startswith("-r ")]
    return Answer(versions, required_by)


def judge(
    named: Collection[str], lock: dict[str, Any], theirs: dict[str, str]
) -> tuple[list[str], list[str], list[str]]:
    """Return the packages that gpuenv locks in older releases than uv: named ones with a reason, those that are not
    named and follow from these or from a build, and those without a reason."""
    ours = _list_versions(lock)
    held_back = {h["package"] for h in lock["held_back"] if has_cause(h, lock)}
    decided = _list_decided(lock["plan"])
    frameworks = {build["framework"] for build in lock["plan"]["builds"]}
    with_reason: list[str] = []
    follows: list[str] = []
    without_reason: list[str] = []
    for name, version in theirs.items():
        if name in ours and not _is_older(ours[name], version):
            continue
        if name not in ours and name not in named:
            continue  # another release of a package requires other packages
        if name in named:
            has_reason = name in held_back or name in decided - frameworks
            kind = with_reason if has_reason else without_reason
        else:
            of_toolkit = "cuda-toolkit" in decided and name.startswith("nvidia-")
            kind = follows if held_back or name in decided or of_toolkit else without_reason
        kind.append(f"{name} {ours.get(name, 'is not locked')}; uv takes {version}")
    return with_reason, follows, without_reason


def has_cause(held: dict[str, Any], lock: dict[str, Any]) -> bool:
    """Return whether the reason of an older release names what decides.

    That is a bound which the lock does not meet, or which excludes the newer release; another locked package; a
    measured row; an objection of the plan; or an index that does not respond.
    """
    ours, name, because = _list_versions(lock), held["package"], held["because"]
    if stated := _REQUIRES.match(because):
        package, release, needed, bound = stated.groups()
        if package == name:
            return needed in ours and not _meets(ours[needed], bound)
        locked = Version(ours.get(package, "0")).public == release
        return locked and needed == name and not _meets(held["newest"], bound)
    if CLOSED.search(because) or any(
        because == r["text"] for b in lock["plan"]["rejected"] for r in b["reasons"]
    ):
        return True
    measured = {(row.package, row.version) for row in profiles.load().satellites}
    return any(
        (package != name and package in ours) or (package, version) in measured
        for package, version in _RELEASE.findall(because)
    )


def _meets(version: str, bound: str) -> bool:
    return SpecifierSet(bound).contains(Version(version).public, prereleases=True)


def _list_versions(lock: dict[str, Any]) -> dict[str, str]:
    return {p["name"]: p["version"] for p in lock["packages"] if p["version"]}


def _list_decided(plan: dict[str, Any]) -> set[str]:
    """Return the packages that builds require, such as triton, and those that notes say are replaced, left out or limited."""
    names = [Requirement(r).name for build in plan["builds"] for r in build["requirements"]]
    names += [
        name[1]
        for note in plan["notes"]
        if (name := re.match(r"([A-Za-z0-9._-]+)(?:.* is (?:replaced by|left out)|<\S+ for )", note))
    ]
    return {str(canonicalize_name(name)) for name in names}


def _list_binding(named: Sequence[str], answer: Answer) -> list[str]:
    """Return the named packages that need a framework, by uv's answer or by a measured row."""
    measured = {row.package for row in profiles.load().satellites}
    requiring = {p for f in FRAMEWORK_PACKAGES for p in answer.required_by.get(f, ())}
    return [n for n in named if n not in FRAMEWORK_PACKAGES and n in measured | requiring]


@cache
def _interpreter(version: str) -> str:
    """Return a Python of this version, so that source archives are built with it; this one if there is none."""
    sources = read_sources(Choices())
    done = run_uv(["python", "find", "--no-project", version], sources, python=None)
    return done.stdout.strip() if done.ok else sys.executable


def _is_older(version: str, other: str) -> bool:
    """Return whether a version is older than another, ignoring their local parts."""
    return Version(Version(version).public) < Version(Version(other).public)


def _error(done: subprocess.CompletedProcess[str]) -> str:
    """Return the message of a run without a lock. Without a build, gpuenv prints the plan with its objections."""
    document = json.loads(done.stdout or "{}")
    if "rejected" in document:
        return " ".join(
            f"{'; '.join(list_objections(document['rejected']))} hint: {document['hint'] or '-'}".split()
        )
    error = document.get("error", {"message": done.stderr[-1500:], "hint": None})
    return " ".join(f"{error['message']} hint: {error['hint'] or '-'}".split())


def list_objections(rejected: Sequence[dict[str, Any]]) -> list[str]:
    """Return the objections to the newest build of each framework that the requirements allow.

    A build that only misses its index comes first: without it the answer says nothing about the set.
    """
    allowed = [r for r in rejected if all(c["code"] != "requirement_conflict" for c in r["reasons"])]
    missed = [r for r in allowed if all(c["code"] == "index_excluded" for c in r["reasons"])]
    newest = {r["framework"]: r for r in (*reversed(allowed), *reversed(missed))}
    return [
        f"{name} {r['version']} (CUDA {r['cuda']}): {', '.join(c['text'] for c in r['reasons'])}"
        for name, r in newest.items()
    ]


def _sentence(package: dict[str, Any]) -> str:
    price = f" ({package['alternative']})" if package["alternative"] else ""
    return f"{package['package']} {package['locked']}, not {package['newest']}: {package['because']}{price}"


def _checkouts(against: Path | None, scratch: Path) -> list[Checkout]:
    """Return this checkout and another one, each with an empty cache of gpuenv. uv's cache is the user's."""
    sources = read_sources(Choices())
    of_uv = run_uv(["cache", "dir"], sources, python=None).stdout.strip()
    folders = [ROOT, *([against.resolve()] if against else [])]
    bytecode = {"PYTHONDONTWRITEBYTECODE": ""}  # an installed gpuenv has its bytecode after the first run
    return [
        Checkout(folder, {"XDG_CACHE_HOME": str(scratch / f"cache-{at}"), "UV_CACHE_DIR": of_uv, **bytecode})
        for at, folder in enumerate(folders)
    ]


def _kept(path: Path | None, *, retry: bool) -> dict[str, Compared]:
    if path is None or not path.exists():
        return {}
    timed = ("mine", "uv", "uv_binding", "other")
    rows = json.loads(path.read_text(encoding="utf-8"))
    kept = [Compared(**row | {n: Times(**row[n]) for n in timed}) for row in rows]
    return {k.name: k for k in kept if k.ok or not retry}


def _compare(requirement_set: RequirementSet, against: Path | None, rounds: int, limit: float) -> Compared:
    with tempfile.TemporaryDirectory(prefix="gpuenv-compare-") as folder:
        scratch = Path(folder)
        checkouts = _checkouts(against, scratch) if rounds else [Checkout(ROOT)]
        return Comparison(requirement_set, scratch, limit).run(checkouts, rounds)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--only", action="append", metavar="NAME", help="this set; repeatable")
    add("--sets", type=Path, default=SETS, metavar="FILE", help="another file of sets")
    add("--jobs", type=int, default=1, metavar="N", help="sets at a time (default 1); not with --time")
    add("--json", type=Path, metavar="FILE", help="keep the results, and leave out those in it")
    add("--retry", action="store_true", help="run the sets with faults in FILE again")
    add("--time", action="store_true", help="run both in alternating rounds, and print ratios")
    add("--rounds", type=int, default=3, metavar="N", help="rounds of --time (default 3)")
    add("--against", type=Path, metavar="CHECKOUT", help="another gpuenv to time beside this one")
    add("--limit", type=float, default=600, metavar="SECONDS", help="time of each run (default 600)")
    options = parser.parse_args()
    options.rounds = options.rounds if options.time or options.against else 0
    if options.rounds and options.jobs > 1:
        parser.error("--jobs: runs at the same time cannot be timed")
    if options.against and not (options.against / "provision").is_dir():
        parser.error(f"--against: {options.against} has no folder provision")
    known = [s.name for s in read_sets(options.sets)]
    if unknown := set(options.only or ()) - set(known):
        parser.error(
            f"--only: no set {', '.join(sorted(unknown))} in {options.sets.name}: {', '.join(known)}"
        )
    return options


def main() -> None:
    """Compare the requested sets and print a table and its summary."""
    options = _options()
    sets = [s for s in read_sets(options.sets) if not options.only or s.name in options.only]
    kept = _kept(options.json, retry=options.retry)
    print(HEAD)
    for done in sets:
        if done.name in kept:
            show(kept[done.name])
    pool = ThreadPoolExecutor(options.jobs)
    try:
        waiting = [
            pool.submit(_compare, s, options.against, options.rounds, options.limit)
            for s in sets
            if s.name not in kept
        ]
        for finished in as_completed(waiting):
            result = finished.result()
            kept[result.name] = result
            show(result)
            if options.json:
                rows = [asdict(results) for results in kept.values()]
                options.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    finally:
        pool.shutdown(cancel_futures=True)
    results = [kept[s.name] for s in sets]
    print("\n".join(["", *summary(results)]))
    sys.exit(not all(r.ok for r in results))


if __name__ == "__main__":
    main()
