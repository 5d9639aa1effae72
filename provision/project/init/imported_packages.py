"""Imports as packages: what programs import and no file of the project asks for."""

from __future__ import annotations

from collections.abc import Mapping

from packaging.utils import canonicalize_name

from provision.model import FRAMEWORKS

from .detected_packages import Known, Signs, some
from .imports import Import


def framework_users(seen: Mapping[str, Import], known: Known) -> dict[str, list[str]]:
    """The files that import each framework, a package of its builds, or a package that implies it."""
    users: dict[str, list[str]] = {}
    implied: dict[str, list[str]] = {}
    for module, imported in seen.items():
        row = known.imports.get(module)
        framework = known.companions.get(module.replace("_", "-"), module)
        if framework in FRAMEWORKS:
            users.setdefault(framework, []).extend(imported.all_files)
        elif row and row.implies:  # keras may run on any framework: where one is imported, that one is meant
            implied.setdefault(row.implies, []).extend(imported.all_files)
    return {framework: sorted(set(files)) for framework, files in (users or implied).items()}


def add_imports(found: Signs, seen: Mapping[str, Import], known: Known) -> None:
    """Add the packages that programs import and no file of the project asks for.

    A module with a row of known names becomes a package; where the project lists requirements, only if it is
    imported at the top level of a program, and if most programs that import it need it. The rest is suggested. A
    module without a row is only named: its distribution is a guess, and a stranger may have registered the name.
    Where the project lists requirements, what only its other requirements files name is suggested too.
    """
    listed = bool(found.requirements or found.project)
    for module in sorted(seen, key=str.lower):
        imported = seen[module]
        package = _package(module, known)
        if module in FRAMEWORKS or _is_covered(module, package, found, known):
            continue
        where = imported.files or imported.aside or imported.inner or imported.apart
        if package is None:
            known_parts = any(other.startswith(f"{module}.") for other in seen)
            if where and not known_parts:
                found.remarks.append(f"{module}, imported in {some(where)}, is of no known distribution")
        elif where or imported.guarded:
            other = listed and _of_other_file(package, module, found, known)
            if other or not _is_needed(imported, listed=listed):
                said = f"; {other}, which is not listed, has it" if other else ""
                found.suggested[package] = _say_where(imported) + said
                continue
            found.packages[package] = f"imported in {some(where)}"
            found.named[canonicalize_name(package)] = package


def _is_needed(imported: Import, *, listed: bool) -> bool:
    """Whether programs need a module to start. A project that lists requirements has left out the module on purpose
    where as many programs do without it (a `try` that catches ImportError), or where programs aside import it. Side
    folders with documents of their own never count."""
    if listed:
        return len(imported.files) > len(imported.guarded)
    return bool(imported.files or imported.aside or imported.inner)


def _say_where(imported: Import) -> str:
    if imported.guarded and not imported.inner:
        return f"imported where it may be missing: {some(imported.guarded)}"
    if imported.inner and not imported.files:
        return f"imported in a function or notebook: {some(imported.inner)}"
    if imported.files or imported.aside:
        return f"imported in {some(imported.files or imported.aside)}"
    return f"imported beside the main programs: {some(imported.apart)}"


def _package(module: str, known: Known) -> str | None:
    """The distribution that brings a module; None where no row says so."""
    if module.replace("_", "-") in known.companions:
        return module
    row = known.imports.get(module)
    return row.package if row else None


def _of_other_file(package: str, module: str, found: Signs, known: Known) -> str | None:
    """The requirements file that is not listed and names a package, where another one is listed."""
    row = known.imports.get(module)
    names = [canonicalize_name(name) for name in (package, *(row.also if row else ()))]
    return next((found.unlisted[n] for n in names if n in found.unlisted), None)


def _is_covered(module: str, package: str | None, found: Signs, known: Known) -> bool:
    """Whether a file of the project, the plan or the framework brings a module."""
    row = known.imports.get(module)
    others = row.also if row else ()
    names = {canonicalize_name(name) for name in (module, package, *others) if name}
    brought = known.stack if found.frameworks else frozenset()
    with_framework = package == "keras" and "tensorflow" in found.frameworks
    return bool(names & found.named.keys() or names & brought) or with_framework
