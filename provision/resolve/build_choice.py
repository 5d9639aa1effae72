"""Sort candidate builds by preference, and choose a compatible set."""

from __future__ import annotations

from collections.abc import Iterable

from ..model import Build, FrameworkRequest, RejectionReason
from .available_wheels_and_cudnn import local_builds, missing, share_cudnn
from .objections import fits
from .pin_builds_and_find_conflicts import conflict
from .question import Question
from .versions import major, version

_INDEX_ORDER = {"find-links": 0, "pypi": 1, "pytorch": 2}


def candidates(question: Question, wanted: FrameworkRequest) -> list[Build]:
    """Return the builds of a framework for the platform, best first."""
    return in_order(question, _on_platform(question, wanted))


def _on_platform(question: Question, wanted: FrameworkRequest) -> list[Build]:
    """Return the builds of a framework for the platform, unsorted."""
    of_framework = [b for b in question.profiles.builds if b.framework == wanted.name]
    here = [b for b in of_framework if b.platform == question.target.platform]
    here += local_builds(question.supply, wanted.name, question.target.platform, here)
    if question.request.device == "cuda":
        # A CPU build is reported only if the version has no CUDA build for the platform.
        with_cuda = {b.version for b in here if b.cuda}
        here = [b for b in here if b.cuda or (b.version not in with_cuda and b.index == "pypi")]
    return here


def in_order(question: Question, builds: Iterable[Build]) -> list[Build]:
    """Return builds of one framework in order of preference."""
    every = list(builds)
    by_age = {v: i for i, v in enumerate(sorted({b.version for b in every}, key=version, reverse=True))}
    return sorted(every, key=lambda b: _rank(question, b, by_age[b.version]))


def _rank(question: Question, build: Build, age: int) -> tuple[object, ...]:
    """Return the sort key, smallest first. `age` is the number of newer versions."""
    index = _INDEX_ORDER[build.index]
    if question.request.device == "cpu":
        return (build.cuda is not None, age, index)
    cuda = version(build.cuda) if build.cuda else version("0")
    native = all(q.speaks is None or cuda <= version(q.speaks) for q in (question, *question.others))
    return (age, not native, tuple(-n for n in cuda.release), index)


def opens(question: Question) -> bool:
    """Return whether any builds answer the question. This is faster than `resolve`, because builds are not
    sorted."""
    frameworks = question.request.frameworks
    fitting = ((b for b in _on_platform(question, w) if fits(question, w, b)) for w in frameworks)
    if len(frameworks) == 1:
        return any(_common_python(question, [build]) for build in next(fitting))
    chosen, python = fit(question, [], [list(builds) for builds in fitting])
    return bool(chosen and python)


def clash(
    question: Question, build: Build, before: list[Build], others: list[list[Build]]
) -> RejectionReason:
    """Return why a build without own objections was passed over.

    That is a conflict with an already chosen build, otherwise a framework without a compatible build.
    """
    if reason := against(question, before, build):
        return reason
    for chain in others:
        reasons = [against(question, [other], build) for other in chain]
        if reasons and all(reasons) and (first := reasons[0]):
            return first
    names = ", ".join(dict.fromkeys(c[0].framework for c in others if c)) or "any other framework"
    return RejectionReason(
        code="library_conflict", text=f"is not compatible with any set of builds of {names}"
    )


def fit(question: Question, taken: list[Build], rest: list[list[Build]]) -> tuple[list[Build], str | None]:
    """Return the first compatible builds, one of each remaining chain, and their Python.

    A build that is incompatible with a whole later chain is skipped at once. So three frameworks cost little
    more than two.
    """
    if not rest:
        return (taken, _common_python(question, taken)) if taken else ([], None)
    for build in rest[0]:
        if against(question, taken, build):
            continue
        later = [[o for o in chain if not against(question, [build], o)] for chain in rest[1:]]
        if all(later):
            chosen, python = fit(question, [*taken, build], later)
            if chosen:
                return chosen, python
    return [], None


def against(question: Question, taken: list[Build], build: Build) -> RejectionReason | None:
    """Return why a build cannot join the taken ones, or None if it can."""
    for other in taken:
        cuda, theirs = build.cuda, other.cuda
        if question.request.device == "cuda" and cuda and theirs and major(cuda) != major(theirs):
            return RejectionReason(
                code="cuda_conflict",
                text=f"is built for CUDA {major(cuda)}; {other.framework} {other.version} for {major(theirs)}",
            )
        if why := conflict(other, build):
            return RejectionReason(code="library_conflict", text=why)
        if question.request.device == "cuda" and not share_cudnn(question, other, build):
            text = (
                f"requires cuDNN {build.cudnn}, and {other.framework} {other.version} requires {other.cudnn}: "
                "neither cuDNN supports these GPUs"
            )
            return RejectionReason(code="library_conflict", text=text)
    if taken and _common_python(question, [*taken, build]) is None:
        served = f"{build.python[0]} to {build.python[-1]}"
        return RejectionReason(
            code="python_unsupported",
            text=f"has wheels for Python {served}; {taken[0].framework} has none for these Python versions",
        )
    return None


def _common_python(question: Question, builds: list[Build]) -> str | None:
    for python in question.pythons(builds[0]):
        if all(python in question.pythons(b) for b in builds) and all(
            not question.supply.only_wheels
            or missing(question.supply, b, python, question.oldest_glibc) is None
            for b in builds
        ):
            return python
    return None
