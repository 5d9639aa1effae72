"""The modules that a project's sources import, and the packages that have them."""

from __future__ import annotations

import ast
import json
import os
import re
import sys
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from packaging.utils import canonicalize_name

from ..errors import UsageError
from ..model import PROJECT_FRAMEWORKS
from ..system import untrusted
from .folder import FolderFindings, Layout, PackageFacts, find_secondary_programs, list_first
from .layout import find_missing_package, find_several
from .toml import read_setup_cfg, read_toml, table_at
from .uv import SUPPORTED_KEYS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator


MOST_FILES = 500
MOST_BYTES = 200_000  # of one source; handwritten programs are smaller
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
# Modules of Python up to 3.11 are not packages either.
_PYTHONS_OWN = {*sys.stdlib_module_names, "asynchat", "asyncore", "distutils", "imp", "smtpd"}
_BINDING = ("files", "aside", "inner", "guarded")
_DEVELOPMENT = {"test", "tests", "testing", "doc", "docs", ".github"}
_DEVELOPMENT_FILE = re.compile(r"test_.*\.py|.*_test\.py|conftest\.py|setup\.py|noxfile\.py|tasks\.py")


@dataclass(kw_only=True, slots=True)
class ImportedModule:
    """A module and the relative paths of the programs that import it.

    `files` import it at their top level, `inner` only in functions or notebooks, and `guarded` only in a `try` that
    catches ImportError. `aside` import it at their top level and are secondary: scripts in a nested folder without
    `__init__.py` (`utils/rest/`), and those of the layout. `apart` are in side folders with their own documents.
    `development` are tests, documentation and build scripts, which users of the project do not run.
    """

    files: list[str] = field(default_factory=list)
    aside: list[str] = field(default_factory=list)
    inner: list[str] = field(default_factory=list)
    guarded: list[str] = field(default_factory=list)
    apart: list[str] = field(default_factory=list)
    development: list[str] = field(default_factory=list)

    @property
    def all_files(self) -> list[str]:
        return sorted({*self.files, *self.aside, *self.inner, *self.guarded, *self.apart, *self.development})


def find_imports(
    folder: Path, submodules: Collection[str] = (), *, listed: bool = False
) -> dict[str, ImportedModule]:
    """Return the modules that programs of a folder import, without Python's own and the project's.

    Each is the first part of a dotted name. Modules of `submodules` ("torch.utils.tensorboard") are returned as well.
    If the project has `listed` its requirements, fewer programs count as main programs. Only some hundred small programs
    and notebooks are parsed, and none is run. A file that is not Python is ignored.
    """
    paths = list(list_programs(folder))
    own_modules = _list_own_modules(folder, paths)
    read = {path: _read_modules(path, submodules) for path in paths}
    names = {path: path.relative_to(folder).as_posix() for path in paths}
    parts = find_secondary_programs(
        folder,
        {n: {m.partition(".")[0] for m in read[p]} for p, n in names.items() if not _is_development(n)},
    )
    modules: dict[str, ImportedModule] = {}
    for path, name in names.items():
        aside = (listed and name in parts.aside) or _is_aside(path, folder)
        for module, binding in sorted(read[path].items()):
            first = module.partition(".")[0]
            if first in _PYTHONS_OWN or first in own_modules or _is_beside(first, path, folder):
                continue
            place = _choose_field(path, name, binding, parts, aside=aside)
            getattr(modules.setdefault(module, ImportedModule()), place).append(name)
    return modules


def _choose_field(path: Path, name: str, binding: str, parts: Layout, *, aside: bool) -> str:
    """Return the field of ImportedModule for an import of a program."""
    if _is_development(name):
        return "development"
    if name in parts.apart and binding != "guarded":
        return "apart"
    if path.suffix == ".ipynb" and binding == "files":
        return "inner"
    return "aside" if binding == "files" and aside else binding


def _list_own_modules(folder: Path, paths: list[Path]) -> set[str]:
    """Return the project's packages: folders with programs at the top, or in src/."""
    places = {path.relative_to(folder).parts[:-1] for path in paths}
    return {parts[parts[:1] == ("src",)] for parts in places if len(parts) > (parts[:1] == ("src",))}


def _is_aside(path: Path, root: Path) -> bool:
    """Return whether a program is at least two folders deep, in a folder that is not a package."""
    parts = path.relative_to(root).parts[:-1]
    return len(parts) > 1 + (parts[:1] == ("src",)) and not (path.parent / "__init__.py").exists()


def _is_beside(module: str, path: Path, root: Path) -> bool:
    """Return whether a module is a file or package in the program's folder, or in one above it."""
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


def list_programs(folder: Path) -> Iterator[Path]:
    """Yield programs and notebooks of a folder, nearest first, without environments and hidden folders."""
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


def _read_modules(path: Path, submodules: Collection[str]) -> dict[str, str]:
    """Return the imported modules of a program or notebook, each with the field of its most binding import.

    A file that cannot be read has none.
    """
    try:
        data = path.read_bytes()[: MOST_NOTEBOOK_BYTES + 1]
        sources = _read_cells(data) if path.suffix == ".ipynb" else [data]
    except (OSError, ValueError, RecursionError):
        return {}
    modules: dict[str, str] = {}
    for source in sources:
        if len(source) <= MOST_BYTES:
            for module, place in _walk_imports(source, submodules):
                if _BINDING.index(place) < _BINDING.index(modules.get(module, _BINDING[-1])):
                    modules[module] = place
                modules.setdefault(module, place)
    return modules


def _walk_imports(source: bytes, submodules: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield the first part of each imported module, the submodules, and their fields. Invalid Python yields none."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # warnings about the project's code are irrelevant here
            tree = ast.parse(untrusted.decode(source, ""))
    except (UsageError, SyntaxError, ValueError, RecursionError, MemoryError):
        return
    # A loop instead of recursion, because the nesting may exceed Python's stack.
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
        pending += _list_children(node, place)


def _list_children(node: ast.AST, place: str) -> list[tuple[ast.AST, str]]:
    """Return the parts of a node, each with the field of ImportedModule for imports in it."""
    if isinstance(node, ast.Try) and any(_catches_import(handler) for handler in node.handlers):
        rest = [*node.handlers, *node.orelse, *node.finalbody]
        return [*((part, "guarded") for part in node.body), *((part, "guarded") for part in rest)]
    if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
        return [*((part, "guarded") for part in node.body), *((part, place) for part in node.orelse)]
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) and place == "files":
        place = "inner"
    return [(child, place) for child in ast.iter_child_nodes(node)]


def _catches_import(handler: ast.ExceptHandler) -> bool:
    """Return whether a handler catches ImportError, by name or with every exception."""
    caught = ast.dump(handler.type) if handler.type else ""
    return handler.type is None or any(
        f"'{name}'" in caught for name in ("ImportError", "ModuleNotFoundError", "Exception")
    )


def _read_cells(data: bytes) -> list[bytes]:
    """Return the code cells of a notebook, without lines in notebook syntax."""
    notebook = json.loads(data)
    cells = notebook.get("cells") if isinstance(notebook, dict) else None
    sources = []
    for cell in cells if isinstance(cells, list) else []:
        if isinstance(cell, dict) and cell.get("cell_type") == "code":
            source = cell.get("source", "")
            text = "".join(map(str, source)) if isinstance(source, list) else str(source)
            sources.append(re.sub(r"(?m)^[ \t]*[%!?].*$", "", text).encode("utf-8", "replace"))
    return sources


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
