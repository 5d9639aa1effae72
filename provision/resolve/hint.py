"""What would help when no build fits: the smallest change that opens one, found by trying."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

from ..model import CudaMajor, CudaRelease, Target
from .objections import Question
from .versions import major, version

Opens = Callable[[Question], bool]


def hint_for(asked: Question, opens: Opens) -> str | None:
    """The first change, cheapest for the user first, under which some build fits: another index,
    another Python, another version, a driver, leaving a GPU out, the CPU. None if none helps."""
    for sentence, changed in _changes(asked):
        if opens(changed):
            return sentence
    return None


def _changes(asked: Question) -> Iterator[tuple[str, Question]]:
    request, target = asked.request, asked.target
    if request.index != "auto":
        yield "--index auto: another index has a build", _with(asked, index="auto")
    if asked.supply.only_wheels:
        online = dataclasses.replace(asked.supply, only_wheels=False)
        yield (
            "without --offline: an index has a build, the wheels given have none",
            Question(request, target, asked.profiles, online),
        )
    yield from _other_pythons(asked)
    if any(w.specifier for w in request.frameworks):
        loose = tuple(dataclasses.replace(w, specifier="") for w in request.frameworks)
        yield f"another version: {_loosened(asked)}", _with(asked, frameworks=loose)
    if request.cuda:
        yield "without --cuda", _with(asked, cuda=None)
    if request.device == "cuda":
        yield from _other_drivers(asked)
        yield from _fewer_gpus(asked)
        yield "--device cpu: no GPU build fits this machine", _with(asked, device="cpu")


def _with(asked: Question, **changes: object) -> Question:
    request = dataclasses.replace(asked.request, **changes)  # type: ignore[arg-type]  # fields of Request
    return Question(request, asked.target, asked.profiles, asked.supply)


def _loosened(asked: Question) -> str:
    """The newest version of each framework that fits without the bounds, for the sentence."""
    names = " ".join(f"--framework {w.name}" for w in asked.request.frameworks)
    return f"{names} without bounds finds one that fits"


def _other_pythons(asked: Question) -> Iterator[tuple[str, Question]]:
    """Every Python that any build is made for, nearest to the one asked for first."""
    known = {p for b in asked.profiles.builds for p in b.python}
    now = asked.request.python or (asked.request.pythons[0] if asked.request.pythons else None)
    if now is None:
        return
    ordered = sorted(known - {now}, key=lambda p: (abs(_minor(p) - _minor(now)), _minor(p)))
    for python in ordered:
        yield f"--python {python}", _with(asked, python=python, pythons=())


def _minor(python: str) -> int:
    return int(python.split(".")[1])


def _other_drivers(asked: Question) -> Iterator[tuple[str, Question]]:
    """Every driver floor above the present driver, lowest first; below it, highest branch first."""
    driver = asked.target.driver
    if driver is None:
        return
    windows = asked.driver_os == "windows"
    rows: tuple[CudaMajor | CudaRelease, ...] = (*asked.profiles.majors, *asked.profiles.cuda)
    floors = [r.windows if windows else r.linux for r in rows]
    floors += [g.first_driver for g in asked.profiles.gpus]
    known = sorted({f for f in floors if f}, key=version)
    for floor in known:
        if version(floor) > version(driver):
            yield f"a driver from {floor} on", _on(asked, driver=floor, driver_cuda=None)
    for branch in sorted(
        {g.last_driver for g in asked.profiles.gpus if g.last_driver}, key=int, reverse=True
    ):
        if int(branch) < int(major(driver)):
            newest = f"{branch}.999"  # any driver of the branch: the branch is what decides
            yield f"a driver of branch {branch}", _on(asked, driver=newest, driver_cuda=None)


def _fewer_gpus(asked: Question) -> Iterator[tuple[str, Question]]:
    gpus = asked.target.gpus
    if len(gpus) < 2:
        return
    for i, gpu in enumerate(gpus):
        rest = ",".join(str(j) for j in range(len(gpus)) if j != i)
        left = tuple(g for j, g in enumerate(gpus) if j != i)
        label = gpu.name or gpu.capability
        yield f"--gpus {rest}: leave out {label} (GPU {i})", _on(asked, gpus=left)


def _on(asked: Question, **changes: object) -> Question:
    target: Target = dataclasses.replace(asked.target, **changes)  # type: ignore[arg-type]  # fields of Target
    return Question(asked.request, target, asked.profiles, asked.supply)
