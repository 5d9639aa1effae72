"""Scan the folder of a project for `init`: its files, its main programs, and what they decide."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name

from ..errors import UsageError
from ..model import PROJECT_FRAMEWORKS
from . import files
from .demands import ProjectFiles, SortingRules, read_project_requirements, sort_requirements
from .folder import FolderFindings, PackageFacts, list_first
from .imports import add_imports, find_framework_users, find_imports, find_reason, states_requirements
from .lines import ParsedRequirement, parse_line
from .uv import read_uv

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from ..model import ProjectRequirements, RequirementLine, VersionBound
    from .lines import SourceLine


def scan_folder(folder: Path, known: PackageFacts, environ: Mapping[str, str]) -> FolderFindings:
    """Scan a folder without running anything in it."""
    findings = FolderFindings(not_installed=find_reason(folder))
    covered: set[str] = set()
    for name, listed in _list_candidates(folder):
        if name and str((folder / name).absolute()) in covered:
            continue
        try:
            required = _read_file(findings, folder, name, known, environ)
        except UsageError as error:
            findings.remarks.append(f"{name or 'the project'} is not listed: {error.message}")
            continue
        covered |= set(required.files)
        if not listed:
            findings.remarks.append(f"{name} is not listed: add it to requirements if the project needs it")
            findings.unlisted |= {canonicalize_name(n.name): name or "" for n in required.needs if n.name}
        elif required.missing:
            findings.remarks += [f"{name} is not listed: {missing}" for missing in required.missing]
            _carry_frameworks(findings, required.frameworks, required.bounds, {}, default=name or "")
            _carry_needs(findings, folder, required.needs)
        else:
            _record_file(findings, name, required, known.companions)
            if not states_requirements(folder) and any(
                n.local == str(folder.resolve()) for n in required.needs
            ):
                findings.project = "."  # the file requires the folder, which install: false omits
    _read_conda_file(findings, folder, known, environ)
    _uv(findings, folder)
    _record_imports(findings, folder, known)
    return findings


def _record_file(
    findings: FolderFindings, name: str | None, required: ProjectRequirements, companions: Mapping[str, str]
) -> None:
    """Record a file that gpuenv.yaml can list. `name` is None for the project itself."""
    if name is None:
        findings.project = "."
    else:
        findings.requirements.append(name)
    findings.named |= {canonicalize_name(need.name): need.text for need in required.needs if need.name}
    findings.bounded |= {bound.name for bound in required.bounds}
    cpu = {one.framework for one in required.cpu}
    beside = set(required.frameworks) - cpu
    if (
        not beside and "tensorflow" in cpu
    ):  # tensorflow-cpu means the CPU, while the plan chooses the build of jax
        findings.device = findings.device or "cpu"
    for framework in [f for f in required.frameworks if f in beside or not beside]:
        findings.frameworks.setdefault(framework, _find_origin(required, framework, companions))


def _carry_frameworks(
    findings: FolderFindings,
    frameworks: Iterable[str],
    bounds: Iterable[VersionBound],
    origins: Mapping[str, str],
    *,
    default: str,
) -> None:
    """Copy frameworks with their bounds from a file that gpuenv.yaml cannot list."""
    bounds = list(bounds)
    for framework in frameworks:
        matching = [bound for bound in bounds if bound.name == framework]
        origin = matching[0].origin if matching else origins.get(framework, default)
        specifier = ",".join(dict.fromkeys(bound.specifier for bound in matching))
        if specifier and (framework in findings.bounded or findings.bounds.get(framework)):
            findings.remarks.append(
                f"{framework}{specifier} ({origin}) is not listed, because another file sets the bounds of {framework}"
            )
        elif specifier or framework not in findings.frameworks:
            findings.frameworks[framework] = origin
            findings.bounds[framework] = specifier


def _carry_needs(findings: FolderFindings, folder: Path, needs: Iterable[RequirementLine]) -> None:
    """Copy packages from a file that gpuenv.yaml cannot list."""
    for need in needs:
        if need.local and need.local == str(folder.resolve()):
            findings.project = findings.project or "."
        elif need.name is None or need.local or need.constraint:
            findings.remarks.append(f"{need.text} ({need.origin}) cannot be listed under packages")
        elif findings.named.get(name := canonicalize_name(need.name)) in (None, need.name):
            # no file requires it so far, or one does without bounds
            findings.named[name] = need.text
            findings.packages[need.text] = need.origin


# Covers common misspellings: requirments_gpu.txt, requirement.txt
_LISTS_PACKAGES = re.compile(r"requ?ire?me?nt", re.IGNORECASE)


def _list_candidates(folder: Path) -> list[tuple[str | None, bool]]:
    """Return the requirements files, and None for the project's own files, each with whether to list it.

    Of several requirements files, requirements.txt is listed. A single one is always listed.
    """
    candidates: list[tuple[str | None, bool]] = []
    if states_requirements(folder):
        candidates.append((None, True))
    names = [p.name for p in sorted(folder.glob("*.txt")) if p.is_file() and _LISTS_PACKAGES.search(p.name)]
    if not names:
        names = [f"requirements/{p.name}" for p in sorted(folder.glob("requirements/*.txt")) if p.is_file()]
    main = next(
        (n for n in ("requirements.txt", "requirements/base.txt", "requirements/main.txt") if n in names),
        None,
    )
    only = names[0] if len(names) == 1 else None
    return candidates + [(name, name in (main, only)) for name in names]


def _read_file(
    findings: FolderFindings, folder: Path, name: str | None, known: PackageFacts, environ: Mapping[str, str]
) -> ProjectRequirements:
    install = name is not None or not findings.not_installed
    files = ProjectFiles(
        requirements=[folder / name] if name else [],
        folder=None if name else folder,
        skip_missing=True,
        install=install,
    )
    rules = SortingRules(markers={}, stack=known.stack)
    return read_project_requirements(files, environ, rules, known.companions)


def _find_origin(required: ProjectRequirements, framework: str, companions: Mapping[str, str]) -> str:
    """Return the first place that names a framework."""
    for bound in required.bounds:
        if bound.name == framework:
            return bound.origin
    for need in required.needs:
        if companions.get((need.name or "").lower()) == framework:
            return f"{need.name} in {need.origin}"
    return ", ".join(sorted({path.rpartition("/")[2] for path in required.files}))


# --- conda's environment.yml -------------------------------------------------------------------


def _read_conda_file(
    findings: FolderFindings, folder: Path, known: PackageFacts, environ: Mapping[str, str]
) -> None:
    """Copy the requirements of a conda environment file."""
    name = next((n for n in files.FILES if (folder / n).is_file()), None)
    if name is None:
        return
    try:
        read = files.read_environment_file(folder, name, known.conda, known.wheels, environ)
    except UsageError as error:
        findings.remarks.append(error.message)
        return
    findings.python, findings.cuda, findings.device = read.python, read.cuda, read.device
    findings.find_links += read.find_links
    findings.remarks += read.left
    lines = list(_parse_lines(findings, read.lines))
    try:
        result = sort_requirements(lines, SortingRules(markers={}, stack=known.stack))
    except UsageError as error:
        findings.remarks.append(f"{name} is ignored: {error.message}")
        return
    had_project = findings.project
    origins = {one.name: one.line.origin for one in reversed(lines) if one.name}
    _carry_frameworks(findings, result.frameworks, result.bounds, origins, default=name)
    _carry_needs(findings, folder, result.needs)
    findings.remarks += result.left_out
    for included in read.included:
        _include(findings, folder, included, name, known, environ)
    if findings.project and not had_project:
        _include(findings, folder, None, name, known, environ)


def _parse_lines(findings: FolderFindings, lines: Iterable[SourceLine]) -> Iterator[ParsedRequirement]:
    for line in lines:
        try:
            yield parse_line(line)
        except UsageError as error:
            findings.remarks.append(error.message)


# Six parameters: the result, the file and who names it, and the facts that all readers of files here share.
def _include(
    findings: FolderFindings,
    folder: Path,
    name: str | None,
    by: str,
    known: PackageFacts,
    environ: Mapping[str, str],
) -> None:
    """Record a requirements file, or the project (None), that an environment file names."""
    if name in findings.requirements:
        return
    try:
        _record_file(findings, name, _read_file(findings, folder, name, known, environ), known.companions)
    except UsageError as error:
        findings.remarks.append(f"{name or 'the project'} ({by}) is not listed: {error.message}")
        findings.project = findings.project if name else None


# --- uv ----------------------------------------------------------------------------------------


def _uv(findings: FolderFindings, folder: Path) -> None:
    """Copy the requirements of a uv project. A value from another file has priority."""
    read = read_uv(folder, set(findings.frameworks))
    for framework, origin in read.frameworks.items():
        findings.frameworks[framework] = origin
    if not findings.device and not findings.cuda:
        findings.cuda, findings.cuda_origin = read.cuda, read.cuda_origin
    if not findings.cuda:
        findings.device = findings.device or read.device
    findings.python = findings.python or read.python
    findings.remarks += read.remarks


# --- imports ---------------------------------------------------------------------------------


def _record_imports(findings: FolderFindings, folder: Path, known: PackageFacts) -> None:
    """Record the imported framework if no file names one, and imported packages that no file names."""
    listed = bool(findings.requirements or findings.project)
    seen = find_imports(folder, [module for module in known.imports if "." in module], listed=listed)
    users = find_framework_users(seen, known)
    ranked = sorted(users, key=lambda name: (-len(users[name]), PROJECT_FRAMEWORKS.index(name)))
    if not findings.frameworks and ranked:
        first = ranked.pop(0)
        findings.frameworks[first] = f"imported in {list_first(users[first])}"
    for name in ranked:
        if name not in findings.frameworks:
            findings.remarks.append(f"{name} is imported in {list_first(users[name])}, but not listed")
    add_imports(findings, seen, known)
    modules = sorted((m for m in seen if seen[m].files and m not in PROJECT_FRAMEWORKS), key=str.lower)
    findings.imported = {module: f"imported in {list_first(seen[module].files)}" for module in modules}
