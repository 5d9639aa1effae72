"""Find projects whose build backend expects a package of the project's name that is missing.

By default poetry-core, hatchling, flit and uv's backend build the folder or module of the project's name, at the top or
in src/. They fail to build a project that has neither.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ..requirements.read_project_toml_and_setup_files import table_at

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

# First part of build-backend -> its name in messages, and the pyproject.toml table that may name other contents
_BACKENDS = {
    "poetry": ("poetry", ("tool", "poetry"), ("packages", "include")),
    "hatchling": ("hatchling", ("tool", "hatch"), ("build",)),
    "flit_core": ("flit", ("tool", "flit"), ("module", "metadata")),
    "uv_build": ("uv", ("tool", "uv"), ("build-backend",)),
}


def find_missing_package(folder: Path, pyproject: Mapping[str, Any]) -> str | None:
    """Return a sentence about the missing package, or None if the build backend finds its contents."""
    data = dict(pyproject)
    backend = str(table_at(data, "build-system").get("build-backend", "")).partition(".")[0]
    name = table_at(data, "project").get("name") or table_at(data, "tool", "poetry").get("name")
    if backend not in _BACKENDS or not isinstance(name, str):
        return None
    shown, table, keys = _BACKENDS[backend]
    if any(key in table_at(data, *table) for key in keys):
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
