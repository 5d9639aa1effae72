"""What of the requirements belongs to the stack that the plan decides, and what is left to the solver; whether a
marker holds for a target of which not everything is known."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from packaging.markers import Marker

from provision.errors import UsageError
from provision.model import (
    FRAMEWORK_ALIASES,
    FRAMEWORKS,
    RequirementLine,
    VersionBound,
    is_build_package,
    normalize_name,
)

from ..quoted_text import shown
from .requirement import Parsed, file_parts

# Labels of builds, as torchvision 0.20.1+cu124 has one. The plan picks among builds of one version.
_BUILD_LABEL = re.compile(r"(cpu|cu\d+|cuda\d+|rocm[\d.]+|xpu)([._-].*)?")
# Extras of frameworks that only choose a build or its NVIDIA packages
_BUILD_EXTRA = re.compile(r"(and-)?cuda.*|cudnn.*|cpu|gpu|tpu|rocm.*|minimum-jaxlib|.*-cuda|.*cudnn.*")


@dataclass(kw_only=True, slots=True)
class Sorted:
    """The requirements, sorted. `left_out` are sentences, `stack` the lines on packages of the plan."""

    frameworks: dict[str, None] = field(default_factory=dict)
    bounds: list[VersionBound] = field(default_factory=list)
    needs: dict[RequirementLine, None] = field(default_factory=dict)
    left_out: dict[str, None] = field(default_factory=dict)
    folders: list[str] = field(default_factory=list)
    stack: list[RequirementLine] = field(default_factory=list)


def sort(found: Iterable[Parsed], stack: frozenset[str], markers: Mapping[str, str]) -> Sorted:
    """Frameworks with their bounds, what goes with them, and the rest. Raises UsageError for a framework
    from where no plan can be made."""
    from packaging.utils import canonicalize_name

    result = Sorted()
    jaxlib: list[Parsed] = []
    for one in found:
        name = canonicalize_name(one.name) if one.name else None
        if name == "jaxlib":
            if may_hold(one.marker, markers):
                jaxlib.append(one)
        elif name in FRAMEWORKS or name in FRAMEWORK_ALIASES:
            if may_hold(one.marker, markers):
                _framework(result, one, FRAMEWORK_ALIASES.get(name or "", name or ""), named=name or "")
        elif name and (name in stack or is_build_package(name)):
            result.left_out[f"{_short(one)} ({one.line.origin}) is left to the plan"] = None
            if not (one.line.constraint or one.url) and may_hold(one.marker, markers):
                result.stack.append(one.need())
        else:
            specifier = _without_builds(result, one) if name else one.specifier
            result.needs[_with(one, specifier).need()] = None
    _jaxlib(result, jaxlib)
    return result


def _with(one: Parsed, specifier: str) -> Parsed:
    import dataclasses

    return one if specifier == one.specifier else dataclasses.replace(one, specifier=specifier)


def _short(one: Parsed) -> str:
    return shown(one.text.partition(" ;")[0])


def _framework(result: Sorted, one: Parsed, framework: str, *, named: str) -> None:
    """A framework's line: it is asked for (unless a constraint says it), and bounded."""
    origin = one.line.origin
    if not one.line.constraint:
        result.frameworks[framework] = None
    if one.line.override and not one.url:
        result.needs[one.need()] = None
    specifier = _address_bound(result, one, framework) if one.url else _unlabelled(result, one)
    if specifier:
        result.bounds.append(VersionBound(name=framework, specifier=specifier, origin=origin))
    if named != framework:
        result.left_out[f"{_short(one)} ({origin}) is taken as {framework}"] = None
    if one.line.hashes:
        result.left_out[
            f"the hashes of {named} ({origin}) are left out: the lock gets those of the build that the plan picks"
        ] = None
    extras = [e for e in one.extras if not _BUILD_EXTRA.fullmatch(normalize_name(e))]
    if extras and not one.url:
        import dataclasses

        line = dataclasses.replace(one.line, hashes=())
        kept = dataclasses.replace(one, name=framework, extras=tuple(extras), specifier="", line=line)
        result.needs[kept.need()] = None


