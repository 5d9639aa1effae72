"""Whether a build backend misses the package that it looks for by the project's name.

poetry-core, hatchling, flit and uv's own backend take the folder or the module of the project's name, at the top or
in src/, where pyproject.toml does not say otherwise. They refuse to build a project that has neither.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ..requirements.project_folder import table_at

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

# The first part of build-backend -> the name to show, and the table of pyproject.toml that may name other contents
_BACKENDS = {
    "poetry": ("poetry", ("tool", "poetry"), ("packages", "include")),
    "hatchling": ("hatchling", ("tool", "hatch"), ("build",)),
    "flit_core": ("flit", ("tool", "flit"), ("module", "metadata")),
    "uv_build": ("uv", ("tool", "uv"), ("build-backend",)),
}


def find_missing_package(folder: Path, pyproject: Mapping[str, Any]) -> str | None:
    """Return the sentence for a package that the build backend looks for and does not find; None where it finds
    it, or where pyproject.toml names what to take."""
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
    """Whether a folder has the package or module, also in a folder of its own (a namespace)."""
    if not place.is_dir():
        return False
    wanted = {module, f"{module}.py", f"{module}.pyi", f"{module}-stubs"}
    names = {entry.name for entry in place.iterdir()}
    names |= {entry.parent.name for entry in place.glob("*/*/__init__.py")}
    return not wanted.isdisjoint(names | {name.replace("-", "_").lower() for name in names})
