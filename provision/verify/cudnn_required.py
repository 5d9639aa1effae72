"""The cuDNN that is installed, beside the one that each framework was compiled with, by the framework's own wheel."""

from __future__ import annotations

from collections.abc import Sequence

from packaging.requirements import InvalidRequirement, Requirement
from packaging.version import InvalidVersion, Version

from ..model import Environment, Evidence, Finding
from ..profiles.findings import make_finding
from .missing_libraries import make_pip_command
from .read_libraries import CUDNN_PACKAGE, LibraryPackage, read_requirements

_FRAMEWORKS = ("torch", "tensorflow", "jax-cuda12-plugin", "jax-cuda13-plugin", "jax-cuda12-pjrt")


def judge_version(env: Environment, sites: Sequence[str], owners: Sequence[LibraryPackage]) -> Finding | None:
    """Return the finding for a framework that no installed cuDNN serves: it loads only its own major, and refuses an
    older minor than the one it was compiled with. A newer minor serves it."""
    installed = [(p, v) for p in owners if p.is_cudnn and (v := _version(p.version))]
    if not installed:
        return None
    for framework in _FRAMEWORKS:
        needed = next(
            (r for text in read_requirements(sites, framework.replace("-", "_")) if (r := _cudnn(text))), None
        )
        least = _least(needed) if needed else None
        if needed is None or least is None or any(_serves(v, least) for _, v in installed):
            continue
        package, version = max(installed, key=lambda row: row[1])
        return _finding(env, sites, framework, needed, package, other=version.major != least.major)
    return None


def _cudnn(text: str) -> Requirement | None:
    try:
        requirement = Requirement(text)
    except InvalidRequirement:
        return None
    return requirement if CUDNN_PACKAGE.match(requirement.name.lower()) else None


def _version(text: str) -> Version | None:
    try:
        return Version(text)
    except InvalidVersion:
        return None


def _least(requirement: Requirement) -> Version | None:
    """Return the oldest cuDNN that a requirement allows: its pin, or its lower bound."""
    bounds = [s.version.removesuffix(".*") for s in requirement.specifier if s.operator in ("==", ">=", "~=")]
    return max((v for bound in bounds if (v := _version(bound))), default=None)


def _serves(version: Version, least: Version) -> bool:
    """Whether a framework compiled with `least` takes a cuDNN: same major, at least its minor."""
    return version.major == least.major and version.minor >= least.minor


def _finding(
    env: Environment,
    sites: Sequence[str],
    framework: str,
    needed: Requirement,
    package: LibraryPackage,
    *,
    other: bool,
) -> Finding:
    wanted = f"{needed.name}{needed.specifier}"
    return make_finding(
        "cudnn_other_major" if other else "cudnn_older",
        (
            Evidence(text=f"{framework} requires {wanted}", source="METADATA"),
            Evidence(text=f"{package.name} {package.version} is installed", source=package.files[0].path),
        ),
        confidence="certain",
        package=f"{package.name} {package.version}",
        framework=framework,
        required=needed.specifier,
        command=make_pip_command(env, sites, [wanted]),
    )
