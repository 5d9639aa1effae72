"""What a folder shows of the frameworks and packages that its project uses: its files, and its imports."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name

from provision.errors import UsageError
from provision.model import FRAMEWORKS

from ..requirements import conda_environment
from ..requirements.planned_packages import sort
from ..requirements.project_demands import demands
from ..requirements.requirement import Parsed, parse
from .detected_packages import Known, Signs, some
from .imported_packages import add_imports, framework_users
from .imports import third_party
from .unbuildable import find_reason, is_read
from .uv_project import read_uv

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from provision.model import ProjectRequirements, RequirementLine, VersionBound

    from ..requirements.requirement import Line


def signs(folder: Path, known: Known, environ: Mapping[str, str]) -> Signs:
    """Look at a folder; nothing of it is run."""
    found = Signs(not_installed=find_reason(folder))
    covered: set[str] = set()
    for name, listed in _candidates(folder):
        if name and str((folder / name).absolute()) in covered:
            continue
        try:
            asked = _read(found, folder, name, known, environ)
        except UsageError as error:
            found.remarks.append(f"{name or 'the project'} is not listed: {error.message}")
            continue
        covered |= set(asked.files)
        if not listed:
            found.remarks.append(f"{name} is not listed: add it to requirements if the project needs it")
            found.unlisted |= {canonicalize_name(n.name): name or "" for n in asked.needs if n.name}
        elif asked.missing:
            found.remarks += [f"{name} is not listed: {missing}" for missing in asked.missing]
            _carry_frameworks(found, asked.frameworks, asked.bounds, {}, default=name or "")
            _carry_needs(found, folder, asked.needs)
        else:
            _list(found, name, asked, known.companions)
            if not is_read(folder) and any(n.local == str(folder.resolve()) for n in asked.needs):
                found.project = "."  # the file asks for the folder, which install: false leaves out
    _conda(found, folder, known, environ)
    _uv(found, folder)
    _imports(found, folder, known)
    return found


def _list(found: Signs, name: str | None, asked: ProjectRequirements, companions: Mapping[str, str]) -> None:
    """List a file that gpuenv.yaml can name (None: the project itself)."""
    if name is None:
        found.project = "."
    else:
        found.requirements.append(name)
    found.named |= {canonicalize_name(need.name): need.text for need in asked.needs if need.name}
    found.bounded |= {bound.name for bound in asked.bounds}
    cpu = {one.framework for one in asked.cpu}
    beside = set(asked.frameworks) - cpu
    if not beside and "tensorflow" in cpu:  # tensorflow-cpu says so; of jax the plan picks the build
        found.device = found.device or "cpu"
    for framework in [f for f in asked.frameworks if f in beside or not beside]:
        found.frameworks.setdefault(framework, _where(asked, framework, companions))


def _carry_frameworks(
    found: Signs,
    frameworks: Iterable[str],
    bounds: Iterable[VersionBound],
    origins: Mapping[str, str],
    *,
    default: str,
) -> None:
    """Take over frameworks of a file that gpuenv.yaml cannot name, each with its bounds."""
    bounds = list(bounds)
    for framework in frameworks:
        mine = [bound for bound in bounds if bound.name == framework]
        origin = mine[0].origin if mine else origins.get(framework, default)
        specifier = ",".join(dict.fromkeys(bound.specifier for bound in mine))
        if specifier and (framework in found.bounded or found.bounds.get(framework)):
            found.remarks.append(f"{framework}{specifier} ({origin}) is not listed: another file has bounds")
        elif specifier or framework not in found.frameworks:
            found.frameworks[framework] = origin
            found.bounds[framework] = specifier


def _carry_needs(found: Signs, folder: Path, needs: Iterable[RequirementLine]) -> None:
    """Take over packages of a file that gpuenv.yaml cannot name."""
    for need in needs:
        if need.local and need.local == str(folder.resolve()):
            found.project = found.project or "."
        elif need.name is None or need.local or need.constraint:
            found.remarks.append(f"{need.text} ({need.origin}) cannot be listed under packages")
        elif found.named.get(name := canonicalize_name(need.name)) in (None, need.name):
            # no file asks for it so far, or one does without bounds
            found.named[name] = need.text
            found.packages[need.text] = need.origin


# Also as people misspell it: requirments_gpu.txt, requirement.txt
_LISTS_PACKAGES = re.compile(r"requ?ire?me?nt", re.IGNORECASE)


def _candidates(folder: Path) -> list[tuple[str | None, bool]]:
    """The project's own files (None) and requirements files, and whether each is to be listed: of
    several requirements files the one named requirements.txt, else the only one."""
    found: list[tuple[str | None, bool]] = []
    if is_read(folder):
        found.append((None, True))
    names = [p.name for p in sorted(folder.glob("*.txt")) if p.is_file() and _LISTS_PACKAGES.search(p.name)]
    if not names:
        names = [f"requirements/{p.name}" for p in sorted(folder.glob("requirements/*.txt")) if p.is_file()]
    main = next(
        (n for n in ("requirements.txt", "requirements/base.txt", "requirements/main.txt") if n in names),
        None,
    )
    only = names[0] if len(names) == 1 else None
    return found + [(name, name in (main, only)) for name in names]


def _read(
    found: Signs, folder: Path, name: str | None, known: Known, environ: Mapping[str, str]
) -> ProjectRequirements:
    files = [folder / name] if name else []
    return demands(
        files, None if name else folder, environ=environ, markers={}, stack=known.stack,
        companions=known.companions, skip_missing=True, install=name is not None or not found.not_installed,
    )  # fmt: skip


def _where(asked: ProjectRequirements, framework: str, companions: Mapping[str, str]) -> str:
    """Where a framework is named first."""
    for bound in asked.bounds:
        if bound.name == framework:
            return bound.origin
    for need in asked.needs:
        if companions.get((need.name or "").lower()) == framework:
            return f"{need.name} in {need.origin}"
    return ", ".join(sorted({path.rpartition("/")[2] for path in asked.files}))


# --- conda's environment.yml -------------------------------------------------------------------


def _conda(found: Signs, folder: Path, known: Known, environ: Mapping[str, str]) -> None:
    """Take over what a conda environment file asks for."""
    name = next((n for n in conda_environment.FILES if (folder / n).is_file()), None)
    if name is None:
        return
    try:
        read = conda_environment.read(folder, name, known.conda, known.wheels, environ)
    except UsageError as error:
        found.remarks.append(error.message)
        return
    found.python, found.cuda, found.device = read.python, read.cuda, read.device
    found.find_links += read.find_links
    found.remarks += read.left
    lines = list(_parsed(found, read.lines))
    try:
        result = sort(lines, known.stack, {})
    except UsageError as error:
        found.remarks.append(f"{name} is not taken over: {error.message}")
        return
    had_project = found.project
    origins = {one.name: one.line.origin for one in reversed(lines) if one.name}
    _carry_frameworks(found, result.frameworks, result.bounds, origins, default=name)
    _carry_needs(found, folder, result.needs)
    found.remarks += result.left_out
    for included in read.included:
        _include(found, folder, included, name, known, environ)
    if found.project and not had_project:
        _include(found, folder, None, name, known, environ)


def _parsed(found: Signs, lines: Iterable[Line]) -> Iterator[Parsed]:
    for line in lines:
        try:
            yield parse(line)
        except UsageError as error:
            found.remarks.append(error.message)


def _include(
    found: Signs, folder: Path, name: str | None, by: str, known: Known, environ: Mapping[str, str]
) -> None:
    """List a requirements file, or the project (None), that an environment file names."""
    if name in found.requirements:
        return
    try:
        _list(found, name, _read(found, folder, name, known, environ), known.companions)
    except UsageError as error:
        found.remarks.append(f"{name or 'the project'} ({by}) is not listed: {error.message}")
        found.project = found.project if name else None


# --- uv ----------------------------------------------------------------------------------------


def _uv(found: Signs, folder: Path) -> None:
    """Take over what a project of uv asks for: what another file says already stays."""
    read = read_uv(folder, set(found.frameworks))
    for framework, origin in read.frameworks.items():
        found.frameworks[framework] = origin
    if not found.device and not found.cuda:
        found.cuda, found.cuda_origin = read.cuda, read.cuda_origin
    if not found.cuda:
        found.device = found.device or read.device
    found.python = found.python or read.python
    found.remarks += read.remarks


# --- imports ---------------------------------------------------------------------------------


def _imports(found: Signs, folder: Path, known: Known) -> None:
    """The frameworks that programs import, where no file names one, and the packages that no file names."""
    listed = bool(found.requirements or found.project)
    seen = third_party(folder, [module for module in known.imports if "." in module], listed=listed)
    users = framework_users(seen, known)
    ranked = sorted(users, key=lambda name: (-len(users[name]), FRAMEWORKS.index(name)))
    if not found.frameworks and ranked:
        first = ranked.pop(0)
        found.frameworks[first] = f"imported in {some(users[first])}"
    for name in ranked:
        if name not in found.frameworks:
            found.remarks.append(f"{name} is imported in {some(users[name])}, and not listed")
    add_imports(found, seen, known)
    modules = sorted((m for m in seen if seen[m].files and m not in FRAMEWORKS), key=str.lower)
    found.imported = {module: f"imported in {some(seen[module].files)}" for module in modules}
