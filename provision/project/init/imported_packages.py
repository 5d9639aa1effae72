"""Convert imports into packages that no file of the project requires."""

from __future__ import annotations

from collections.abc import Mapping

from packaging.utils import canonicalize_name

from provision.model import PROJECT_FRAMEWORKS

from .folder_findings import FolderFindings, PackageFacts, list_first
from .imports import ImportedModule


def find_framework_users(seen: Mapping[str, ImportedModule], known: PackageFacts) -> dict[str, list[str]]:
    """Return the files that import each framework, a package of its builds, or a package that implies it."""
    users: dict[str, list[str]] = {}
    implied: dict[str, list[str]] = {}
    for module, imported in seen.items():
        row = known.imports.get(module)
        framework = known.companions.get(module.replace("_", "-"), module)
        if framework in PROJECT_FRAMEWORKS:
            users.setdefault(framework, []).extend(imported.all_files)
        elif row and row.implies:  # keras runs on any framework, so an imported framework has priority
            implied.setdefault(row.implies, []).extend(imported.all_files)
    return {framework: sorted(set(files)) for framework, files in (users or implied).items()}


def add_imports(findings: FolderFindings, seen: Mapping[str, ImportedModule], known: PackageFacts) -> None:
    """Add the packages that programs import and no file of the project requires.

    A module with a row of known names becomes a package. If the project lists requirements, the module must also be
    imported at the top level of a program, and most programs that import it must need it. Other packages are suggested,
    and so are those that only an unlisted requirements file names. A module without a row is only mentioned: anyone may
    have registered its name on an index.
    """
    listed = bool(findings.requirements or findings.project)
    for module in sorted(seen, key=str.lower):
        imported = seen[module]
        package = _find_package(module, known)
        if module in PROJECT_FRAMEWORKS or _is_covered(module, package, findings, known):
            continue
        where = imported.files or imported.aside or imported.inner or imported.apart
        if package is None:
            known_parts = any(other.startswith(f"{module}.") for other in seen)
            if where and not known_parts:
                findings.remarks.append(
                    f"{module}, imported in {list_first(where)}: gpuenv does not know its package name"
                )
        elif where or imported.guarded:
            other = listed and _find_unlisted_file(package, module, findings, known)
            if other or not _is_needed(imported, listed=listed):
                listing = f"; {other} lists it" if other else ""
                findings.suggested[package] = _describe_places(imported) + listing
                continue
            findings.packages[package] = f"imported in {list_first(where)}"
            findings.named[canonicalize_name(package)] = package


def _is_needed(imported: ImportedModule, *, listed: bool) -> bool:
    """Return whether programs need a module to start.

    A project that lists requirements omits a module on purpose if as many programs catch its ImportError, or if only
    secondary programs import it. Side folders with their own documents never count.
    """
    if listed:
        return len(imported.files) > len(imported.guarded)
    return bool(imported.files or imported.aside or imported.inner)


def _describe_places(imported: ImportedModule) -> str:
    if imported.guarded and not imported.inner:
        return f"optional import (inside try/except) in {list_first(imported.guarded)}"
    if imported.inner and not imported.files:
        return f"imported in a function or notebook: {list_first(imported.inner)}"
    if imported.files or imported.aside:
        return f"imported in {list_first(imported.files or imported.aside)}"
    return f"imported outside the main programs: {list_first(imported.apart)}"


def _find_package(module: str, known: PackageFacts) -> str | None:
    """Return the package of a module, or None without a row."""
    if module.replace("_", "-") in known.companions:
        return module
    row = known.imports.get(module)
    return row.package if row else None


def _find_unlisted_file(
    package: str, module: str, findings: FolderFindings, known: PackageFacts
) -> str | None:
    """Return the unlisted requirements file that names a package, or None."""
    row = known.imports.get(module)
    names = [canonicalize_name(name) for name in (package, *(row.also if row else ()))]
    return next((findings.unlisted[n] for n in names if n in findings.unlisted), None)


def _is_covered(module: str, package: str | None, findings: FolderFindings, known: PackageFacts) -> bool:
    """Return whether a file of the project, the plan or the framework provides a module."""
    row = known.imports.get(module)
    others = row.also if row else ()
    names = {canonicalize_name(name) for name in (module, package, *others) if name}
    brought = known.stack if findings.frameworks else frozenset()
    with_framework = package == "keras" and "tensorflow" in findings.frameworks
    return bool(names & findings.named.keys() or names & brought) or with_framework
