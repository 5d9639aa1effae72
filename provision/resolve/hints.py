"""Find the smallest change of a request, a target or a source that would make a build fit."""

from __future__ import annotations

import dataclasses
from bisect import bisect_left
from collections.abc import Callable, Iterator
from itertools import combinations
from typing import NamedTuple

from ..model import FrameworkRequest, Plan, Target, VersionBound, requirement_name
from ..system.versions import major, meets, specifiers, version
from .choice import has_builds
from .question import Question
from .toolkit import NVCC, asks_for_nvcc

Steps = Iterator[tuple[str, Question]]


class Axis(NamedTuple):
    """One constraint that can be changed: how to remove it, and its steps.

    A question that has no such constraint stays as it is. A sentence in place of steps says that the removal is the
    only one.
    """

    free: Callable[[Question], Question]
    steps: Callable[[Question], Steps] | str

    def binds(self, question: Question) -> bool:
        return self.free(question) != question

    def changes(self, question: Question) -> Steps:
        """Yield the changes of the question on this axis, the nearest first."""
        if not isinstance(self.steps, str):
            yield from self.steps(question)
        elif self.binds(question):
            yield self.steps, self.free(question)


def change_request(question: Question, **changes: object) -> Question:
    request = dataclasses.replace(question.request, **changes)  # type: ignore[arg-type]  # fields of Request
    return question.replace(request=request)


def _change_target(question: Question, **changes: object) -> Question:
    target: Target = dataclasses.replace(question.target, **changes)  # type: ignore[arg-type]  # fields of Target
    return question.replace(target=target)


def _pythons(question: Question) -> Steps:
    """Yield every Python of a known build, the nearest to the requested one first."""
    now = question.request.python or next(iter(question.request.pythons), "")
    known = {p for b in question.profiles.builds for p in b.python} - {now}
    for python in sorted(known, key=lambda p: (abs(_minor(p) - _minor(now)), _minor(p))):
        yield f"use --python {python}", change_request(question, python=python, pythons=())


def _minor(python: str) -> int:
    return int(python.rstrip("t").split(".")[1])


def _loosen(question: Question) -> Question:
    """Return the question on any version of its frameworks."""
    loose = tuple(FrameworkRequest(name=w.name) for w in question.request.frameworks)
    return change_request(question, frameworks=loose)


def _versions(question: Question) -> Steps:
    """Yield for each framework the versions nearest to its bounds, older ones first; last all without bounds."""
    frameworks = question.request.frameworks
    for i, wanted in enumerate(frameworks):
        for text in _list_nearest(question, wanted) if wanted.specifier else ():
            other = FrameworkRequest(name=wanted.name, specifier=f"=={text}")
            changed = (*frameworks[:i], other, *frameworks[i + 1 :])
            how = f"use --framework '{wanted.name}=={text}'"
            if file := question.request.file:
                how = f"change {wanted.name}{wanted.specifier} in {file} to {wanted.name}=={text}"
            yield f"{how}: the nearest version that fits", change_request(question, frameworks=changed)
    if len(frameworks) > 1:
        names = " ".join(f"--framework {w.name}" for w in frameworks)
        yield f"use {names}: without bounds some versions fit", _loosen(question)


def _list_nearest(question: Question, wanted: FrameworkRequest | VersionBound) -> list[str]:
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


def _cudas(question: Question) -> Steps:
    """Yield the request without --cuda, and name the CUDA versions that have a build which fits."""
    names = {w.name for w in question.request.frameworks}
    known = {b.cuda for b in question.profiles.builds if b.framework in names and b.cuda}
    fitting = [c for c in sorted(known, key=version) if has_builds(change_request(question, cuda=c))]
    others = f", or use one of {', '.join(fitting)}" if fitting else ""
    here = f" (or cuda in {question.request.file})" if question.request.file else ""
    yield f"remove --cuda{here}{others}", change_request(question, cuda=None)


