"""Which modules a folder's programs import, read from their text and never run."""

from __future__ import annotations

import ast
import json
import os
import re
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MOST_FILES = 500
MOST_BYTES = 200_000  # of one source: what is deeper than a stack goes into that is no program of people
MOST_NOTEBOOK_BYTES = 4 << 20
MOST_FOLDERS = 2_000
_SKIPPED = {
    "node_modules",
    "site-packages",
    "build",
    "dist",
    "__pycache__",
    "venv",
    "env",
    "vendor",
    "third_party",
}


def imported(folder: Path, modules: Iterable[str]) -> dict[str, list[str]]:
    """The files, below the folder, that import each of the modules. At most some hundred programs and
    notebooks are read, none of them large; what is no Python is passed over."""
    wanted = set(modules)
    found: dict[str, list[str]] = {}
    for path in programs(folder):
        for module in sorted(_modules(path, wanted)):
            found.setdefault(module, []).append(path.relative_to(folder).as_posix())
    return found


def programs(folder: Path) -> Iterator[Path]:
    """Programs and notebooks below a folder, the nearest first, without environments and hidden folders."""
    folders, read = [folder], 0
    for visited, place in enumerate(folders):
        if visited >= MOST_FOLDERS:
            return
        try:
            entries = sorted(os.scandir(place), key=lambda e: e.name)
        except OSError:
            continue
        for entry in entries:
            if entry.name.startswith("."):
                continue
            try:
                if entry.is_dir(follow_symlinks=False):
                    environment = (
                        Path(entry.path, "pyvenv.cfg").exists() or Path(entry.path, "conda-meta").exists()
                    )
                    if entry.name not in _SKIPPED and not environment:
                        folders.append(Path(entry.path))
                elif entry.name.endswith((".py", ".ipynb")) and _is_small(entry):
                    read += 1
                    yield Path(entry.path)
            except OSError:
                continue
            if read >= MOST_FILES:
                return


def _is_small(entry: os.DirEntry[str]) -> bool:
    most = MOST_NOTEBOOK_BYTES if entry.name.endswith(".ipynb") else MOST_BYTES
    return entry.is_file() and entry.stat().st_size <= most


def _modules(path: Path, wanted: set[str]) -> set[str]:
    """Those of the wanted modules that a program or notebook imports; empty where it cannot be read."""
    try:
        data = path.read_bytes()[: MOST_NOTEBOOK_BYTES + 1]
        if not any(name.encode() in data for name in wanted):
            return set()
        sources = _cells(data) if path.suffix == ".ipynb" else [data]
    except (OSError, ValueError, RecursionError):
        return set()
    return wanted & set().union(*(_imports(source) for source in sources if len(source) <= MOST_BYTES))


def _imports(source: bytes) -> set[str]:
    """The first parts of the modules that a source imports; empty where it is no Python."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # escapes and comparisons of other people's code
            tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return set()
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            found.add(node.module.partition(".")[0])
    return found


def _cells(data: bytes) -> list[bytes]:
    """The code cells of a notebook, without the lines that only a notebook understands."""
    notebook = json.loads(data)
    cells = notebook.get("cells") if isinstance(notebook, dict) else None
    found = []
    for cell in cells if isinstance(cells, list) else []:
        if isinstance(cell, dict) and cell.get("cell_type") == "code":
            source = cell.get("source", "")
            text = "".join(map(str, source)) if isinstance(source, list) else str(source)
            found.append(re.sub(r"(?m)^\s*[%!?].*$", "", text).encode("utf-8", "replace"))
    return found
