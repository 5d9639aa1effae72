"""List the changes of a request that could make a build fit, cheapest first."""

from __future__ import annotations

import dataclasses
from bisect import bisect_left
from collections.abc import Callable, Iterator
from typing import NamedTuple

from ..model import CudaMajor, CudaRelease, FrameworkRequest, Target
from .question import Question
from .versions import major, meets, specifiers, version

Steps = Iterator[tuple[str, Question]]


class Axis(NamedTuple):
    """One constraint that can be changed: how to remove it, and its steps."""

    free: Callable[[Question], Question | None]
    steps: Callable[[Question], Steps]


def with_request(question: Question, **changes: object) -> Question:
    request = dataclasses.replace(question.request, **changes)  # type: ignore[arg-type]  # fields of Request
    return question.changed(request=request)


def _with_target(question: Question, **changes: object) -> Question:
    target: Target = dataclasses.replace(question.target, **changes)  # type: ignore[arg-type]  # fields of Target
    return question.changed(target=target)


def _any_index(question: Question) -> Question | None:
    return None if question.request.index == "auto" else with_request(question, index="auto")


def _index(question: Question) -> Steps:
    yield "use --index auto: another index has a build", with_request(question, index="auto")


def _online(question: Question) -> Question | None:
    if not question.supply.only_wheels:
        return None
    return question.changed(supply=dataclasses.replace(question.supply, only_wheels=False))


def _supplies(question: Question) -> Steps:
    if online := _online(question):
        yield "run without --offline: an index has a build", online


def _python_now(question: Question) -> str | None:
    return question.request.python or next(iter(question.request.pythons), None)


def _any_python(question: Question) -> Question | None:
    return with_request(question, python=None, pythons=()) if _python_now(question) else None


def _pythons(question: Question) -> Steps:
    """Yield every Python of a known build, the nearest to the requested one first."""
    now = _python_now(question) or ""
    known = {p for b in question.profiles.builds for p in b.python} - {now}
    for python in sorted(known, key=lambda p: (abs(_minor(p) - _minor(now)), _minor(p))):
        yield f"use --python {python}", with_request(question, python=python, pythons=())


def _minor(python: str) -> int:
    return int(python.split(".")[1])


def _any_version(question: Question) -> Question | None:
    wanted = question.request.frameworks
    if not any(w.specifier for w in wanted):
        return None
    return with_request(question, frameworks=tuple(FrameworkRequest(name=w.name) for w in wanted))


def _versions(question: Question) -> Steps:
    """Yield for each framework the versions nearest to its bounds, older ones first; last all without bounds."""
    frameworks = question.request.frameworks
    for i, wanted in enumerate(frameworks):
        for text in _nearest(question, wanted) if wanted.specifier else ():
            other = FrameworkRequest(name=wanted.name, specifier=f"=={text}")
            changed = (*frameworks[:i], other, *frameworks[i + 1 :])
            yield (
                f"use --framework '{wanted.name}=={text}': the nearest version that fits",
                with_request(question, frameworks=changed),
            )
    if len(frameworks) > 1:
        names = " ".join(f"--framework {w.name}" for w in frameworks)
        loose = tuple(FrameworkRequest(name=w.name) for w in frameworks)
        yield f"use {names}: without bounds some versions fit", with_request(question, frameworks=loose)


def _nearest(question: Question, wanted: FrameworkRequest) -> list[str]:
    """Return known versions outside the bounds, ordered by the number of versions between."""
    rows = {b.version for b in question.profiles.builds if b.framework == wanted.name and not b.yanked}
    known = sorted((v for v in rows if question.request.pre or not version(v).is_prerelease), key=version)
    inside = [i for i, v in enumerate(known) if meets(v, wanted.specifier)]
    if not inside:  # between two known versions, half a step from each
        named = sorted(version(s.version.removesuffix(".*")) for s in specifiers(wanted.specifier))
        inside_at = [bisect_left([version(v) for v in known], named[0]) - 0.5]
    else:
        inside_at = [float(inside[0]), float(inside[-1])]
    outside = [i for i in range(len(known)) if i not in inside]
    return [known[i] for i in sorted(outside, key=lambda i: (min(abs(i - at) for at in inside_at), i))]


def _any_cuda(question: Question) -> Question | None:
    return with_request(question, cuda=None) if question.request.cuda else None


def _cudas(question: Question) -> Steps:
    yield "remove --cuda", with_request(question, cuda=None)


