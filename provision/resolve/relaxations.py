"""The axes on which a question can be changed, the cheapest for the user first.

`free` gives the question with the axis binding nothing, None where it does not bind; `steps` are the
single changes on it, nearest first, each as a sentence that says what to do.
"""

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
    """One thing that can be changed: how to set it free, and its steps."""

    free: Callable[[Question], Question | None]
    steps: Callable[[Question], Steps]


def with_request(asked: Question, **changes: object) -> Question:
    request = dataclasses.replace(asked.request, **changes)  # type: ignore[arg-type]  # fields of Request
    return asked.changed(request=request)


def _with_target(asked: Question, **changes: object) -> Question:
    target: Target = dataclasses.replace(asked.target, **changes)  # type: ignore[arg-type]  # fields of Target
    return asked.changed(target=target)


def _any_index(asked: Question) -> Question | None:
    return None if asked.request.index == "auto" else with_request(asked, index="auto")


def _index(asked: Question) -> Steps:
    yield "use --index auto: another index has a build", with_request(asked, index="auto")


def _online(asked: Question) -> Question | None:
    if not asked.supply.only_wheels:
        return None
    return asked.changed(supply=dataclasses.replace(asked.supply, only_wheels=False))


def _supplies(asked: Question) -> Steps:
    if online := _online(asked):
        yield "run without --offline: an index has a build, the available wheels have none", online


def _python_now(asked: Question) -> str | None:
    return asked.request.python or next(iter(asked.request.pythons), None)


def _any_python(asked: Question) -> Question | None:
    return with_request(asked, python=None, pythons=()) if _python_now(asked) else None


def _pythons(asked: Question) -> Steps:
    """Every Python that any build is made for, nearest to the one asked for first."""
    now = _python_now(asked) or ""
    known = {p for b in asked.profiles.builds for p in b.python} - {now}
    for python in sorted(known, key=lambda p: (abs(_minor(p) - _minor(now)), _minor(p))):
        yield f"use --python {python}", with_request(asked, python=python, pythons=())


def _minor(python: str) -> int:
    return int(python.split(".")[1])


def _any_version(asked: Question) -> Question | None:
    wanted = asked.request.frameworks
    if not any(w.specifier for w in wanted):
        return None
    return with_request(asked, frameworks=tuple(FrameworkRequest(name=w.name) for w in wanted))


def _versions(asked: Question) -> Steps:
    """For one framework after the other, the version nearest to its bounds, an older one first; last
    all of them without bounds."""
    frameworks = asked.request.frameworks
    for i, wanted in enumerate(frameworks):
        for text in _nearest(asked, wanted) if wanted.specifier else ():
            other = FrameworkRequest(name=wanted.name, specifier=f"=={text}")
            changed = (*frameworks[:i], other, *frameworks[i + 1 :])
            yield (
                f"use --framework '{wanted.name}=={text}': the nearest version that fits",
                with_request(asked, frameworks=changed),
            )
    if len(frameworks) > 1:
        names = " ".join(f"--framework {w.name}" for w in frameworks)
        loose = tuple(FrameworkRequest(name=w.name) for w in frameworks)
        yield f"use {names}: without bounds some versions fit", with_request(asked, frameworks=loose)


def _nearest(asked: Question, wanted: FrameworkRequest) -> list[str]:
    """Known versions outside the bounds, by how many versions away from them they are."""
    rows = {b.version for b in asked.profiles.builds if b.framework == wanted.name and not b.yanked}
    known = sorted((v for v in rows if asked.request.pre or not version(v).is_prerelease), key=version)
    inside = [i for i, v in enumerate(known) if meets(v, wanted.specifier)]
    if not inside:  # between two known versions: half a step from either
        named = sorted(version(s.version.removesuffix(".*")) for s in specifiers(wanted.specifier))
        inside_at = [bisect_left([version(v) for v in known], named[0]) - 0.5]
    else:
        inside_at = [float(inside[0]), float(inside[-1])]
    outside = [i for i in range(len(known)) if i not in inside]
    return [known[i] for i in sorted(outside, key=lambda i: (min(abs(i - at) for at in inside_at), i))]


