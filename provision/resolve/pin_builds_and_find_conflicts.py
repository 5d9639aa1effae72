"""Pin the packages of chosen builds, and find library conflicts between two builds."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

from packaging.requirements import Requirement

from ..model import Build, PlannedBuild, ToolkitRelease
from .available_wheels_and_cudnn import carries_cudnn, cudnn_choice, wheels_for
from .question import Question
from .versions import is_exact, major, meets, version

_CUBLAS = re.compile(r"nvidia-cublas(-cu\d+)?")


def planned(question: Question, chosen: list[Build], python: str) -> tuple[PlannedBuild, ...]:
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
            pins += [*build.requires, *_cudnn_pin(build, cudnn)]
            pins += _toolkit_pin(question, build, chosen, python)
        else:
            # On the CPU no NVIDIA package is pinned. Those that a wheel requires are installed anyway.
            pins += [r for r in build.requires if not r.startswith(("nvidia-", "cuda-", "tensorrt"))]
        builds.append(
            PlannedBuild(
                framework=build.framework,
                version=build.version,
                cuda=build.cuda,
                index="find-links" if question.supply.only_wheels else build.index,
                requirements=tuple(dict.fromkeys(pins)),
                cudnn=cudnn if build.cuda and question.request.device == "cuda" else None,
            )
        )
    return tuple(builds)


def _shared_cudnn(question: Question, chosen: list[Build]) -> str | None:
    """Return one cuDNN for all builds: an exact pin, otherwise the newest that every build allows."""
    with_cudnn = [b for b in chosen if b.cuda and b.cudnn]
    if not with_cudnn:
        return None
    exact = [b for b in with_cudnn if is_exact(b.cudnn or "")]
    if exact:
        return (exact[0].cudnn or "").lstrip("=")
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
    if _pins_toolkit(build):
        return []
    for toolkit in toolkits(question, chosen):
        parts = toolkit_parts(toolkit)
        extras = sorted({parts[name][0] for name in parts if _brings(build, name)})
        if extras and _toolkit_at_hand(question, build, python, toolkit.version):
            return [f"cuda-toolkit[{','.join(extras)}]=={toolkit.version}"]
    return []


def _brings(build: Build, part: str) -> bool:
    """Return whether a build or its cuDNN requires a part of the toolkit.

    cuDNN requires cuBLAS in any release of its major.
    """
    return part in _needs(build.requires) or (
        _CUBLAS.fullmatch(part) is not None and _cudnn_package(build) is not None
    )


def toolkits(question: Question, chosen: list[Build]) -> Iterator[ToolkitRelease]:
    """Yield the toolkit releases that meet the bounds of all builds.

    First are the newest of the CUDA minor that the newest build was made with, because libraries support
    programs of an older minor. Then come the nearest later minors. A wheel can require more than the release
    that it was built with has.
    """
    built = max((b.cuda for b in chosen if b.cuda), key=version)
    minors: dict[str, list[ToolkitRelease]] = {}
    for release in question.profiles.toolkits:
        minor = ".".join(release.version.split(".")[:2])
        if major(minor) == major(built) and version(minor) >= version(built):
            minors.setdefault(minor, []).append(release)
    for minor in sorted(minors, key=version):
        for release in sorted(minors[minor], key=lambda r: version(r.version), reverse=True):
            parts = toolkit_parts(release)
            needs = [pair for b in chosen for pair in _needs(b.requires).items() if pair[0] in parts]
            if all(_overlap(bounds, parts[name][1]) for name, bounds in needs):
                yield release


@cache
def toolkit_parts(toolkit: ToolkitRelease) -> dict[str, tuple[str, str]]:
    """Return for each package the extra with the fewest other packages, and the bounds."""
    parts: dict[str, tuple[str, str]] = {}
    for part in sorted(toolkit.parts, key=lambda p: p.count(" ")):
        extra, *texts = part.split(" ")
        for need in map(Requirement, texts):
            parts.setdefault(need.name, (extra, str(need.specifier)))
    return parts


def _toolkit_at_hand(question: Question, build: Build, python: str, release: str) -> bool:
    if not question.supply.only_wheels:
        return True
    wheels = wheels_for(question.supply, "cuda-toolkit", python, build.platform, question.oldest_glibc)
    return any(w.version == release for w in wheels)


def _pins_toolkit(build: Build) -> bool:
    """Return whether a wheel pins its libraries exactly. All wheels that pin cuDNN exactly do."""
    return any(is_exact(str(n.specifier)) for n in map(Requirement, build.requires) if "cudnn" in n.name)


def toolkit_note(question: Question, build: Build) -> Iterator[str]:
    """Yield a warning if a wheel pins a cuDNN with a known public issue."""
    for text in build.requires:
        need = Requirement(text)
        for spec in need.specifier:
            bad = question.bad.get((need.name, spec.version)) if spec.operator == "==" else None
            if bad:
                yield f"{build.framework} {build.version} pins {need.name} {spec.version}: {bad.why} ({bad.source})"


def conflict(one: Build, other: Build) -> str | None:
    """Return why `other` cannot be installed with `one`, or None.

    It is the first package without a common version, or two copies of cuDNN, one inside a wheel and one as a
    package. The sentence leaves out the name of `other`.
    """
    other_needs, needs = _needs(one.requires), _needs(other.requires)
    for name, bounds in needs.items():
        if name in other_needs and not _overlap(bounds, other_needs[name]):
            return f"needs {name}{bounds}; {_called(one)} needs {other_needs[name]}"
    if _brings_cudnn(one) and (package := _cudnn_package(other)):
        return (
            f"needs {package}; {_called(one)} contains cuDNN {(one.cudnn or '').lstrip('=')} inside its wheel"
        )
    if _brings_cudnn(other) and (package := _cudnn_package(one)):
        return f"contains cuDNN {(other.cudnn or '').lstrip('=')} inside its wheel; {_called(one)} needs {package}"
    return None


def _called(build: Build) -> str:
    return f"{build.framework} {build.version}"


def _brings_cudnn(build: Build) -> bool:
    return bool(build.local and build.cudnn) and carries_cudnn(build)


def _cudnn_package(build: Build) -> str | None:
    return next((n for n in _needs(build.requires) if n.startswith("nvidia-cudnn")), None)


@cache
def _needs(requires: tuple[str, ...]) -> dict[str, str]:
    """Return the bounds of each package."""
    return {n.name: str(n.specifier) for n in map(Requirement, requires)}


@cache
def _overlap(a: str, b: str) -> bool:
    """Return whether two sets of bounds can both be met, tested with every version that they name."""
    named = [s.rstrip(".*") for s in _versions(a) + _versions(b)]
    return not named or any(meets(v, a) and meets(v, b) for v in named)


def _versions(bounds: str) -> list[str]:
    return [part.lstrip("=<>!~ ") for part in bounds.split(",") if part]