def _any_driver(question: Question) -> Question | None:
    if question.target.driver is None or question.request.device != "cuda":
        return None
    return _with_target(question, driver=None, driver_cuda=None)


def _drivers(question: Question) -> Steps:
    """Yield driver floors above the installed driver, lowest first, then branches below, highest first."""
    driver = question.target.driver or "0"
    windows = question.driver_os == "windows"
    rows: tuple[CudaMajor | CudaRelease, ...] = (*question.profiles.majors, *question.profiles.cuda)
    floors = {r.windows if windows else r.linux for r in rows}
    floors |= {g.first_driver for g in question.profiles.gpus}
    floors |= {b.branch for b in question.profiles.branches}
    for floor in sorted((f for f in floors if f), key=version):
        if version(floor) > version(driver):
            yield f"install driver {floor} or newer", _with_target(question, driver=floor, driver_cuda=None)
    lasts = {g.last_driver for g in question.profiles.gpus if g.last_driver}
    for branch in sorted(lasts, key=int, reverse=True):
        if int(branch) < int(major(driver)):
            newest = f"{branch}.999"  # stands for any driver of the branch
            yield (
                f"install a driver of branch {branch}",
                _with_target(question, driver=newest, driver_cuda=None),
            )


def _any_gpus(question: Question) -> Question | None:
    if len(question.target.gpus) < 2 or question.request.device != "cuda":
        return None
    return _with_target(question, gpus=())


def _fewer_gpus(question: Question) -> Steps:
    """Yield targets without one GPU, then with only one GPU."""
    gpus = question.target.gpus
    places = range(len(gpus))
    for kept in [[j for j in places if j != i] for i in places] + [[i] for i in places]:
        out = [i for i in places if i not in kept]
        labels = " and ".join(f"{gpus[i].name or gpus[i].capability} (GPU {i})" for i in out)
        yield (
            f"use --gpus {','.join(map(str, kept))}: exclude {labels}",
            _with_target(question, gpus=tuple(gpus[i] for i in kept)),
        )


def _any_glibc(question: Question) -> Question | None:
    return _with_target(question, glibc=None) if question.target.glibc else None


def _glibcs(question: Question) -> Steps:
    needed = {b.glibc for b in question.profiles.builds} | {c.glibc for c in question.profiles.cudnn}
    for glibc in sorted((g for g in needed if g), key=version):
        if version(glibc) > version(question.target.glibc or "0"):
            yield (
                f"use a system or container with glibc {glibc} or newer",
                _with_target(question, glibc=glibc),
            )


def _on_the_cpu(question: Question) -> Question | None:
    return with_request(question, device="cpu") if question.request.device == "cuda" else None


def _cpu(question: Question) -> Steps:
    yield "use --device cpu: no GPU build fits", with_request(question, device="cpu")


def _pre_releases(question: Question) -> Question | None:
    return None if question.request.pre else with_request(question, pre=True)


def _pre(question: Question) -> Steps:
    yield "use --pre: only a pre-release fits", with_request(question, pre=True)


def _any_bounds(question: Question) -> Question | None:
    request = question.request
    return (
        with_request(question, bounds=(), requires_python="")
        if request.bounds or request.requires_python
        else None
    )


def _bounds(question: Question) -> Steps:
    """Yield requests without one line of the project's files, then without all."""
    bounds = question.request.bounds
    for i, bound in enumerate(bounds):
        said = f"change the bound {bound.name}{bound.specifier} in {bound.origin}"
        yield said, with_request(question, bounds=bounds[:i] + bounds[i + 1 :])
    if question.request.requires_python:
        where = question.request.python_origin or "the project"
        said = f"change the bound Python {question.request.requires_python} in {where}"
        yield said, with_request(question, requires_python="")
    places = ", ".join(b.origin for b in bounds)
    yield f"change the bounds in {places}", with_request(question, bounds=(), requires_python="")


AXES = (
    Axis(_any_index, _index),
    Axis(_online, _supplies),
    Axis(_any_python, _pythons),
    Axis(_pre_releases, _pre),
    Axis(_any_bounds, _bounds),
    Axis(_any_version, _versions),
    Axis(_any_cuda, _cudas),
    Axis(_any_driver, _drivers),
    Axis(_any_gpus, _fewer_gpus),
    Axis(_any_glibc, _glibcs),
)
CPU = Axis(_on_the_cpu, _cpu)
