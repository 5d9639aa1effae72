"""Whether a folder is a project that can be built: what its files state, its layout, and what its backend expects."""

from __future__ import annotations

import os
import re
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from ..errors import UsageError
from ..model import PROJECT_FRAMEWORKS, name_few, requirement_name
from ..system import untrusted
from ..system.toml import Table, table_at
from .toml import read_pyproject, read_setup_arguments, read_setup_cfg
from .tree import read_bytes
from .uv import SUPPORTED_KEYS, list_members

if TYPE_CHECKING:
    from pathlib import Path


# First part of build-backend -> its name in messages, and the pyproject.toml table that may name other contents
_BACKENDS = {
    "poetry": ("poetry", ("tool", "poetry"), ("packages", "include")),
    "hatchling": ("hatchling", ("tool", "hatch"), ("build",)),
    "flit_core": ("flit", ("tool", "flit"), ("module", "metadata")),
    "uv_build": ("uv", ("tool", "uv"), ("build-backend",)),
}


def find_missing_package(folder: Path, pyproject: Table) -> str | None:
    """Return a sentence about the missing package, or None if the build backend finds its contents."""
    backend = str(table_at(pyproject, "build-system").get("build-backend", "")).partition(".")[0]
    name = table_at(pyproject, "project").get("name") or table_at(pyproject, "tool", "poetry").get("name")
    if backend not in _BACKENDS or not isinstance(name, str):
        return None
    shown, table, keys = _BACKENDS[backend]
    if any(key in table_at(pyproject, *table) for key in keys):
        return None
    module = re.sub(r"[-_.]+", "_", name).lower()
    if any(_holds(place, module) for place in (folder, folder / "src")):
        return None
    return f"{shown} finds no package or module {module}"


def _holds(place: Path, module: str) -> bool:
    """Return whether a folder has the package or module, also in a namespace folder."""
    if not place.is_dir():
        return False
    wanted = {module, f"{module}.py", f"{module}.pyi", f"{module}-stubs"}
    names = {entry.name for entry in place.iterdir()}
    names |= {entry.parent.name for entry in place.glob("*/*/__init__.py")}
    return not wanted.isdisjoint(names | {name.replace("-", "_").lower() for name in names})


_NOT_PACKAGES = (
    "ez_setup", "*__pycache__", "ci", "bin", "debian", "doc", "docs", "documentation", "manpages", "news",
    "newsfragments", "changelog", "test", "tests", "unit_test", "unit_tests", "example", "examples", "scripts",
    "tools", "util", "utils", "python", "build", "dist", "venv", "env", "requirements", "tasks", "fabfile",
    "site_scons", "benchmark", "benchmarks", "exercise", "exercises", "htmlcov", "[._]*",
)  # fmt: skip
_NOT_MODULES = (
    "setup", "conftest", "test", "tests", "example", "examples", "build", "toxfile", "noxfile", "pavement", "dodo",
    "tasks", "fabfile", "[Ss][Cc]onstruct", "conanfile", "manage", "benchmark", "benchmarks", "exercise",
    "exercises", "[._]*",
)  # fmt: skip
_NAMES_CONTENTS = ("packages", "py_modules", "configuration", "**")


def find_several(folder: Path, pyproject: Table) -> tuple[str, list[str]] | None:
    """Return "packages" or "modules" and their names if setuptools finds several, else None.

    `pyproject` is the content of the folder's pyproject.toml. Raises UsageError for a file that cannot be read.
    """
    stated = _read_settings(folder, pyproject)
    if stated is None or any(name in stated for name in _NAMES_CONTENTS):
        return None
    declarative = "project" in pyproject or table_at(pyproject, "tool", "setuptools")
    if "ext_modules" in stated and not declarative:
        return None
    places = stated.get("package_dir") or {}
    if not isinstance(places, dict) or any(places) or (folder / str(places.get("", "src"))).is_dir():
        return None
    entries = list(os.scandir(folder))
    folders = (e.name for e in entries if e.is_dir() and e.name.isidentifier())
    packages = sorted(name for name in folders if not _matches(name, _NOT_PACKAGES))
    if packages:
        return ("packages", packages) if len(packages) > 1 else None
    programs = (e.name.removesuffix(".py") for e in entries if e.name.endswith(".py"))
    modules = sorted(name for name in programs if name.isidentifier() and not _matches(name, _NOT_MODULES))
    return ("modules", modules) if len(modules) > 1 else None


