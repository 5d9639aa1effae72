"""Read all files of a project: frameworks and bounds for the plan, other requirements for the solver."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from provision.errors import UsageError
from provision.model import PROJECT_FOLDER, ProjectRequirements, RequirementLine, normalize_name

from ..quote_for_messages_and_parse_requirement import quote_text
from ..tree import BUILDABLE, find_root
from .cpu_packages import find_cpu_frameworks
from .project_metadata import StatedRequirements
from .requirement import SourceLine, parse_line
from .requirements_files import ReadingState, find_common_folder, read_requirements_file
from .sorted_requirements import SortedRequirements, SortingRules, sort_requirements


@dataclass(frozen=True, kw_only=True, slots=True)
class ProjectFiles:
    """The files and packages that state a project's requirements.

    `folder` is read with its `extras` and dependency `groups`, and only for its dependencies without `install`.
    `packages` are single requirements, each with its origin. With `skip_missing`, included files that do not exist are
    listed in `missing` of the result.
    """

    requirements: Sequence[Path] = ()
    folder: Path | None = None
    extras: Sequence[str] = ()
    groups: Sequence[str] = ()
    packages: Sequence[tuple[str, str]] = ()
    skip_missing: bool = False
    install: bool = True


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
        from .project_metadata import read_project

        stated = read_project(reading, folder.absolute(), files.extras, files.groups, install=files.install)
    named = [SourceLine(text=text, origin=o, folders=(Path.cwd(),)) for text, o in files.packages]
    parsed = [parse_line(line, None if files.skip_missing else environ) for line in [*reading.lines, *named]]
    result = sort_requirements(parsed, rules)
    if folder is not None and stated and stated.installable:
        result.needs[_require_folder(folder.absolute(), stated.name)] = None
    elif folder is not None and not files.install:
        _leave_out(result, str(folder.resolve()))
    for need in result.needs:  # the files of a local folder decide the lock, like a requirements file
        beside = [Path(need.local) / name for name in BUILDABLE] if need.local else []
        reading.files |= {str(path): None for path in beside if path.is_file()}
    frameworks = result.frameworks or _find_implied(result.needs, companions or {})
    return ProjectRequirements(
        frameworks=tuple(frameworks),
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


def _read_files(files: ProjectFiles, environ: Mapping[str, str]) -> ReadingState:
    base = find_common_folder(files.requirements, files.folder)
    roots = (find_root(files.folder.absolute()),) if files.folder else ()
    reading = ReadingState(environ=environ, base=base, roots=roots, skip_missing=files.skip_missing)
    for path in files.requirements:
        read_requirements_file(reading, path)
    return reading


def _require_folder(folder: Path, name: str | None) -> RequirementLine:
    """Return the requirement of the project's own folder, which makes its modules importable."""
    folder = folder.resolve()
    text = f"{name} @ {folder.as_uri()}" if name else folder.as_uri()
    return RequirementLine(text=text, origin=PROJECT_FOLDER, name=name, local=str(folder), editable=True)


def _leave_out(result: SortedRequirements, folder: str) -> None:
    """Remove the lines of requirements files that install the project's own folder (-e .)."""
    for need in [need for need in result.needs if need.local == folder]:
        del result.needs[need]
        result.left_out[f"{need.text} ({need.origin}) is ignored: project: has install: false"] = None


def _find_implied(needs: Mapping[RequirementLine, None], companions: Mapping[str, str]) -> dict[str, None]:
    """Return the frameworks that companions imply."""
    named = (companions.get(normalize_name(n.name)) for n in needs if n.name and not n.constraint)
    return dict.fromkeys(framework for framework in named if framework)


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
