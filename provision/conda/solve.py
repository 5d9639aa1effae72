"""Solves a conda environment: converts the solution into a lock, and failures into errors."""

from __future__ import annotations

import dataclasses
import fnmatch
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import LockError, ResolveError
from ..index.refusals import CONDA_CHANNEL, UNREADABLE_HINT, find_refusal
from ..model import CondaBuild, Event, FrameworkRequest, Lock, LockedPackage, Plan, PlannedBuild
from ..system.redaction import clean, redact
from ..wheels import pylock
from . import engine as channels_door, specs
from .specs import Bounds, SolverQuestion, Wish

Emit = Callable[[Event], None]
_ASKED = "asked"
Record = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Solution:
    """The records of a solution, and what no channel has: frameworks (`lacking`) and other packages (`wheels`)."""

    records: tuple[Record, ...]
    channels: tuple[str, ...]
    lacking: tuple[str, ...] = ()
    wheels: tuple[str, ...] = ()


def solve(
    question: SolverQuestion, emit: Emit, alternatives: Sequence[tuple[str, SolverQuestion]] = ()
) -> Solution:
    """Run the solver. Raises LockError if a channel does not answer, and ResolveError if nothing fits.

    The ResolveError has the reason and the first of `alternatives` (a hint and its question) with a solution.
    """
    emit(Event(kind="start", stage="lock", text="reading the channels and solving"))
    answer = _ask(
        question,
        [_make_wish(_ASKED, question), *(_make_wish(label, other) for label, other in alternatives)],
        emit,
    )
    missing = set(answer["missing"])
    if "python" in missing:
        raise LockError(
            f"the channels have no python for {channels_door.subdir(question.target.platform)}: {', '.join(answer['channels'])}",
            hint="add a channel that has it: --channel conda-forge",
        )
    if answer.get("label") != _ASKED:
        raise of_solver(question, answer)
    records = tuple(answer["records"])
    emit(Event(kind="done", stage="lock", text=f"{len(records)} conda packages", done=len(records)))
    absent = tuple(p for p in question.request.packages if specs.make_package_spec(p).split()[0] in missing)
    return Solution(
        records=records, channels=tuple(answer["channels"]), lacking=tuple(answer["lacking"]), wheels=absent
    )


def _make_wish(label: str, question: SolverQuestion) -> Wish:
    frameworks = [
        (one, specs.rows_of(one.name, question.request.device, question.rows))
        for one in question.request.frameworks
    ]
    packages = [*(specs.make_package_spec(p) for p in question.request.packages), "pip"]
    return specs.make_wish(label, question, frameworks, packages)


def _ask(question: SolverQuestion, wishes: Sequence[Wish], emit: Emit) -> dict[str, Any]:
    def on_event(event: Mapping[str, Any]) -> None:
        if event["event"] == "note":
            emit(Event(kind="note", stage="lock", text=event["text"]))

    request = {
        "channels": list(question.channels),
        "subdirs": [channels_door.subdir(question.target.platform), "noarch"],
        "attempts": [w.plain() for w in wishes],
        "prefer": list(question.prefer),
        "cache": str(channels_door.cache_dir(question.cache_dir)),
        "offline": question.offline,
    }
    answer = channels_door.ask("solve", request, on_event, LockError)
    if "error" in answer:
        raise of_channel(answer["error"], question.channels)
    return answer


# --- from records to a plan and a lock -----------------------------------------------------------


def make_lock(question: SolverQuestion, solution: Solution) -> Lock:
    """Return the lock of a solution, with its plan. Raises LockError for a variant that was not requested."""
    by_name = {r["name"]: r for r in solution.records}
    builds = []
    for wanted in question.request.frameworks:
        if wanted.name in solution.lacking:
            continue
        builds.append(_plan_build(wanted, question, solution, by_name))
    notes = ()
    major = next((b.cuda.split(".")[0] for b in builds if b.cuda), None)
    plan = Plan(
        builds=tuple(builds), python=_cut_minor(by_name["python"]["version"]), platform=question.target.platform,
        manager="conda", device=question.request.device, target=question.target, cuda_major=major,
        cudnn=next((b.cudnn for b in builds if b.cudnn), None), packages=question.request.packages, notes=notes,
    )  # fmt: skip
    return Lock(
        manager="conda", target=question.target, plan=plan, packages=tuple(map(as_package, solution.records))
    )