def _address_bound(result: Sorted, one: Parsed, framework: str) -> str:
    """The bound that a framework's own wheel address means: its version. Raises UsageError."""
    from packaging.version import Version

    parts = None if one.vcs or one.local else file_parts(one.url or "")
    if parts is None:
        raise UsageError(
            f"{one.line.origin}: {_short(one)}: {framework} from there cannot be planned",
            hint=f"write {framework} with a released version",
        )
    version = Version(parts[1]).public
    if (one.url or "").startswith("file:"):
        from urllib.parse import unquote

        result.folders.append(unquote((one.url or "").removeprefix("file://").rpartition("/")[0]))
    result.left_out[
        f"{_short(one)} ({one.line.origin}) is taken as {framework}=={version}: the plan picks the file"
    ] = None
    return f"=={version}"


def _unlabelled(result: Sorted, one: Parsed) -> str:
    """A framework's specifier without any local label."""
    kept = []
    for clause in _clauses(one.specifier):
        public, plus, label = clause.partition("+")
        if not plus and not clause.startswith("==="):
            kept.append(clause)
        elif not clause.startswith("!="):  # an excluded build excludes no version
            kept.append(public.replace("===", "=="))
        if plus:
            result.left_out[f"the label +{label} of {one.name} ({one.line.origin}) is left to the plan"] = (
                None
            )
    return ",".join(kept)


def _without_builds(result: Sorted, one: Parsed) -> str:
    """A specifier without labels that name a build for CUDA or the CPU; other labels are versions."""
    kept = []
    for clause in _clauses(one.specifier):
        public, plus, label = clause.partition("+")
        if plus and _BUILD_LABEL.fullmatch(label):
            if not clause.startswith("!="):
                kept.append(public.replace("===", "=="))
            result.left_out[f"the label +{label} of {one.name} ({one.line.origin}) is left to the plan"] = (
                None
            )
        else:
            kept.append(clause)
    return ",".join(kept)


def _clauses(specifier: str) -> list[str]:
    return [clause.strip() for clause in specifier.split(",") if clause.strip()]


def _jaxlib(result: Sorted, lines: list[Parsed]) -> None:
    """jaxlib is left to the plan; where nothing names jax, it stands for it."""
    stands = "jax" not in result.frameworks and any(not one.line.constraint for one in lines)
    for one in lines:
        if stands:
            _framework(result, one, "jax", named="jaxlib")
        else:
            result.left_out[f"{_short(one)} ({one.line.origin}) is left to the plan"] = None


# Python versions that a marker is tried with where the target's is open; far beyond those that exist.
_MINORS = tuple(f"3.{minor}" for minor in range(6, 31))
_VARIABLES = (
    "os_name", "sys_platform", "platform_machine", "platform_python_implementation", "platform_release",
    "platform_system", "platform_version", "python_version", "python_full_version", "implementation_name",
    "implementation_version",
)  # fmt: skip
_ASSUMED = {"platform_python_implementation": "CPython", "implementation_name": "cpython", "extra": ""}


def may_hold(marker: Marker | None, known: Mapping[str, str]) -> bool:
    """Whether a marker holds for some machine of which `known` is true. What is not known may be
    anything: the marker is tried with every Python version, and kept where it asks for more."""
    if marker is None:
        return True
    text = re.sub(r"\"[^\"]*\"|'[^']*'", "''", str(marker))
    asked = {name for name in _VARIABLES if re.search(rf"\b{name}\b", text)}
    environment = {**_ASSUMED, **known}
    pythons = _pythons(known)
    if asked - set(environment) - {"python_version", "python_full_version"}:
        return True
    tries = itertools.chain(pythons) if asked & {"python_version", "python_full_version"} else pythons[:1]
    return any(_holds(marker, {**environment, **python}) for python in tries)


def _pythons(known: Mapping[str, str]) -> list[dict[str, str]]:
    minor, full = known.get("python_version"), known.get("python_full_version")
    if full:
        return [{"python_full_version": full, "python_version": minor or ".".join(full.split(".")[:2])}]
    minors = (minor,) if minor else _MINORS
    return [
        {"python_version": m, "python_full_version": f"{m}.{patch}"} for m in minors for patch in (0, 9, 99)
    ]


def _holds(marker: Marker, environment: Mapping[str, str]) -> bool:
    from packaging.markers import UndefinedComparison, UndefinedEnvironmentName

    try:
        return marker.evaluate(dict(environment))
    except (UndefinedComparison, UndefinedEnvironmentName, ValueError):
        return True  # a comparison that pip would stop at: the solver is left to say so
