"""Sort candidate builds by preference, choose a compatible set, and pin it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import partial

from packaging.requirements import Requirement

from ..index.wheel_names import applies
from ..model import Build, FrameworkRequest, PlannedBuild, RejectionReason
from ..model.values import Value
from ..system.versions import exact, is_exact, major, overlap, version
from .available import cudnn_choice, cudnn_package, find_missing, local_builds, share_cudnn, wheels_for
from .objections import fits
from .question import Question
from .toolkit import bounds_of, toolkit_parts, toolkits

_CUBLAS = re.compile(r"nvidia-cublas(-cu\d+)?")
_INDEX_ORDER = {"find-links": 0, "pypi": 1, "pytorch": 2}


def candidates(question: Question, wanted: FrameworkRequest) -> list[Build]:
    """Return the builds of a framework for the platform, best first."""
    return sort_builds(question, _on_platform(question, wanted))


def _on_platform(question: Question, wanted: FrameworkRequest) -> list[Build]:
    """Return the builds of a framework for the platform, unsorted."""
    of_framework = [b for b in question.profiles.builds if b.framework == wanted.name]
    here = [b for b in of_framework if b.platform == question.target.platform]
    here += local_builds(question, wanted.name, here)
    if question.request.device == "cuda":
        # A CPU build is reported only if the version has no CUDA build for the platform.
        with_cuda = {b.version for b in here if b.cuda}
        here = [
            b for b in here
            if b.cuda or b.variant or (b.version not in with_cuda and b.index == "pypi")
        ]  # fmt: skip
    return here


def sort_builds(question: Question, builds: Iterable[Build]) -> list[Build]:
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
    native = all(q.driver_cuda is None or cuda <= version(q.driver_cuda) for q in question.per_target)
    return (age, not native, tuple(-n for n in cuda.release), index)


def has_builds(question: Question) -> bool:
    """Return whether any builds answer the question. This is faster than `resolve`, because builds are not
    sorted."""
    frameworks = question.request.frameworks
    fitting = ((b for b in _on_platform(question, w) if fits(question, w, b)) for w in frameworks)
    if len(frameworks) == 1:
        return any(_common_python(question, [build]) for build in next(fitting))
    chosen, python = choose_compatible(question, [], [list(builds) for builds in fitting])
    return bool(chosen and python)


class SolvedBuilds(Value, kw_only=False):
    """The builds that a solve chose. `pins` are the releases of named packages, and `passed` says why other builds that fit
    were not chosen: without it the packages conflict with them."""

    builds: tuple[Build, ...]
    pins: tuple[str, ...] = ()
    passed: tuple[tuple[Build, str], ...] = ()


def explain_passed_over(
    question: Question, build: Build, before: list[Build], others: list[list[Build]]
) -> RejectionReason:
    """Return why a build without own objections was passed over.

    That is a conflict with an already chosen build, otherwise a framework without a compatible build.
    """
    if reason := find_objection(question, before, build):
        return reason
    for chain in others:
        reasons = [find_objection(question, [other], build) for other in chain]
        if reasons and all(reasons) and (first := reasons[0]):
            return first
    if not all(others):
        return RejectionReason("library_conflict", "another framework has no build that fits")
    names = ", ".join(dict.fromkeys(c[0].framework for c in others))
    return RejectionReason("library_conflict", f"is not compatible with any set of builds of {names}")


def choose_compatible(
    question: Question, taken: list[Build], rest: list[list[Build]]
) -> tuple[list[Build], str | None]:
    """Return the first compatible builds, one of each remaining chain, and their Python.

    A build that is incompatible with a whole later chain is skipped at once. So three frameworks cost little
    more than two.
    """
    if not rest:
        return (taken, _common_python(question, taken)) if taken else ([], None)
    for build in rest[0]:
        if find_objection(question, taken, build):
            continue
        later = [[o for o in chain if not find_objection(question, [build], o)] for chain in rest[1:]]
        if all(later):
            chosen, python = choose_compatible(question, [*taken, build], later)
            if chosen:
                return chosen, python
    return [], None


def find_objection(question: Question, taken: list[Build], build: Build) -> RejectionReason | None:
    """Return why a build cannot join the taken ones, or None if it can."""
    for other in taken:
        cuda, theirs = build.cuda, other.cuda
        if question.request.device == "cuda" and cuda and theirs and major(cuda) != major(theirs):
            return RejectionReason(
                "cuda_conflict",
                f"is built for CUDA {major(cuda)}; {other.framework} {other.version} for {major(theirs)}",
            )
        if why := find_conflict(other, build):
            return RejectionReason("library_conflict", why)
        if question.request.device == "cuda" and not share_cudnn(question, other, build):
            text = (
                f"requires cuDNN {build.cudnn}, and {other.framework} {other.version} requires {other.cudnn}: "
                "neither cuDNN supports these GPUs"
            )
            return RejectionReason("library_conflict", text)
    if taken and _common_python(question, [*taken, build]) is None:
        served = f"{build.python[0]} to {build.python[-1]}"
        return RejectionReason(
            "python_unsupported",
            f"has wheels for Python {served}; {taken[0].framework} has none for these Python versions",
        )
    return None


def _common_python(question: Question, builds: list[Build]) -> str | None:
    for python in question.pythons(builds[0]):
        if all(python in question.pythons(b) for b in builds) and all(
            not question.available.only_wheels or find_missing(question, b, python) is None for b in builds
        ):
            return python
    return None


# --- the pins of chosen builds ---------------------------------------------------------


def plan_builds(question: Question, chosen: list[Build], python: str) -> tuple[PlannedBuild, ...]:
    """Return the chosen builds with their pins.

    The framework is pinned with `===`, cuDNN to one release for all builds, and loose requirements to the
    plan's CUDA minor.
    """
    cudnn = _shared_cudnn(question, chosen)
    builds = []
    for build in chosen:
        local = f"+{build.local}" if build.local else ""
        pins = [f"{build.package_name}==={build.version}{local}"]
        if build.cuda and question.request.device == "cuda":
            pins += [*filter(partial(_applies, python=python), build.requires), *_cudnn_pin(build, cudnn)]
            pins += _toolkit_pin(question, build, chosen, python)
        else:
            # On the CPU no NVIDIA package is pinned. Those that a wheel requires are installed anyway.
            pins += [r for r in build.requires if not r.startswith(("nvidia-", "cuda-", "tensorrt"))]
        builds.append(
            PlannedBuild(
                framework=build.framework,
                version=build.version,
                cuda=build.cuda,
                index="find-links" if question.available.only_wheels else build.index,
                requirements=tuple(dict.fromkeys(pins)),
                cudnn=cudnn if build.cuda and question.request.device == "cuda" else None,
            )
        )
    return tuple(builds)


def is_planned(build: Build, planned: PlannedBuild) -> bool:
    """Return whether a build is the one of a plan, whose wheels may be those of a folder."""
    same = (build.framework, build.version, build.cuda) == (planned.framework, planned.version, planned.cuda)
    return same and planned.index in (build.index, "find-links")


def _applies(requirement: str, python: str) -> bool:
    """Return whether a requirement has no marker, or one that is true for a Python."""
    known = {"python_version": python, "python_full_version": f"{python}.0"}
    return applies(Requirement(requirement).marker, known)


def _shared_cudnn(question: Question, chosen: list[Build]) -> str | None:
    """Return one cuDNN for all builds: an exact pin, otherwise the newest that every build allows."""
    with_cudnn = [b for b in chosen if b.cuda and b.cudnn]
    if not with_cudnn:
        return None
    if pinned := next(filter(None, (exact(b.cudnn or "") for b in with_cudnn)), None):
        return pinned
    release, _ = cudnn_choice(question, with_cudnn[0], with_cudnn[1:])
    return release.version if release else None


def _cudnn_pin(build: Build, cudnn: str | None) -> list[str]:
    needs = [Requirement(r) for r in build.requires if r.startswith("nvidia-cudnn")]
    return [f"{n.name}==={cudnn}" for n in needs if cudnn and not is_exact(str(n.specifier))]


def _toolkit_pin(question: Question, build: Build, chosen: list[Build], python: str) -> list[str]:
    """Pin loose runtime wheels to one CUDA release through NVIDIA's `cuda-toolkit` package.

    That package pins every part. Parts of different releases are not always compatible: cuSPARSE of 12.9 does
    not load beside nvJitLink of 12.5.
    """
    # All wheels that pin cuDNN exactly pin the other libraries too.
    if any(is_exact(str(n.specifier)) for n in map(Requirement, build.requires) if "cudnn" in n.name):
        return []
    for toolkit in toolkits(question, chosen):
        parts = toolkit_parts(toolkit)
        extras = sorted({parts[name][0] for name in parts if _requires_part(build, name)})
        wheels = wheels_for(question, "cuda-toolkit", python)
        at_hand = not question.available.only_wheels or any(w.version == toolkit.version for w in wheels)
        if extras and at_hand:
            return [f"cuda-toolkit[{','.join(extras)}]=={toolkit.version}"]
    return []


def _requires_part(build: Build, part: str) -> bool:
    """Return whether a build or its cuDNN requires a part of the toolkit.

    cuDNN requires cuBLAS in any release of its major.
    """
    return part in bounds_of(build.requires) or (
        _CUBLAS.fullmatch(part) is not None and cudnn_package(build) is not None
    )


def toolkit_note(question: Question, build: Build) -> Iterator[str]:
    """Yield a warning if a wheel pins a library with a known public issue."""
    for bad in question.list_pinned_bad(build):
        yield f"{build.framework} {build.version} pins {bad.package} {bad.version}: {bad.why} ({bad.source})"


def find_conflict(one: Build, other: Build) -> str | None:
    """Return why `other` cannot be installed with `one`, or None.

    It is the first package without a common version, or two copies of cuDNN, one inside a wheel and one as a
    package. The sentence leaves out the name of `other`.
    """
    other_needs, needs = bounds_of(one.requires), bounds_of(other.requires)
    for name, bounds in needs.items():
        if name in other_needs and not overlap(bounds, other_needs[name]):
            return f"needs {name}{bounds}; {_name_build(one)} needs {other_needs[name]}"
    if _brings_cudnn(one) and (package := cudnn_package(other)):
        return f"needs {package}; {_name_build(one)} contains cuDNN {(one.cudnn or '').lstrip('=')} inside its wheel"
    if _brings_cudnn(other) and (package := cudnn_package(one)):
        return f"contains cuDNN {(other.cudnn or '').lstrip('=')} inside its wheel; {_name_build(one)} needs {package}"
    return None


def _name_build(build: Build) -> str:
    return f"{build.framework} {build.version}"


def _brings_cudnn(build: Build) -> bool:
    return bool(build.local and build.cudnn) and not cudnn_package(build)