def _plan_build(
    wanted: FrameworkRequest, question: SolverQuestion, solution: Solution, by_name: Mapping[str, Record]
) -> PlannedBuild:
    rows = specs.rows_for(wanted.name, question.request.device, solution.channels, question.rows)
    row = next(r for r in rows if r.package in by_name)
    record = by_name[row.package]
    if not fnmatch.fnmatch(record["build"], row.build):
        raise LockError(
            f"the request is for {question.request.device}, but the solver chose {record['name']} {record['version']} "
            f"{record['build']}",
            hint="request other versions, or name another channel",
        )
    cuda, cudnn = (
        find_cuda_and_cudnn(record, by_name, question.rows)
        if question.request.device == "cuda"
        else (None, None)
    )
    _assert_spoken(wanted, cuda, question.bounds)
    names = (row.package, *(n for n in row.along if n in by_name))
    pins = tuple(f"{by_name[n]['name']} {by_name[n]['version']} {by_name[n]['build']}" for n in names)
    return PlannedBuild(
        framework=wanted.name, version=record["version"], cuda=cuda, cudnn=cudnn,
        index=shorten_channel(record["channel"]), requirements=pins,
    )  # fmt: skip


def _assert_spoken(wanted: FrameworkRequest, cuda: str | None, bounds: Bounds) -> None:
    spoken = [int(n) for n in (bounds.cuda or "").split(".") if n]
    if cuda and spoken and [int(n) for n in cuda.split(".")] > spoken:
        raise LockError(
            f"{wanted.name} comes with CUDA {cuda}, but the driver supports only {bounds.cuda}",
            hint="request an older CUDA with --cuda MAJOR.MINOR",
        )


def find_cuda_and_cudnn(
    record: Record, by_name: Mapping[str, Record], rows: Sequence[CondaBuild]
) -> tuple[str | None, str | None]:
    """Return CUDA ("12.9") and cuDNN of a build, from its row or from the packages with it."""
    row = next(
        (r for r in rows if r.version == record["version"] and r.package == record["name"]
         and fnmatch.fnmatch(record["build"], r.build)), None,
    )  # fmt: skip
    cuda = row.cuda if row else None
    for name in specs.CUDA_NAMES:
        if cuda is None and name in by_name:
            cuda = ".".join(by_name[name]["version"].split(".")[:2])
    cudnn = (row.cudnn or "").removeprefix("==") or None if row else None
    for name in specs.CUDNN_NAMES:
        if cudnn is None and name in by_name:
            cudnn = by_name[name]["version"]
    return cuda, cudnn


def shorten_channel(url: str) -> str:
    """Return the short name of a channel ("conda-forge") if its address ends in one."""
    return url.rstrip("/").rsplit("/", 1)[-1] if "://" in url else url


def as_package(record: Record) -> LockedPackage:
    return pylock.check_file_name(LockedPackage(
        name=record["name"], version=record["version"], url=record["url"], sha256=record["sha256"],
        md5=record["md5"], index=record["channel"].rstrip("/") or None, size=record["size"],
        depends=tuple(record["depends"]),
    ))  # fmt: skip


def _cut_minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


def build_of(package: LockedPackage) -> str:
    """Return the build string at the end of the file name."""
    stem = package.url.rsplit("/", 1)[-1].removesuffix(".conda").removesuffix(".tar.bz2")
    return stem.rsplit("-", 1)[-1]


def is_conda(package: LockedPackage) -> bool:
    return package.url.endswith((".conda", ".tar.bz2"))


