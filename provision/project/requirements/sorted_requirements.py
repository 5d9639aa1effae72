"""Sort requirements: frameworks and packages of their builds for the plan, the rest for the solver."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from provision.errors import UsageError
from provision.model import (
    FRAMEWORK_ALIASES,
    PROJECT_FRAMEWORKS,
    RequirementLine,
    VersionBound,
    is_build_package,
    normalize_name,
)

from ..quote_for_messages_and_parse_requirement import quote_text
from .markers import may_apply, pythons_of
from .requirement import ParsedRequirement, parse_archive_name

# Labels of builds, such as that of torchvision 0.20.1+cu124. The plan chooses among builds of a version.
_BUILD_LABEL = re.compile(r"(cpu|cu\d+|cuda\d+|rocm[\d.]+|xpu)([._-].*)?")
# Extras of frameworks that only choose a build or its NVIDIA packages
_BUILD_EXTRA = re.compile(r"(and-)?cuda.*|cudnn.*|cpu|gpu|tpu|rocm.*|minimum-jaxlib|.*-cuda|.*cudnn.*")


@dataclass(kw_only=True, slots=True)
class SortedRequirements:
    """Requirements by who decides them. `left_out` are sentences, `stack` the lines for packages of the plan."""

    frameworks: dict[str, None] = field(default_factory=dict)
    bounds: list[VersionBound] = field(default_factory=list)
    needs: dict[RequirementLine, None] = field(default_factory=dict)
    left_out: dict[str, None] = field(default_factory=dict)
    folders: list[str] = field(default_factory=list)
    stack: list[RequirementLine] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True, slots=True)
class SortingRules:
    """What decides where a requirement goes.

    `markers` are the known marker variables of the target. `stack` are normalized names of packages that a framework's
    build brings.
    """

    markers: Mapping[str, str]
    stack: frozenset[str] = frozenset()


def sort_requirements(parsed: Iterable[ParsedRequirement], rules: SortingRules) -> SortedRequirements:
    """Sort requirements. Raises UsageError for a framework from an address that gpuenv cannot plan."""
    result = SortedRequirements()
    jaxlib: list[ParsedRequirement] = []
    for one in parsed:
        name = normalize_name(one.name) if one.name else None
        if name == "jaxlib":
            if may_apply(one.marker, rules.markers):
                jaxlib.append(one)
        elif name in PROJECT_FRAMEWORKS or name in FRAMEWORK_ALIASES:
            if may_apply(one.marker, rules.markers):
                framework = FRAMEWORK_ALIASES.get(name or "", name or "")
                _add_framework(result, one, framework, named=name or "", rules=rules)
        elif name and (name in rules.stack or is_build_package(name)):
            result.left_out[
                f"{_quote(one)} ({one.line.origin}) is ignored, because gpuenv selects this package itself"
            ] = None
            if not (one.line.constraint or one.url) and may_apply(one.marker, rules.markers):
                result.stack.append(one.as_line())
        else:
            specifier = _remove_build_labels(result, one) if name else one.specifier
            result.needs[_replace_specifier(one, specifier).as_line()] = None
    _add_jaxlib(result, jaxlib, rules)
    return result


def _replace_specifier(one: ParsedRequirement, specifier: str) -> ParsedRequirement:
    import dataclasses

    return one if specifier == one.specifier else dataclasses.replace(one, specifier=specifier)


def _quote(one: ParsedRequirement) -> str:
    return quote_text(one.text.partition(" ;")[0])


def _add_framework(
    result: SortedRequirements, one: ParsedRequirement, framework: str, *, named: str, rules: SortingRules
) -> None:
    """Record a framework with its bounds. A constraint bounds it without asking for it."""
    origin = one.line.origin
    if not one.line.constraint:
        result.frameworks[framework] = None
    if one.line.override and not one.url:
        result.needs[one.as_line()] = None
    specifier = _bound_by_address(result, one, framework) if one.url else _remove_labels(result, one)
    if specifier:
        pythons = pythons_of(one.marker, rules.markers)
        result.bounds.append(
            VersionBound(name=framework, specifier=specifier, origin=origin, pythons=pythons)
        )
    if named != framework:
        result.left_out[f"{_quote(one)} ({origin}) is read as {framework}"] = None
    if one.line.hashes:
        result.left_out[
            f"the hashes of {named} ({origin}) are ignored: the lock states those of the build that the plan chooses"
        ] = None
    extras = [e for e in one.extras if not _BUILD_EXTRA.fullmatch(normalize_name(e))]
    if extras and not one.url:
        import dataclasses

        line = dataclasses.replace(one.line, hashes=())
        kept = dataclasses.replace(one, name=framework, extras=tuple(extras), specifier="", line=line)
        result.needs[kept.as_line()] = None


def _bound_by_address(result: SortedRequirements, one: ParsedRequirement, framework: str) -> str:
    """Return the version in the address of a framework's wheel as a bound. Raises UsageError."""
    from packaging.version import Version

    parts = None if one.vcs or one.local else parse_archive_name(one.url or "")
    if parts is None:
        raise UsageError(
            f"{one.line.origin}: {_quote(one)}: gpuenv cannot choose a build of {framework} from this address",
            hint=f"write {framework} with a released version",
        )
    version = Version(parts[1]).public
    if (one.url or "").startswith("file:"):
        from urllib.parse import unquote

        result.folders.append(unquote((one.url or "").removeprefix("file://").rpartition("/")[0]))
    result.left_out[
        f"{_quote(one)} ({one.line.origin}) is read as {framework}=={version}: the plan chooses the file"
    ] = None
    return f"=={version}"


def _remove_labels(result: SortedRequirements, one: ParsedRequirement) -> str:
    """Return a framework's specifier without local labels."""
    kept = []
    for clause in _split_clauses(one.specifier):
        public, plus, label = clause.partition("+")
        if not plus and not clause.startswith("==="):
            kept.append(clause)
        elif not clause.startswith("!="):  # an excluded build excludes no version
            kept.append(public.replace("===", "=="))
        if plus:
            result.left_out[
                f"the label +{label} of {one.name} ({one.line.origin}) is ignored, because gpuenv selects this package itself"
            ] = None
    return ",".join(kept)


def _remove_build_labels(result: SortedRequirements, one: ParsedRequirement) -> str:
    """Return a specifier without the labels of builds for CUDA or the CPU. Other labels are part of a version."""
    kept = []
    for clause in _split_clauses(one.specifier):
        public, plus, label = clause.partition("+")
        if plus and _BUILD_LABEL.fullmatch(label):
            if not clause.startswith("!="):
                kept.append(public.replace("===", "=="))
            result.left_out[
                f"the label +{label} of {one.name} ({one.line.origin}) is ignored, because gpuenv selects this package itself"
            ] = None
        else:
            kept.append(clause)
    return ",".join(kept)


def _split_clauses(specifier: str) -> list[str]:
    return [clause.strip() for clause in specifier.split(",") if clause.strip()]


def _add_jaxlib(result: SortedRequirements, lines: list[ParsedRequirement], rules: SortingRules) -> None:
    """Ignore jaxlib, which the plan chooses. It asks for jax if no other line does."""
    asks_for_jax = "jax" not in result.frameworks and any(not one.line.constraint for one in lines)
    for one in lines:
        if asks_for_jax:
            _add_framework(result, one, "jax", named="jaxlib", rules=rules)
        else:
            result.left_out[
                f"{_quote(one)} ({one.line.origin}) is ignored, because gpuenv selects this package itself"
            ] = None
