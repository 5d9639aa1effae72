"""Sort the requirements of a project's files: frameworks and bounds for the plan, the rest for the solver."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from urllib.parse import unquote

from ..errors import MissingPathError, UsageError
from ..model import (
    CPU_PACKAGES,
    FRAMEWORK_ALIASES,
    PROJECT_FOLDER,
    PROJECT_FRAMEWORKS,
    CpuOnlyFramework,
    Profiles,
    ProjectRequirements,
    RequirementLine,
    VersionBound,
    is_build_package,
    is_cpu_build,
    normalize_name,
)
from .files import ReadingState, find_common_folder, read_requirements_file
from .lines import ParsedRequirement, SourceLine, may_apply, parse_archive_name, parse_line, pythons_of
from .pyproject import StatedRequirements, read_project
from .quote import quote_text
from .tree import BUILDABLE, find_root

_GPU_PLUGIN = re.compile(r"jax-(cuda|rocm)\d+-(plugin|pjrt)")
# All labels of a framework's versions, and those of builds, such as that of torchvision 0.20.1+cu124. Other labels are
# part of a version. The plan chooses among builds of a version.
_ANY = re.compile(".*")
_BUILD_LABEL = re.compile(r"(cpu|cu\d+|cuda\d+|rocm[\d.]+|xpu)([._-].*)?")
# Extras of frameworks that only choose a build or its NVIDIA packages
_BUILD_EXTRA = re.compile(r"(and-)?cuda.*|cudnn.*|cpu|gpu|tpu|rocm.*|minimum-jaxlib|.*-cuda|.*cudnn.*")


@dataclasses.dataclass(kw_only=True, slots=True)
class SortedRequirements:
    """Requirements by who decides them. `frameworks` maps a framework to its first origin.

    `markers` are the known marker variables of the target. `planned` are normalized names of packages that a framework's
    build brings. `left_out` are sentences, `stack` the lines for packages of the plan.
    """

    markers: Mapping[str, str]
    planned: frozenset[str]
    frameworks: dict[str, str] = field(default_factory=dict)
    bounds: list[VersionBound] = field(default_factory=list)
    lines: dict[RequirementLine, None] = field(default_factory=dict)
    left_out: dict[str, None] = field(default_factory=dict)
    folders: list[str] = field(default_factory=list)
    stack: list[RequirementLine] = field(default_factory=list)

    def add(self, parsed: Iterable[ParsedRequirement]) -> None:
        """Sort requirements. Raises UsageError for a framework from an address that gpuenv cannot plan."""
        jaxlib: list[ParsedRequirement] = []
        for one in parsed:
            name = one.package
            if name == "jaxlib":
                jaxlib += [one] * self._applies(one)
            elif name in PROJECT_FRAMEWORKS or name in FRAMEWORK_ALIASES:
                if self._applies(one):
                    self._add_framework(one, FRAMEWORK_ALIASES.get(name, name))
            elif name and (name in self.planned or is_build_package(name)):
                self._leave_out(_quote(one), one)
                if not (one.line.constraint or one.url) and self._applies(one):
                    self.stack.append(one.as_line())
            else:
                specifier = self._remove_labels(one, _BUILD_LABEL) if name else one.specifier
                self.lines[dataclasses.replace(one, specifier=specifier).as_line()] = None
        # The plan chooses jaxlib in the release of jax. Its bounds count for jax, unless a line pins jax.
        pinned = any(b.name == "jax" and re.fullmatch("==[^*]+", b.specifier) for b in self.bounds)
        for one in jaxlib:
            if pinned:
                self._leave_out(_quote(one), one)
            else:
                self._add_framework(one, "jax")

    def _applies(self, one: ParsedRequirement) -> bool:
        return may_apply(one.marker, self.markers)

    def _leave_out(
        self,
        what: str,
        one: ParsedRequirement,
        why: str = "is ignored, because gpuenv selects this package itself",
    ) -> None:
        """Record why a line for this machine, or a part of it, does not apply as written."""
        if self._applies(one):
            self.left_out[f"{what} ({one.line.origin}) {why}"] = None

    def _add_framework(self, one: ParsedRequirement, framework: str) -> None:
        """Record a framework with its bounds. A constraint bounds it without asking for it."""
        origin = one.line.origin
        if not one.line.constraint:
            self.frameworks.setdefault(framework, origin)
        if one.line.override and not one.url:
            self.lines[one.as_line()] = None
        if specifier := self._bound_by_address(one, framework) if one.url else self._remove_labels(one, _ANY):
            pythons = pythons_of(one.marker, self.markers)
            self.bounds.append(
                VersionBound(name=framework, specifier=specifier, origin=origin, pythons=pythons)
            )
        if one.package != framework:
            self._leave_out(_quote(one), one, f"is read as {framework}")
        if one.line.hashes:
            why = "are ignored: the lock states those of the build that the plan chooses"
            self._leave_out(f"the hashes of {one.package}", one, why)
        extras = [e for e in one.extras if not _BUILD_EXTRA.fullmatch(normalize_name(e))]
        if extras and not one.url:
            line = dataclasses.replace(one.line, hashes=())
            kept = dataclasses.replace(one, name=framework, extras=tuple(extras), specifier="", line=line)
            self.lines[kept.as_line()] = None

    def _bound_by_address(self, one: ParsedRequirement, framework: str) -> str:
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
            self.folders.append(unquote((one.url or "").removeprefix("file://").rpartition("/")[0]))
        self._leave_out(_quote(one), one, f"is read as {framework}=={version}: the plan chooses the file")
        return f"=={version}"

    def _remove_labels(self, one: ParsedRequirement, labels: re.Pattern[str]) -> str:
        """Return a specifier without some local labels. An excluded build excludes no version."""
        kept = []
        for clause in filter(None, map(str.strip, one.specifier.split(","))):
            public, plus, label = clause.partition("+")
            if plus and labels.fullmatch(label):
                self._leave_out(f"the label +{label} of {one.name}", one)
            elif plus or labels is not _ANY or not clause.startswith("==="):
                kept.append(clause)
                continue
            if not clause.startswith("!="):
                kept.append(public.replace("===", "=="))
        return ",".join(kept)

    def cpu_builds(self, parsed: Sequence[ParsedRequirement]) -> Iterator[CpuOnlyFramework]:
        """Yield the frameworks of which the requirements name only the CPU build, and none asks for a GPU build."""
        applicable = [one for one in parsed if one.name and self._applies(one)]
        for framework in dict.fromkeys(CPU_PACKAGES.values()):
            matching = [one for one in applicable if CPU_PACKAGES.get(one.package, one.package) == framework]
            required = [one for one in matching if not one.line.constraint]
            if not required or any(
                one.url or not is_cpu_build(one.package, one.extras, one.specifier) for one in required
            ):
                continue
            if framework == "jax" and any(_GPU_PLUGIN.fullmatch(one.package) for one in applicable):
                continue  # `pip freeze` lists jax and its plugin separately for a GPU environment
            as_framework = SortedRequirements(markers=self.markers, planned=self.planned)
            as_framework.add(matching)
            yield CpuOnlyFramework(
                framework=framework,
                names=tuple(dict.fromkeys(f"{one.name} ({one.line.origin})" for one in required)),
                lines=tuple(one.as_line() for one in matching),
                as_framework=tuple(as_framework.left_out),
            )


_NO_ROWS = Profiles()


def _quote(one: ParsedRequirement) -> str:
    return quote_text(one.text.partition(" ;")[0])


def read_project_requirements(
    environ: Mapping[str, str],
    markers: Mapping[str, str],
    *,
    requirements: Sequence[Path] = (),
    folder: Path | None = None,
    extras: Sequence[str] = (),
    groups: Sequence[str] = (),
    packages: Sequence[tuple[str, str]] = (),
    known: Profiles = _NO_ROWS,
    skip_missing: bool = False,
    install: bool = True,
    base: Path | None = None,
) -> ProjectRequirements:
    """Read what a project requires, without running or fetching anything. Raises UsageError with file and line.

    `folder` is read with its `extras` and dependency `groups`, and only for its dependencies without `install`.
    `packages` are single requirements, each with its origin. `markers` are those of SortedRequirements.
    A companion (torchvision) implies its framework if no file names one.
    With `skip_missing`, files and folders that do not exist are listed in `missing` of the result. Origins are relative
    to `base`, by default the common folder of the files.
    """
    base = base or find_common_folder(requirements, folder)
    roots = (find_root(folder.absolute()),) if folder else ()
    reading = ReadingState(environ=environ, base=base, roots=roots, skip_missing=skip_missing)
    for path in requirements:
        read_requirements_file(reading, path)
    stated = StatedRequirements()
    if folder is not None:
        stated = read_project(reading, folder.absolute(), extras, groups, install=install)
    named = [SourceLine(text=text, origin=o, folders=(Path.cwd(),)) for text, o in packages]
    parsed = list(_parse_lines([*reading.lines, *named], reading))
    result = SortedRequirements(markers=markers, planned=known.stack)
    result.add(parsed)
    if folder is not None and stated.installable:
        result.lines[_require_folder(folder.absolute(), stated)] = None
    elif folder is not None and not install:
        own = [n for n in result.lines if n.local == str(folder.resolve())]  # -e . of a requirements file
        for need in own:
            del result.lines[need]
            result.left_out[f"{need.text} ({need.origin}) is ignored: project: has install: false"] = None
    for need in result.lines:  # the files of a local folder decide the lock, like a requirements file
        buildable = [Path(need.local) / name for name in BUILDABLE] if need.local else []
        reading.files |= {str(path): None for path in buildable if path.is_file()}
    implying = [n for n in result.lines if n.package in known.companions and not n.constraint]
    implied = {known.companions[n.package]: f"{n.name} in {n.origin}" for n in reversed(implying)}
    frameworks = result.frameworks or implied
    return ProjectRequirements(
        frameworks=tuple(frameworks),
        origins=tuple(frameworks.items()),
        bounds=tuple(dict.fromkeys(result.bounds)),
        lines=tuple(result.lines),
        requires_python=_specifier(stated),
        python_origin=stated.python_origin,
        index_url=reading.index_url,
        extra_index_urls=tuple(dict.fromkeys(reading.extra_index_urls)),
        find_links=tuple(dict.fromkeys([*reading.find_links, *result.folders])),
        no_index=reading.no_index,
        exclude_newer=reading.exclude_newer,
        pre=reading.pre,
        left_out=tuple(dict.fromkeys([*result.left_out, *reading.notes])),
        files=tuple(reading.files),
        missing=tuple(reading.missing),
        cpu=tuple(result.cpu_builds(parsed)),
        stack=tuple(result.stack),
        computed=stated.computed if stated else None,
    )


def _parse_lines(lines: Iterable[SourceLine], reading: ReadingState) -> Iterator[ParsedRequirement]:
    for line in lines:
        try:
            yield parse_line(line, None if reading.skip_missing else reading.environ)
        except MissingPathError as error:
            if not reading.skip_missing:
                raise
            reading.missing.append(f"{error.message}: {error.hint}")


def _require_folder(folder: Path, stated: StatedRequirements) -> RequirementLine:
    """Return the requirement of the project's own folder, which makes its modules importable."""
    folder, name = folder.resolve(), stated.name
    extras = f"[{','.join(stated.unread_extras)}]" if stated.unread_extras else ""
    text = f"{name}{extras} @ {folder.as_uri()}" if name else folder.as_uri()
    return RequirementLine(
        text=text, origin=PROJECT_FOLDER, name=name, local=str(folder), editable=True, stated=stated.planned_sources
    )  # fmt: skip


def _specifier(stated: StatedRequirements) -> str:
    """Return requires-python as a PEP 440 specifier. Raises UsageError."""
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    try:
        return str(SpecifierSet(stated.requires_python))
    except (InvalidSpecifier, ValueError) as error:
        raise UsageError(
            f"{stated.python_origin}: {quote_text(stated.requires_python)!r} is not a version specifier",
            hint="write it as >=3.10",
        ) from error