def _drivers(question: Question) -> Steps:
    """Yield driver floors above the installed driver, lowest first, then branches below, highest first."""
    driver = question.target.driver or "0"
    floors = question.profiles.list_driver_floors(windows=question.driver_os == "windows")
    floors |= {g.first_driver for g in question.profiles.gpus if g.first_driver}
    floors |= {b.branch for b in question.profiles.branches}
    capabilities = {g.capability for g in question.target.gpus}
    ends = [g.last_driver for g in question.profiles.gpus if g.capability in capabilities and g.last_driver]
    end = f", up to branch {min(ends, key=int)}" if ends else ""
    for floor in sorted(floors, key=version):
        if version(floor) > version(driver):
            yield (
                f"install driver {floor} or newer{end}",
                _change_target(question, driver=floor, driver_cuda=None),
            )
    lasts = {g.last_driver for g in question.profiles.gpus if g.last_driver}
    for branch in sorted(lasts, key=int, reverse=True):
        if int(branch) < int(major(driver)):
            newest = f"{branch}.999"  # stands for any driver of the branch
            yield (
                f"install a driver of branch {branch}",
                _change_target(question, driver=newest, driver_cuda=None),
            )


def _fewer_gpus(question: Question) -> Steps:
    """Yield targets without one GPU, then with only one GPU."""
    gpus = question.target.gpus
    places = range(len(gpus))
    for kept in [[j for j in places if j != i] for i in places] + [[i] for i in places]:
        out = [i for i in places if i not in kept]
        labels = " and ".join(f"{gpus[i].name or gpus[i].capability} (GPU {i})" for i in out)
        yield (
            f"use --gpus {','.join(map(str, kept))}: exclude {labels}",
            _change_target(question, gpus=tuple(gpus[i] for i in kept)),
        )


def _glibcs(question: Question) -> Steps:
    needed = {b.glibc for b in question.profiles.builds} | {c.glibc for c in question.profiles.cudnn}
    for glibc in sorted((g for g in needed if g), key=version):
        if version(glibc) > version(question.target.glibc or "0"):
            yield (
                f"use a system or container with glibc {glibc} or newer",
                _change_target(question, glibc=glibc),
            )


def _bounds(question: Question) -> Steps:
    """Yield requests without one line of the project's files, then without all."""
    bounds = question.request.bounds
    for i, bound in enumerate(bounds):
        text = f"change the bound {bound.name}{bound.specifier} in {bound.origin}"
        known = {b.version for b in question.profiles.builds if b.framework == bound.name}
        if not any(meets(v, bound.specifier) for v in known):
            for near in _list_nearest(question, bound):
                other = dataclasses.replace(bound, specifier=f"=={near}")
                changed = (*bounds[:i], other, *bounds[i + 1 :])
                yield (
                    f"{text} to =={near}: the nearest version that fits",
                    change_request(question, bounds=changed),
                )
        yield text, change_request(question, bounds=bounds[:i] + bounds[i + 1 :])
    if question.request.requires_python:
        where = question.request.python_origin or "the project"
        text = f"change the bound Python {question.request.requires_python} in {where}"
        yield text, change_request(question, requires_python="")
    places = ", ".join(b.origin for b in bounds)
    yield f"change the bounds in {places}", change_request(question, bounds=(), requires_python="")


_AXES = (
    Axis(lambda q: change_request(q, index="auto"), "use --index auto: another index has a build"),
    Axis(
        lambda q: q.replace(available=dataclasses.replace(q.available, only_wheels=False)),
        "run without --offline, because an index has a build, or add a folder that has it: --find-links DIR",
    ),
    Axis(lambda q: change_request(q, python=None, pythons=()), _pythons),
    Axis(lambda q: change_request(q, pre=True), "use --pre: only a pre-release fits"),
    Axis(lambda q: change_request(q, bounds=(), requires_python=""), _bounds),
    Axis(_loosen, _versions),
    Axis(lambda q: change_request(q, cuda=None), _cudas),
    Axis(lambda q: _change_target(q, driver=None, driver_cuda=None) if q.target.driver else q, _drivers),
    Axis(lambda q: _change_target(q, gpus=()) if len(q.target.gpus) > 1 else q, _fewer_gpus),
    Axis(lambda q: _change_target(q, glibc=None), _glibcs),
)
_CPU = Axis(lambda q: change_request(q, device="cpu"), "use --device cpu: no GPU build fits")


