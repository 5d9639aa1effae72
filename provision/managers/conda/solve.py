"""A lock for a conda environment: the solver's answer, held against what was meant."""

from __future__ import annotations

import dataclasses
import fnmatch
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...errors import LockError
from ...model import CondaBuild, Event, Lock, Package, Plan, PlannedBuild, Wanted
from ...wheels import file_names
from . import engine as channels_door, refusal as conda_refusal, specs
from .specs import Bounds, Question, Wish

Emit = Callable[[Event], None]
_ASKED = "asked"
Record = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Solution:
    """What the solver took: records as plain values, and what no channel has: frameworks (`lacking`)
    and other packages as they were asked for (`wheels`)."""

    records: tuple[Record, ...]
    channels: tuple[str, ...]
    lacking: tuple[str, ...] = ()
    wheels: tuple[str, ...] = ()


def solve(asked: Question, emit: Emit, alternatives: Sequence[tuple[str, Question]] = ()) -> Solution:
    """Ask the solver. Raises LockError where a channel does not answer, ResolveError where nothing
    fits, with the reason and the first of `alternatives` (a sentence and its question) that would."""
    emit(Event(kind="start", stage="lock", text="reading the channels and solving"))
    answer = _ask(
        asked, [_wish(_ASKED, asked), *(_wish(label, other) for label, other in alternatives)], emit
    )
    missing = set(answer["missing"])
    if "python" in missing:
        raise LockError(
            f"the channels have no python for {channels_door.subdir(asked.target.platform)}: {', '.join(answer['channels'])}",
            hint="add a channel that has one: --channel conda-forge",
        )
    if answer.get("label") != _ASKED:
        raise conda_refusal.of_solver(asked, answer)
    records = tuple(answer["records"])
    emit(Event(kind="done", stage="lock", text=f"{len(records)} conda packages", done=len(records)))
    absent = tuple(p for p in asked.request.packages if specs.package_spec(p).split()[0] in missing)
    return Solution(
        records=records, channels=tuple(answer["channels"]), lacking=tuple(answer["lacking"]), wheels=absent
    )


def _wish(label: str, asked: Question) -> Wish:
    frameworks = [
        (one, specs.rows_of(one.name, asked.request.device, asked.rows)) for one in asked.request.frameworks
    ]
    packages = [*(specs.package_spec(p) for p in asked.request.packages), "pip"]
    return specs.wish(label, asked.request, frameworks, asked.bounds, asked.virtual, packages, asked.limits)


def _ask(asked: Question, wishes: Sequence[Wish], emit: Emit) -> dict[str, Any]:
    def told(event: Mapping[str, Any]) -> None:
        if event["event"] == "note":
            emit(Event(kind="note", stage="lock", text=event["text"]))

    request = {
        "channels": list(asked.channels),
        "subdirs": [channels_door.subdir(asked.target.platform), "noarch"],
        "attempts": [w.plain() for w in wishes],
        "prefer": list(asked.prefer),
        "cache": str(channels_door.cache_dir(asked.cache_dir)),
        "offline": asked.offline,
    }
    answer = channels_door.ask("solve", request, told, LockError)
    if "error" in answer:
        raise conda_refusal.of_channel(answer["error"], asked.channels)
    return answer


# --- from records to a plan and a lock -----------------------------------------------------------


def lock(asked: Question, solution: Solution) -> Lock:
    """The plan that a solution amounts to, and its lock. Raises LockError where the solver took
    another variant than was asked for."""
    by_name = {r["name"]: r for r in solution.records}
    builds = []
    for wanted in asked.request.frameworks:
        if wanted.name in solution.lacking:
            continue
        builds.append(_planned(wanted, asked, solution, by_name))
    notes = ()
    major = next((b.cuda.split(".")[0] for b in builds if b.cuda), None)
    plan = Plan(
        builds=tuple(builds), python=_minor(by_name["python"]["version"]), platform=asked.target.platform,
        manager="conda", device=asked.request.device, target=asked.target, cuda_major=major,
        cudnn=next((b.cudnn for b in builds if b.cudnn), None), packages=asked.request.packages, notes=notes,
    )  # fmt: skip
    return Lock(
        manager="conda", target=asked.target, plan=plan, packages=tuple(map(as_package, solution.records))
    )


def _planned(
    wanted: Wanted, asked: Question, solution: Solution, by_name: Mapping[str, Record]
) -> PlannedBuild:
    rows = specs.rows_for(wanted.name, asked.request.device, solution.channels, asked.rows)
    row = next(r for r in rows if r.package in by_name)
    record = by_name[row.package]
    if not fnmatch.fnmatch(record["build"], row.build):
        raise LockError(
            f"the plan is for {asked.request.device}; the solver took {record['name']} {record['version']} "
            f"{record['build']}",
            hint="ask for other versions, or name another channel",
        )
    cuda, cudnn = made_with(record, by_name, asked.rows) if asked.request.device == "cuda" else (None, None)
    _assert_spoken(wanted, cuda, asked.bounds)
    names = (row.package, *(n for n in row.along if n in by_name))
    pins = tuple(f"{by_name[n]['name']} {by_name[n]['version']} {by_name[n]['build']}" for n in names)
    return PlannedBuild(
        framework=wanted.name, version=record["version"], cuda=cuda, cudnn=cudnn,
        index=channel_name(record["channel"]), requirements=pins,
    )  # fmt: skip


def _assert_spoken(wanted: Wanted, cuda: str | None, bounds: Bounds) -> None:
    spoken = [int(n) for n in (bounds.cuda or "").split(".") if n]
    if cuda and spoken and [int(n) for n in cuda.split(".")] > spoken:
        raise LockError(
            f"{wanted.name} came with CUDA {cuda}; the driver speaks {bounds.cuda}",
            hint="ask for an older CUDA: --cuda MAJOR.MINOR",
        )


def made_with(
    record: Record, by_name: Mapping[str, Record], rows: Sequence[CondaBuild]
) -> tuple[str | None, str | None]:
    """CUDA ("12.9") and cuDNN of a build: of its row, else of the packages taken along."""
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


def channel_name(url: str) -> str:
    """The short name of a channel ("conda-forge") where the address ends in one."""
    return url.rstrip("/").rsplit("/", 1)[-1] if "://" in url else url


def as_package(record: Record) -> Package:
    return file_names.check(Package(
        name=record["name"], version=record["version"], url=record["url"], sha256=record["sha256"],
        md5=record["md5"], index=record["channel"].rstrip("/") or None, size=record["size"],
        depends=tuple(record["depends"]),
    ))  # fmt: skip


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


def build_of(package: Package) -> str:
    """The build string, which the file name ends with."""
    stem = package.url.rsplit("/", 1)[-1].removesuffix(".conda").removesuffix(".tar.bz2")
    return stem.rsplit("-", 1)[-1]


def is_conda(package: Package) -> bool:
    return package.url.endswith((".conda", ".tar.bz2"))


def with_wheels(lock_: Lock, wheels: Sequence[Package], builds: Sequence[PlannedBuild]) -> Lock:
    """A lock with wheels on top, which brought these builds."""
    plan = dataclasses.replace(lock_.plan, builds=(*lock_.plan.builds, *builds))
    return dataclasses.replace(lock_, plan=plan, packages=(*lock_.packages, *wheels))
