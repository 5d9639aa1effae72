"""Which modules of others a folder's programs import, read from their text and never run."""

from __future__ import annotations

import ast
import json
import os
import re
import sys
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from .main_programs import Layout, layout

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

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
# Modules that Python brought until 3.11 are nobody's package either.
_PYTHONS_OWN = {*sys.stdlib_module_names, "asynchat", "asyncore", "distutils", "imp", "smtpd"}
_BINDING = ("files", "aside", "inner", "guarded")
_DEVELOPMENT = {"test", "tests", "testing", "doc", "docs", ".github"}
_DEVELOPMENT_FILE = re.compile(r"test_.*\.py|.*_test\.py|conftest\.py|setup\.py|noxfile\.py|tasks\.py")


@dataclass(kw_only=True, slots=True)
class Import:
    """A module that programs import, and where: `files` at their top level, `inner` inside functions or in
    notebooks only, `guarded` only where its absence is expected (in a `try` that catches ImportError). `aside` are
    programs that import it at their top level and are no main programs: those in a folder of scripts below a folder of
    the project (`utils/rest/`, without `__init__.py`), and those that the layout names. `apart` are programs of side
    folders with documents of their own. `development` are tests, documentation and build scripts, which no user of
    the project runs. Paths are relative, with /."""

    files: list[str] = field(default_factory=list)
    aside: list[str] = field(default_factory=list)
    inner: list[str] = field(default_factory=list)
    guarded: list[str] = field(default_factory=list)
    apart: list[str] = field(default_factory=list)
    development: list[str] = field(default_factory=list)

    @property
    def all_files(self) -> list[str]:
        return sorted({*self.files, *self.aside, *self.inner, *self.guarded, *self.apart, *self.development})


def third_party(folder: Path, submodules: Collection[str] = (), *, listed: bool = False) -> dict[str, Import]:
    """The modules that programs below a folder import, and that are neither Python's own nor the project's. Each is
    the first part of a dotted name; those of `submodules` ("torch.utils.tensorboard") are named as well. Where the
    project has `listed` its requirements, fewer programs count as main ones.

    At most some hundred programs and notebooks are read, none of them large. A file that is not Python is
    ignored. Nothing is run.
    """
    paths = list(programs(folder))
    own = _own_modules(folder, paths)
    read = {path: _modules(path, submodules) for path in paths}
    names = {path: path.relative_to(folder).as_posix() for path in paths}
    parts = layout(
        folder,
        {n: {m.partition(".")[0] for m in read[p]} for p, n in names.items() if not _is_development(n)},
    )
    found: dict[str, Import] = {}
    for path, name in names.items():
        aside = (listed and name in parts.aside) or _is_aside(path, folder)
        for module, binding in sorted(read[path].items()):
            first = module.partition(".")[0]
            if first in _PYTHONS_OWN or first in own or _is_beside(first, path, folder):
                continue
            place = _place(path, name, binding, parts, aside=aside)
            getattr(found.setdefault(module, Import()), place).append(name)
    return found


def _place(path: Path, name: str, binding: str, parts: Layout, *, aside: bool) -> str:
    """The field of Import that an import of a program belongs to."""
    if _is_development(name):
        return "development"
    if name in parts.apart and binding != "guarded":
        return "apart"
    if path.suffix == ".ipynb" and binding == "files":
        return "inner"
    return "aside" if binding == "files" and aside else binding


def _own_modules(folder: Path, paths: list[Path]) -> set[str]:
    """The project's packages: folders at its top, or below src/, that hold programs."""
    places = {path.relative_to(folder).parts[:-1] for path in paths}
    return {parts[parts[:1] == ("src",)] for parts in places if len(parts) > (parts[:1] == ("src",))}


def _is_aside(path: Path, root: Path) -> bool:
    """Whether a program lies two folders deep or more, in a folder that is no package."""
    parts = path.relative_to(root).parts[:-1]
    return len(parts) > 1 + (parts[:1] == ("src",)) and not (path.parent / "__init__.py").exists()


def _is_beside(module: str, path: Path, root: Path) -> bool:
    """Whether a program imports a neighbour: a file or package in its own folder, or in one above it."""
    folder = path.parent
    while True:
        if (folder / f"{module}.py").is_file() or (folder / module / "__init__.py").is_file():
            return True
        if folder == root:
            return False
        folder = folder.parent


def _is_development(name: str) -> bool:
    *folders, file = name.split("/")
    return bool(_DEVELOPMENT.intersection(folders)) or bool(_DEVELOPMENT_FILE.fullmatch(file))


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


def _modules(path: Path, submodules: Collection[str]) -> dict[str, str]:
    """The modules that a program or notebook imports, each with the field of Import that its most binding
    import belongs to; empty where the file cannot be read."""
    try:
        data = path.read_bytes()[: MOST_NOTEBOOK_BYTES + 1]
        sources = _cells(data) if path.suffix == ".ipynb" else [data]
    except (OSError, ValueError, RecursionError):
        return {}
    found: dict[str, str] = {}
    for source in sources:
        if len(source) <= MOST_BYTES:
            for module, place in _imports(source, submodules):
                if _BINDING.index(place) < _BINDING.index(found.get(module, _BINDING[-1])):
                    found[module] = place
                found.setdefault(module, place)
    return found


def _imports(source: bytes, submodules: Collection[str]) -> Iterator[tuple[str, str]]:
    """The first part of each module that a source imports, the submodules, and how; nothing where it is not
    Python."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # escapes and comparisons of other people's code
            tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    # A loop in place of recursion: a source may be nested deeper than Python's stack.
    pending: list[tuple[ast.AST, str]] = [(tree, "files")]
    while pending:
        node, place = pending.pop()
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            names = []
        for name in names:
            yield name.partition(".")[0], place
            yield from ((module, place) for module in submodules if f"{name}.".startswith(f"{module}."))
        pending += _children(node, place)


def _children(node: ast.AST, place: str) -> list[tuple[ast.AST, str]]:
    """The parts of a node, each with the field of Import that an import in it belongs to."""
    if isinstance(node, ast.Try) and any(_catches_import(handler) for handler in node.handlers):
        rest = [*node.handlers, *node.orelse, *node.finalbody]
        return [*((part, "guarded") for part in node.body), *((part, "guarded") for part in rest)]
    if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
        return [*((part, "guarded") for part in node.body), *((part, place) for part in node.orelse)]
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) and place == "files":
        place = "inner"
    return [(child, place) for child in ast.iter_child_nodes(node)]


def _catches_import(handler: ast.ExceptHandler) -> bool:
    """Whether a handler catches a failed import: by name, as any exception, or as everything."""
    caught = ast.dump(handler.type) if handler.type else ""
    return handler.type is None or any(
        f"'{name}'" in caught for name in ("ImportError", "ModuleNotFoundError", "Exception")
    )


def _cells(data: bytes) -> list[bytes]:
    """The code cells of a notebook, without the lines that only a notebook understands."""
    notebook = json.loads(data)
    cells = notebook.get("cells") if isinstance(notebook, dict) else None
    found = []
    for cell in cells if isinstance(cells, list) else []:
        if isinstance(cell, dict) and cell.get("cell_type") == "code":
            source = cell.get("source", "")
            text = "".join(map(str, source)) if isinstance(source, list) else str(source)
            found.append(re.sub(r"(?m)^[ \t]*[%!?].*$", "", text).encode("utf-8", "replace"))
    return found
