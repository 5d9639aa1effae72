"""All files of a project -> ProjectRequirements: frameworks and bounds for the plan, the rest for the solver."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from provision.errors import UsageError
from provision.model import PROJECT_FOLDER, ProjectRequirements, RequirementLine

from ..quoted_text import shown
from .cpu_packages import cpu_packages
from .planned_packages import Sorted, sort
from .pyproject import Stated
from .requirement import BUILDABLE, Line, parse
from .requirements_files import Reading, base_of, read


def demands(
    requirements: Sequence[Path],
    project_dir: Path | None = None,
    extras: Sequence[str] = (),
    groups: Sequence[str] = (),
    packages: Sequence[tuple[str, str]] = (),
    *,
    environ: Mapping[str, str],
    markers: Mapping[str, str],
    stack: frozenset[str] = frozenset(),
    companions: Mapping[str, str] | None = None,
    skip_missing: bool = False,
    install: bool = True,
) -> ProjectRequirements:
    """What requirements files, a project's folder and single packages (each with its origin) ask for.

    `markers` is what is known of the target's marker variables. `stack` are the canonical names of
    distributions that a framework's build brings along; `companions` maps names that imply a framework
    (torchvision) to it, for files that name only them. With `skip_missing`, included files that do not exist
    are named in the answer's `missing`. Without `install` the project's folder is read for its dependencies and is
    not installed. Nothing is run and nothing fetched.
    Raises UsageError naming file and line.
    """
    reading = Reading(environ=environ, base=base_of(requirements, project_dir), skip_missing=skip_missing)
    for path in requirements:
        read(reading, path)
    stated: Stated | None = None
    if project_dir is not None:
        from .pyproject import read_project

        stated = read_project(reading, project_dir.absolute(), extras, groups, install=install)
    lines = [
        *reading.lines,
        *(Line(text=reading.expanded(t, o), origin=o, folders=(Path.cwd(),)) for t, o in packages),
    ]
    parsed = [parse(line) for line in lines]
    result = sort(parsed, stack, markers)
    if project_dir is not None and stated and stated.installable:
        result.needs[_itself(project_dir.absolute(), stated.name)] = None
    elif project_dir is not None and not install:
        _leave_out(result, str(project_dir.resolve()))
    for need in result.needs:  # what a folder states decides the lock as much as a requirements file
        beside = [Path(need.local) / name for name in BUILDABLE] if need.local else []
        reading.files |= {str(path): None for path in beside if path.is_file()}
    frameworks = result.frameworks or _implied(result.needs, companions or {})
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
        cpu=cpu_packages(parsed, stack, markers),
        stack=tuple(result.stack),
    )


def _itself(folder: Path, name: str | None) -> RequirementLine:
    """The project's own folder, so that its modules can be imported."""
    folder = folder.resolve()
    text = f"{name} @ {folder.as_uri()}" if name else folder.as_uri()
    return RequirementLine(text=text, origin=PROJECT_FOLDER, name=name, local=str(folder), editable=True)


def _leave_out(result: Sorted, folder: str) -> None:
    """Leave out the lines of requirements files that install the project's own folder (-e .)."""
    for need in [need for need in result.needs if need.local == folder]:
        del result.needs[need]
        result.left_out[f"{need.text} ({need.origin}) is left out: project: has install: false"] = None


def _implied(needs: Mapping[RequirementLine, None], companions: Mapping[str, str]) -> dict[str, None]:
    """The frameworks of companions, where the files name no framework themselves."""
    from packaging.utils import canonicalize_name

    named = (companions.get(canonicalize_name(n.name)) for n in needs if n.name and not n.constraint)
    return dict.fromkeys(framework for framework in named if framework)


def _specifier(stated: Stated | None) -> str:
    """requires-python as PEP 440. Raises UsageError."""
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    if stated is None or not stated.requires_python:
        return ""
    try:
        return str(SpecifierSet(stated.requires_python))
    except (InvalidSpecifier, ValueError) as error:
        raise UsageError(
            f"{stated.python_origin}: {shown(stated.requires_python)!r} is no version specifier",
            hint="write it as >=3.10",
        ) from error