def _read_settings(folder: Path, pyproject: dict[str, Any]) -> dict[str, Any] | None:
    """Return the package settings of the three files by setup()'s names, or None if setup.py does not call setup()."""
    settings: dict[str, Any] = {}
    if (path := folder / "setup.cfg").is_file():
        settings |= {
            key: value for key, value in read_setup_cfg(path, "setup.cfg").get("options", {}).items() if value
        }
        if "package_dir" in settings:
            rows = (row.partition("=") for row in settings["package_dir"].replace(",", "\n").splitlines())
            settings["package_dir"] = {key.strip(): value.strip() for key, _, value in rows if value}
    table = table_at(pyproject, "tool", "setuptools")
    settings |= {key.replace("-", "_"): value for key, value in table.items()}
    if (path := folder / "setup.py").is_file():
        words = read_setup_arguments(path, "setup.py")
        if words is None:
            return None
        settings |= words
    return settings


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def find_reason(folder: Path) -> str | None:
    """Return why a folder's project is not installable, without running anything in it.

    Returns None for an installable project, and for files that cannot be read.
    """
    try:
        data = read_pyproject(folder)
        if table_at(data, "tool", "poetry").get("package-mode") is False:
            return "pyproject.toml sets package-mode = false in [tool.poetry]"
        if table_at(data, "tool", "uv").get("package") is False:
            return "pyproject.toml sets package = false in [tool.uv]"
        if has_tool_settings_only(folder, data):
            return "its files contain only settings of tools"
        if _uses_setuptools(folder, data) and (several := find_several(folder, data)):
            kind, names = several
            return f"setuptools refuses several top-level {kind}: {name_few(names)}"
        if missing := find_missing_package(folder, data):
            return missing
        if imported := _find_build_import(folder, data):
            return f"setup.py imports {imported}, which a build does not have"
        if _lacks_version(folder, data):
            return "its version is that of a git repository, and this folder is none"
    except (UsageError, OSError):
        return None
    return None


_IMPORTS = re.compile(rf"^(?:import|from)[ \t]+({'|'.join(PROJECT_FRAMEWORKS)})\b", re.MULTILINE)


def _find_build_import(folder: Path, data: Table) -> str | None:
    """Return a framework that setup.py imports and that its build does not install."""
    path = folder / "setup.py"
    found = (
        _IMPORTS.findall(untrusted.decode(read_bytes(path, path.name), path.name)) if path.is_file() else []
    )
    return next((name for name in found if name not in _read_build_needs(data)), None)


def _read_build_needs(data: Table) -> set[str]:
    needs = table_at(data, "build-system").get("requires")
    return {requirement_name(n) for n in needs if isinstance(n, str)} if isinstance(needs, list) else set()


def _lacks_version(folder: Path, data: Table) -> bool:
    """Return whether the build backend asks git for the version, and there is neither git nor another version."""
    names = _read_build_needs(data)
    hatch = table_at(data, "tool", "hatch", "version")
    if "version" not in (table_at(data, "project").get("dynamic") or ()):
        return False
    if not ("setuptools-scm" in names or ("hatch-vcs" in names and hatch.get("source") == "vcs")):
        return False
    settings = {**table_at(data, "tool", "setuptools_scm"), **hatch, **table_at(hatch, "raw-options")}
    places = (folder.absolute(), *folder.absolute().parents)
    return not any(key.startswith("fallback") for key in settings) and not any(
        (place / ".git").exists() for place in places
    )


def states_requirements(folder: Path) -> bool:
    """Return whether the project's files state requirements.

    They state a project, or pyproject.toml has dependency groups or uv settings about package sources.
    """
    try:
        data = read_pyproject(folder)
        if not has_tool_settings_only(folder, data):
            return _states_project(folder, data)
    except UsageError:
        return True  # reading it as a project reports the mistake
    settings = table_at(data, "tool", "uv").keys() & SUPPORTED_KEYS
    return bool(settings) or "dependency-groups" in data or "group" in table_at(data, "tool", "poetry")


def has_tool_settings_only(folder: Path, pyproject: Table) -> bool:
    """Return whether pyproject.toml and setup.cfg only configure tools. Raises UsageError."""
    return "build-system" not in pyproject and not _states_project(folder, pyproject)


def _states_project(folder: Path, pyproject: Table) -> bool:
    if "project" in pyproject or "dependencies" in table_at(pyproject, "tool", "poetry"):
        return True
    if list_members(folder, pyproject):
        return True
    if (folder / "setup.py").is_file():
        return True
    path = folder / "setup.cfg"
    return path.is_file() and bool({"metadata", "options"} & read_setup_cfg(path, path.name).keys())


def _uses_setuptools(folder: Path, pyproject: Table) -> bool:
    system = table_at(pyproject, "build-system")
    backend = system.get("build-backend", "setuptools.build_meta:__legacy__")
    built = "build-system" in pyproject or (folder / "setup.py").is_file()
    return built and "backend-path" not in system and str(backend).startswith("setuptools.")