def _any_cuda(asked: Question) -> Question | None:
    return with_request(asked, cuda=None) if asked.request.cuda else None


def _cudas(asked: Question) -> Steps:
    yield "remove --cuda", with_request(asked, cuda=None)


def _any_driver(asked: Question) -> Question | None:
    if asked.target.driver is None or asked.request.device != "cuda":
        return None
    return _with_target(asked, driver=None, driver_cuda=None)


def _drivers(asked: Question) -> Steps:
    """Every driver floor above the present driver, lowest first; below it, highest branch first."""
    driver = asked.target.driver or "0"
    windows = asked.driver_os == "windows"
    rows: tuple[CudaMajor | CudaRelease, ...] = (*asked.profiles.majors, *asked.profiles.cuda)
    floors = {r.windows if windows else r.linux for r in rows}
    floors |= {g.first_driver for g in asked.profiles.gpus}
    floors |= {b.branch for b in asked.profiles.branches}
    for floor in sorted((f for f in floors if f), key=version):
        if version(floor) > version(driver):
            yield f"install driver {floor} or newer", _with_target(asked, driver=floor, driver_cuda=None)
    lasts = {g.last_driver for g in asked.profiles.gpus if g.last_driver}
    for branch in sorted(lasts, key=int, reverse=True):
        if int(branch) < int(major(driver)):
            newest = f"{branch}.999"  # any driver of the branch: the branch is what decides
            yield f"install a driver of branch {branch}", _with_target(asked, driver=newest, driver_cuda=None)


def _any_gpus(asked: Question) -> Question | None:
    if len(asked.target.gpus) < 2 or asked.request.device != "cuda":
        return None
    return _with_target(asked, gpus=())


def _fewer_gpus(asked: Question) -> Steps:
    """One card left out, then one card alone."""
    gpus = asked.target.gpus
    places = range(len(gpus))
    for kept in [[j for j in places if j != i] for i in places] + [[i] for i in places]:
        out = [i for i in places if i not in kept]
        labels = " and ".join(f"{gpus[i].name or gpus[i].capability} (GPU {i})" for i in out)
        yield (
            f"use --gpus {','.join(map(str, kept))}: exclude {labels}",
            _with_target(asked, gpus=tuple(gpus[i] for i in kept)),
        )


def _any_glibc(asked: Question) -> Question | None:
    return _with_target(asked, glibc=None) if asked.target.glibc else None


def _glibcs(asked: Question) -> Steps:
    needed = {b.glibc for b in asked.profiles.builds} | {c.glibc for c in asked.profiles.cudnn}
    for glibc in sorted((g for g in needed if g), key=version):
        if version(glibc) > version(asked.target.glibc or "0"):
            yield f"use a system or container with glibc {glibc} or newer", _with_target(asked, glibc=glibc)


def _on_the_cpu(asked: Question) -> Question | None:
    return with_request(asked, device="cpu") if asked.request.device == "cuda" else None


def _cpu(asked: Question) -> Steps:
    yield "use --device cpu: no GPU build fits", with_request(asked, device="cpu")


def _pre_releases(asked: Question) -> Question | None:
    return None if asked.request.pre else with_request(asked, pre=True)


def _pre(asked: Question) -> Steps:
    yield "use --pre: only a pre-release fits", with_request(asked, pre=True)


def _any_bounds(asked: Question) -> Question | None:
    request = asked.request
    return (
        with_request(asked, bounds=(), requires_python="")
        if request.bounds or request.requires_python
        else None
    )


def _bounds(asked: Question) -> Steps:
    """One line of the project's files left out, then all of one framework's, then all."""
    bounds = asked.request.bounds
    for i, bound in enumerate(bounds):
        said = f"change the bound {bound.name}{bound.specifier} in {bound.origin}"
        yield said, with_request(asked, bounds=bounds[:i] + bounds[i + 1 :])
    if asked.request.requires_python:
        where = asked.request.python_origin or "the project"
        said = f"change the bound Python {asked.request.requires_python} in {where}"
        yield said, with_request(asked, requires_python="")
    places = ", ".join(b.origin for b in bounds)
    yield f"change the bounds in {places}", with_request(asked, bounds=(), requires_python="")


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
