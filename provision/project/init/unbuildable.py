"""Find the reason why a folder's project cannot be built and installed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from provision.errors import UsageError

from ..requirements.read_project_toml_and_setup_files import read_setup_cfg, read_toml, table_at
from ..requirements.uv_keys import SUPPORTED_KEYS
from .flat_layout import find_several
from .package_expected_by_backend import find_missing_package

if TYPE_CHECKING:
    from pathlib import Path


def find_reason(folder: Path) -> str | None:
    """Return why a folder's project is not installable, without running anything in it.

    Returns None for an installable project, and for files that cannot be read.
    """
    try:
        path = folder / "pyproject.toml"
        data = read_toml(path, path.name)[0] if path.is_file() else {}
        if table_at(data, "tool", "poetry").get("package-mode") is False:
            return "pyproject.toml sets package-mode = false in [tool.poetry]"
        if table_at(data, "tool", "uv").get("package") is False:
            return "pyproject.toml sets package = false in [tool.uv]"
        if has_tool_settings_only(folder, data):
            return "its files contain only settings of tools"
        if _uses_setuptools(folder, data) and (several := find_several(folder, data)):
            kind, names = several
            more = f" and {len(names) - 3} more" if len(names) > 3 else ""
            return f"setuptools refuses several top-level {kind}: {', '.join(names[:3])}{more}"
        if missing := find_missing_package(folder, data):
            return missing
    except (UsageError, OSError):
        return None
    return None


def states_requirements(folder: Path) -> bool:
    """Return whether the project's files state requirements.

    They state a project, or pyproject.toml has dependency groups or uv settings about package sources.
    """
    try:
        path = folder / "pyproject.toml"
        data = read_toml(path, path.name)[0] if path.is_file() else {}
        if not has_tool_settings_only(folder, data):
            return _states_project(folder, data)
    except UsageError:
        return True  # reading it as a project reports the mistake
    settings = table_at(data, "tool", "uv").keys() & SUPPORTED_KEYS
    return bool(settings) or "dependency-groups" in data or "group" in table_at(data, "tool", "poetry")


def has_tool_settings_only(folder: Path, pyproject: dict[str, Any]) -> bool:
    """Return whether pyproject.toml and setup.cfg only configure tools. Raises UsageError."""
    return "build-system" not in pyproject and not _states_project(folder, pyproject)


def _states_project(folder: Path, pyproject: dict[str, Any]) -> bool:
    if "project" in pyproject or "dependencies" in table_at(pyproject, "tool", "poetry"):
        return True
    if (folder / "setup.py").is_file():
        return True
    path = folder / "setup.cfg"
    return path.is_file() and bool({"metadata", "options"} & read_setup_cfg(path, path.name).keys())


def _uses_setuptools(folder: Path, pyproject: dict[str, Any]) -> bool:
    system = table_at(pyproject, "build-system")
    backend = system.get("build-backend", "setuptools.build_meta:__legacy__")
    built = "build-system" in pyproject or (folder / "setup.py").is_file()
    return built and "backend-path" not in system and str(backend).startswith("setuptools.")