_MOST_AXES = 3  # more changes than this are not a useful hint


def hint_for(question: Question, plan: Plan) -> str | None:
    """Return the fewest and nearest changes under which a build fits, cheapest for the user first, or None.

    `plan` is the empty plan.
    """
    parts = [*_newer_than_known(question), *_suggest_split(question, plan), *_suggest_without_nvcc(question)]
    if change := _smallest_change(question):
        parts.append(change)
    return "; or ".join(parts) or None


def _smallest_change(question: Question) -> str | None:
    """Return the smallest change. A change to the CPU is suggested only if nothing else helps."""
    binding = [axis for axis in _AXES if axis.binds(question)]
    last = [_CPU] if _CPU.binds(question) else []
    for needed in ([], last) if last else ([],):
        for count in range(_MOST_AXES + 1):
            for axes in combinations(binding, count):
                if (axes or needed) and (sentence := _choose_steps(question, (*axes, *needed))):
                    return sentence
    return None


def _choose_steps(question: Question, axes: tuple[Axis, ...]) -> str | None:
    """Return the first step on each axis that allows a build while the later axes are free."""
    if not has_builds(_free_axes(question, axes)):
        return None
    now, sentences = question, []
    for i, axis in enumerate(axes):
        for sentence, changed in axis.changes(now):
            if has_builds(_free_axes(changed, axes[i + 1 :])):
                now = changed
                sentences.append(sentence)
                break
        else:
            return None
    return ", and ".join(sentences)


def _free_axes(question: Question, axes: tuple[Axis, ...]) -> Question:
    for axis in axes:
        question = axis.free(question)
    return question


# --- hints that are not steps -------------------------------------------------------------


def _newer_than_known(question: Question) -> Iterator[str]:
    """Yield a hint to update the profiles if the requested version is newer than all their rows."""
    for wanted in question.request.frameworks:
        known = {b.version for b in question.profiles.builds if b.framework == wanted.name}
        newest = max(known, key=version, default=None)
        if newest is None or any(meets(v, wanted.specifier) for v in known):
            continue
        named = [s.version.removesuffix(".*") for s in specifiers(wanted.specifier) if s.operator != "!="]
        if any(version(v) > version(newest) for v in named):
            yield (
                f"run gpuenv profiles update: {wanted.name}{wanted.specifier} is newer than "
                f"{newest}, the newest that gpuenv knows"
            )


def _suggest_without_nvcc(question: Question) -> Iterator[str]:
    """Yield a hint to get nvcc from elsewhere if no wheel has it for the CUDA of any build."""
    if asks_for_nvcc(question):
        others = tuple(p for p in question.request.packages if requirement_name(p) != NVCC)
        if has_builds(change_request(question, packages=others)):
            yield "remove nvcc and install the system's CUDA toolkit, or use --manager conda --with cuda-nvcc"


def _suggest_split(question: Question, plan: Plan) -> Iterator[str]:
    """Yield a hint to create one environment for each framework if they conflict but fit alone."""
    frameworks = question.request.frameworks
    if len(frameworks) < 2 or any(
        not has_builds(change_request(question, frameworks=(wanted,))) for wanted in frameworks
    ):
        return
    reasons = [
        (r, reason) for r in plan.rejected for reason in r.reasons
        if reason.code in ("library_conflict", "cuda_conflict", "python_unsupported")
    ]  # fmt: skip
    shown = [(r, why) for r, why in reasons if why.code == "library_conflict"][-1:] or reasons[:1]
    clash = "".join(f" ({r.framework} {r.version} {why.text})" for r, why in shown)
    each = " and ".join(f"one with --framework '{w.name}{w.specifier}'" for w in frameworks)
    yield f"create two environments{clash}: {each}".replace("two", str(len(frameworks)), len(frameworks) > 2)
