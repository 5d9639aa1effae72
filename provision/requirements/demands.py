"""Sort the requirements of a project's files: frameworks and bounds for the plan, the rest for the solver."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path

from ..errors import MissingPathError, UsageError
from ..model import (
    CPU_PACKAGES,
    FRAMEWORK_ALIASES,
    PROJECT_FOLDER,
    PROJECT_FRAMEWORKS,
    CpuOnlyFramework,
    ProjectRequirements,
    RequirementLine,
    VersionBound,
    is_build_package,
    is_cpu_build,
    normalize_name,
)
from ..model.values import dataclass
from .files import ReadingState, find_common_folder, read_requirements_file
from .lines import ParsedRequirement, SourceLine, may_apply, parse_archive_name, parse_line, pythons_of
from .pyproject import StatedRequirements
from .quote import quote_text
from .tree import BUILDABLE, find_root

_GPU_PLUGIN = re.compile(r"jax-(cuda|rocm)\d+-(plugin|pjrt)")


def find_cpu_frameworks(
    parsed: Sequence[ParsedRequirement], rules: SortingRules
) -> tuple[CpuOnlyFramework, ...]:
    """Return the frameworks of which the requirements name only the CPU build."""
    applicable = [one for one in parsed if one.name and may_apply(one.marker, rules.markers)]
    candidates = (_find(framework, applicable, rules) for framework in dict.fromkeys(CPU_PACKAGES.values()))
    return tuple(cpu_only for cpu_only in candidates if cpu_only)


def _find(
    framework: str, parsed: Sequence[ParsedRequirement], rules: SortingRules
) -> CpuOnlyFramework | None:
    """Return a framework with its CPU requirements, or None if one asks for a GPU build or none for the framework."""
    names = {name for name, of in CPU_PACKAGES.items() if of == framework} | {framework}
    matching = [one for one in parsed if one.package in names]
    required = [one for one in matching if not one.line.constraint]
    if not required or any(
        one.url or not is_cpu_build(one.package, one.extras, one.specifier) for one in required
    ):
        return None
    if framework == "jax" and any(_GPU_PLUGIN.fullmatch(one.package) for one in parsed):
        return None  # `pip freeze` lists jax and its plugin separately for a GPU environment
    as_framework = sort_requirements(matching, rules)
    return CpuOnlyFramework(
        framework=framework,
        names=tuple(dict.fromkeys(f"{one.name} ({one.line.origin})" for one in required)),
        needs=tuple(one.as_line() for one in matching),
        as_framework=tuple(as_framework.left_out),
    )


# All labels of a framework's versions, and those of builds, such as that of torchvision 0.20.1+cu124. Other labels are
# part of a version. The plan chooses among builds of a version.
_ANY = re.compile(".*")
_BUILD_LABEL = re.compile(r"(cpu|cu\d+|cuda\d+|rocm[\d.]+|xpu)([._-].*)?")
# Extras of frameworks that only choose a build or its NVIDIA packages
_BUILD_EXTRA = re.compile(r"(and-)?cuda.*|cudnn.*|cpu|gpu|tpu|rocm.*|minimum-jaxlib|.*-cuda|.*cudnn.*")


@dataclasses.dataclass(kw_only=True, slots=True)
class SortedRequirements:
    """Requirements by who decides them. `frameworks` maps a framework to its first origin.

    `left_out` are sentences, `stack` the lines for packages of the plan.
    """

    frameworks: dict[str, str] = field(default_factory=dict)
    bounds: list[VersionBound] = field(default_factory=list)
    needs: dict[RequirementLine, None] = field(default_factory=dict)
    left_out: dict[str, None] = field(default_factory=dict)
    folders: list[str] = field(default_factory=list)
    stack: list[RequirementLine] = field(default_factory=list)

    def leave_out(self, what: str, one: ParsedRequirement, why: str = "") -> None:
        """Record why a line, or a part of it, does not apply as written."""
        why = why or "is ignored, because gpuenv selects this package itself"
        self.left_out[f"{what} ({one.line.origin}) {why}"] = None


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
        name = one.package
        if name == "jaxlib":
            if may_apply(one.marker, rules.markers):
                jaxlib.append(one)
        elif name in PROJECT_FRAMEWORKS or name in FRAMEWORK_ALIASES:
            if may_apply(one.marker, rules.markers):
                framework = FRAMEWORK_ALIASES.get(name, name)
                _add_framework(result, one, framework, named=name, rules=rules)
        elif name and (name in rules.stack or is_build_package(name)):
            result.leave_out(_quote(one), one)
            if not (one.line.constraint or one.url) and may_apply(one.marker, rules.markers):
                result.stack.append(one.as_line())
        else:
            specifier = _remove_labels(result, one, _BUILD_LABEL) if name else one.specifier
            result.needs[dataclasses.replace(one, specifier=specifier).as_line()] = None
    _add_jaxlib(result, jaxlib, rules)
    return result


def _quote(one: ParsedRequirement) -> str:
    return quote_text(one.text.partition(" ;")[0])


def _add_framework(
    result: SortedRequirements, one: ParsedRequirement, framework: str, *, named: str, rules: SortingRules
) -> None:
    """Record a framework with its bounds. A constraint bounds it without asking for it."""
    origin = one.line.origin
    if not one.line.constraint:
        result.frameworks.setdefault(framework, origin)
    if one.line.override and not one.url:
        result.needs[one.as_line()] = None
    specifier = _bound_by_address(result, one, framework) if one.url else _remove_labels(result, one, _ANY)
    if specifier:
        pythons = pythons_of(one.marker, rules.markers)
        result.bounds.append(
            VersionBound(name=framework, specifier=specifier, origin=origin, pythons=pythons)
        )
    if named != framework:
        result.leave_out(_quote(one), one, f"is read as {framework}")
    if one.line.hashes:
        why = "are ignored: the lock states those of the build that the plan chooses"
        result.leave_out(f"the hashes of {named}", one, why)
    extras = [e for e in one.extras if not _BUILD_EXTRA.fullmatch(normalize_name(e))]
    if extras and not one.url:
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
    result.leave_out(_quote(one), one, f"is read as {framework}=={version}: the plan chooses the file")
    return f"=={version}"


def _remove_labels(result: SortedRequirements, one: ParsedRequirement, labels: re.Pattern[str]) -> str:
    """Return a specifier without some local labels. An excluded build excludes no version."""
    kept = []
    for clause in filter(None, map(str.strip, one.specifier.split(","))):
        public, plus, label = clause.partition("+")
        if plus and labels.fullmatch(label):
            result.leave_out(f"the label +{label} of {one.name}", one)
        elif plus or labels is not _ANY or not clause.startswith("==="):
            kept.append(clause)
            continue
        if not clause.startswith("!="):
            kept.append(public.replace("===", "=="))
    return ",".join(kept)


def _add_jaxlib(result: SortedRequirements, lines: list[ParsedRequirement], rules: SortingRules) -> None:
    """Ignore jaxlib, which the plan chooses. It asks for jax if no other line does."""
    asks_for_jax = "jax" not in result.frameworks and any(not one.line.constraint for one in lines)
    for one in lines:
        if asks_for_jax:
            _add_framework(result, one, "jax", named="jaxlib", rules=rules)
        else:
            result.leave_out(_quote(one), one)


@dataclass(frozen=True, kw_only=True, slots=True)
class ProjectFiles:
    """The files and packages that state a project's requirements.

    `folder` is read with its `extras` and dependency `groups`, and only for its dependencies without `install`.
    `packages` are single requirements, each with its origin. With `skip_missing`, files and folders that do not exist are
    listed in `missing` of the result. Origins are relative to `base`, by default the common folder of the files.
    """

    requirements: Sequence[Path] = ()
    folder: Path | None = None
    extras: Sequence[str] = ()
    groups: Sequence[str] = ()
    packages: Sequence[tuple[str, str]] = ()
    skip_missing: bool = False
    install: bool = True
    base: Path | None = None


# Longer than most functions: half of it copies fields into the result.
def read_project_requirements(
    files: ProjectFiles,
    environ: Mapping[str, str],
    rules: SortingRules,
    companions: Mapping[str, str] | None = None,
) -> ProjectRequirements:
    """Read what a project requires, without running or fetching anything. Raises UsageError with file and line.

    `companions` maps a package that implies a framework (torchvision) to it. It counts if no file names a framework.
    """
    reading = _read_files(files, environ)
    folder = files.folder
    stated: StatedRequirements | None = None
    if folder is not None:
        from .pyproject import read_project

        stated = read_project(reading, folder.absolute(), files.extras, files.groups, install=files.install)
    named = [SourceLine(text=text, origin=o, folders=(Path.cwd(),)) for text, o in files.packages]
    parsed = list(_parse_lines([*reading.lines, *named], reading, environ))
    result = sort_requirements(parsed, rules)
    if folder is not None and stated and stated.installable:
        result.needs[_require_folder(folder.absolute(), stated)] = None
    elif folder is not None and not files.install:
        own = [n for n in result.needs if n.local == str(folder.resolve())]  # -e . of a requirements file
        for need in own:
            del result.needs[need]
            result.left_out[f"{need.text} ({need.origin}) is ignored: project: has install: false"] = None
    for need in result.needs:  # the files of a local folder decide the lock, like a requirements file
        beside = [Path(need.local) / name for name in BUILDABLE] if need.local else []
        reading.files |= {str(path): None for path in beside if path.is_file()}
    frameworks = result.frameworks or _find_implied(result.needs, companions or {})
    return ProjectRequirements(
        frameworks=tuple(frameworks),
        origins=tuple(frameworks.items()),
        bounds=tuple(dict.fromkeys(result.bounds)),
        needs=tuple(result.needs),
        requires_python=_specifier(stated),
        python_origin=stated.python_origin if stated else None,
        index_url=reading.index_url,
        extra_index_urls=tuple(dict.fromkeys(reading.extra_index_urls)),
        find_links=tuple(dict.fromkeys([*reading.find_links, *result.folders])),
        no_index=reading.no_index,
        exclude_newer=reading.exclude_newer,
        pre=reading.pre,
        left_out=tuple(dict.fromkeys([*result.left_out, *reading.notes])),
        files=tuple(reading.files),
        missing=tuple(reading.missing),
        cpu=find_cpu_frameworks(parsed, rules),
        stack=tuple(result.stack),
    )


def _parse_lines(
    lines: Iterable[SourceLine], reading: ReadingState, environ: Mapping[str, str]
) -> Iterator[ParsedRequirement]:
    for line in lines:
        try:
            yield parse_line(line, None if reading.skip_missing else environ)
        except MissingPathError as error:
            if not reading.skip_missing:
                raise
            reading.missing.append(f"{error.message}: {error.hint}")


def _read_files(files: ProjectFiles, environ: Mapping[str, str]) -> ReadingState:
    base = files.base or find_common_folder(files.requirements, files.folder)
    roots = (find_root(files.folder.absolute()),) if files.folder else ()
    reading = ReadingState(environ=environ, base=base, roots=roots, skip_missing=files.skip_missing)
    for path in files.requirements:
        read_requirements_file(reading, path)
    return reading


def _require_folder(folder: Path, stated: StatedRequirements) -> RequirementLine:
    """Return the requirement of the project's own folder, which makes its modules importable."""
    folder, name = folder.resolve(), stated.name
    text = f"{name} @ {folder.as_uri()}" if name else folder.as_uri()
    return RequirementLine(
        text=text, origin=PROJECT_FOLDER, name=name, local=str(folder), editable=True, stated=stated.planned_sources
    )  # fmt: skip


def _find_implied(needs: Mapping[RequirementLine, None], companions: Mapping[str, str]) -> dict[str, str]:
    """Return the frameworks that companions imply, each with the first companion."""
    named = [n for n in needs if n.package in companions and not n.constraint]
    return {companions[n.package]: f"{n.name} in {n.origin}" for n in reversed(named)}


def _specifier(stated: StatedRequirements | None) -> str:
    """Return requires-python as a PEP 440 specifier. Raises UsageError."""
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    if stated is None or not stated.requires_python:
        return ""
    try:
        return str(SpecifierSet(stated.requires_python))
    except (InvalidSpecifier, ValueError) as error:
        raise UsageError(
            f"{stated.python_origin}: {quote_text(stated.requires_python)!r} is not a version specifier",
            hint="write it as >=3.10",
        ) from error