def add_wheels(lock_: Lock, wheels: Sequence[LockedPackage], builds: Sequence[PlannedBuild]) -> Lock:
    """Return a lock with added wheels and their builds."""
    plan = dataclasses.replace(lock_.plan, builds=(*lock_.plan.builds, *builds))
    return dataclasses.replace(lock_, plan=plan, packages=(*lock_.packages, *wheels))


def of_channel(error: Mapping[str, str], channels: Sequence[str]) -> LockError:
    """Return the error for a message of the engine about a channel."""
    text = clean(error["text"])
    address = re.search(r"(?:https?|file)://[^\s'\"`)]+", text)
    where = address.group(0).rstrip(":/,") if address else ", ".join(map(redact, channels))
    for pattern, fault, hint in _LOCAL_FAULTS:
        if re.search(pattern, text, re.IGNORECASE):
            return LockError(f"{fault}: {where}", hint=hint, log=text)
    refusal = find_refusal(text, where, CONDA_CHANNEL)
    if refusal is None or refusal.cause in ("missing", "withdrawn"):
        for pattern, fault, hint in _CHANNEL_FAULTS:
            if re.search(pattern, text, re.IGNORECASE):
                return LockError(f"{fault}: {where}", hint=hint, log=text)
    if refusal:
        words = refusal.words if where in refusal.words else f"{refusal.words}: {where}"
        return LockError(f"{CONDA_CHANNEL.name} {words}", hint=refusal.hint, log=text)
    return LockError(
        f"the conda channels cannot be read: {text.splitlines()[0] if text else error['kind']}: {where}",
        log=text,
        hint="read the messages of the conda engine (py-rattler) above",
    )


_LOCAL_FAULTS = (
    (r"permission denied|os error 13\b", "a file of the channel or of the conda package cache is not accessible",
     "change its permissions (the messages above name it), or choose another cache with --cache-dir DIR or RATTLER_CACHE_DIR"),
    (r"URL scheme is not allowed", "a mirror must have an http address", "pass the folder as a channel: --channel DIR"),
    (r"failed to parse|expected value at|EOF while parsing|trailing characters",
     "the conda channel did not return a valid repodata.json", UNREADABLE_HINT),
    (r"no usable repodata cache",
     "--offline was given, but the channel is not in the cache",
     "run once with a network, or name a local folder with --channel DIR"),
)  # fmt: skip
_CHANNEL_FAULTS = (
    (r"\b404\b|\b410\b|could not find subdir|no such file", "the conda channel does not exist", CONDA_CHANNEL.hints["missing"]),
    (r"failed to (?:persist|open|create|write|rename|lock)", "the conda package cache cannot be used",
     "run the command again if another program removed files there, or choose another cache with --cache-dir DIR"),
    (r"connection", "the conda channel does not respond", CONDA_CHANNEL.hints["unreachable"]),
)  # fmt: skip


def of_solver(question: SolverQuestion, answer: Mapping[str, Any]) -> ResolveError:
    """Return the error with the solver's explanation, the machine, and the change that has a solution."""
    request, label = question.request, answer.get("label")
    frameworks = ", ".join(f"{w.name}{w.specifier}" for w in request.frameworks)
    bounds = [f"{b.name}{b.specifier} ({b.origin})" for b in (*request.bounds, *question.limits)]
    bounds += (
        [f"Python {request.requires_python} ({request.python_origin})"] if request.requires_python else []
    )
    frameworks += f" with {', '.join(bounds)}" if bounds else ""
    spoken = (
        f", CUDA up to {question.bounds.cuda}"
        if question.bounds.cuda and question.request.device == "cuda"
        else ""
    )
    return ResolveError(
        f"no set of conda packages provides {frameworks} for {question.request.device} "
        f"on {specs.describe_virtual_packages(question.virtual)}{spoken}",
        log=str(answer.get("refusal", "")).strip() or None,
        hint=label or "no single change helps; see the conflicts with gpuenv resolve --explain",
    )
