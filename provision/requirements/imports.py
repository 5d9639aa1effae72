"""The modules that a project's sources import.

Only text is read, and nothing is parsed: an import at the start of a line runs whenever the source is imported, and an
indented one (in an `if`, a `try` or a function) may never run.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from ..model import RemovedNames

MOST_FILES = 3_000
MOST_BYTES = 200_000  # of one source; handwritten programs are smaller
MOST_NOTEBOOK_BYTES = 4 << 20
MOST_FOLDERS = 3_000
SKIPPED = frozenset(
    ("node_modules", "site-packages", "build", "dist", "__pycache__", "venv", "env", "vendor", "third_party")
)
"""Folders whose contents are not the project's."""
# Modules of Python up to 3.11 are not packages either.
_PYTHONS_OWN = {*sys.stdlib_module_names, "asynchat", "asyncore", "distutils", "imp", "smtpd"}
SIDE_FOLDER = re.compile(
    r"(?:\w+_)?tests?|testing|docs?(?:_\w+)?|examples?|benchmarks?|demos?|notebooks?|colabs?", re.IGNORECASE
)
"""Folders that users of the project do not run."""
_SIDE_FILE = re.compile(
    r"test_.*\.py|.*_test\.py|conftest\.py|setup\.py|noxfile\.py|tasks\.py|.*\.ipynb", re.IGNORECASE
)
DECLARES = re.compile(r".*requ?ire?me?nt.*\.txt|pyproject\.toml|setup\.py|environment\.ya?ml", re.IGNORECASE)
"""The files that state what a folder requires. Covers common misspellings: requirments_gpu.txt, requirement.txt."""


@dataclass(kw_only=True, slots=True)
class ImportedModule:
    """A module and the relative paths of the programs that import it.

    `files` cannot be imported without it. `others` import it in a block that may not run, or are no main programs:
    notebooks, tests, examples, documentation, and folders that state their own requirements. `names` maps what `files`
    import of it to the first of them: "torch.nn:Module" for a name of a module, "torch.nn:" for a module.
    """

    files: list[str] = field(default_factory=list)
    others: list[str] = field(default_factory=list)
    names: dict[str, str] = field(default_factory=dict)


def find_imports(
    folder: Path,
    submodules: Collection[str] = (),
    known: Collection[str] = (),
    removed: Collection[RemovedNames] = (),
    listed: Collection[str] = (),
) -> dict[str, ImportedModule]:
    """Return the modules that programs of a folder import, without Python's own and the project's.

    Each is the first part of a dotted name. Modules of `submodules` ("torch.utils.tensorboard") are returned as well.
    A name is the project's if any of its files or folders has it, because programs change sys.path. A `known` name is
    that of a package, unless the program's folder or one above, outside of packages, has a file of this name. A use of a
    `removed` name ("tf.Session") counts as its import. `listed` as for `list_programs`.
    """
    programs = list(list_programs(folder, listed))
    if all(is_side for _, is_side in programs):  # where there is nothing else, people run the notebooks
        programs = [(name, is_side and not name.endswith(".ipynb")) for name, is_side in programs]
    own = _list_own_names(folder, (name for name, _ in programs))
    paths = {
        *(parent.as_posix() for name, _ in programs for parent in PurePosixPath(name).parents),
        *(name.removesuffix(".py") for name, _ in programs),
    }
    modules: dict[str, ImportedModule] = {}
    for name, is_side in programs:
        above = [p for p in PurePosixPath(name).parents if (p / "__init__").as_posix() not in paths]
        found, exact = _read_modules(folder / name, submodules, removed)
        for module, always in found.items():
            first = module.partition(".")[0]
            is_sibling = first in own and any(
                (place / first).as_posix() in paths for place in (*above, PurePosixPath("src"))
            )
            if (
                first in _PYTHONS_OWN
                or first.startswith("_")
                or is_sibling
                or (first in own and first not in known)
            ):
                continue
            imported = modules.setdefault(module, ImportedModule())
            (imported.files if always and not is_side else imported.others).append(name)
            if module == first and not is_side:
                imported.names |= {
                    one: name
                    for one in exact
                    if f"{one}.".startswith((f"{first}.", f"{first}:")) and one not in imported.names
                }
    return modules


def _list_own_names(folder: Path, names: Iterator[str]) -> set[str]:
    """Return the names of the programs and of all their folders, and of the folders at the top."""
    own = {name for name in os.listdir(folder) if os.path.isdir(folder / name)}  # noqa: PTH112, PTH208  # loops of links
    for name in names:
        own.update(PurePosixPath(name).with_suffix("").parts)
    return own


def list_programs(folder: Path, listed: Collection[str] = ()) -> Iterator[tuple[str, bool]]:
    """Yield the relative paths of programs and notebooks, nearest first, each with whether it is no main program.

    Environments and hidden folders are left out. A folder that states its own requirements is another project, unless
    this one has `listed` a file of it.
    """
    folders, read = [(folder, "", False)], 0
    for visited, (place, prefix, is_below_side) in enumerate(folders):
        if visited >= MOST_FOLDERS:
            return
        try:
            entries = sorted(os.scandir(place), key=lambda e: e.name)
        except OSError:
            continue
        names = {entry.name for entry in entries}
        if names & {"pyvenv.cfg", "conda-meta"} and prefix:
            continue
        declares = {f"{prefix}{name}" for name in names if DECLARES.fullmatch(name)}
        apart = bool(prefix and declares) and "__init__.py" not in names and declares.isdisjoint(listed)
        is_side = is_below_side or apart
        for entry in entries:
            if entry.name.startswith("."):
                continue
            try:
                if entry.is_dir(follow_symlinks=False):
                    if entry.name not in SKIPPED:
                        side = is_side or bool(SIDE_FOLDER.fullmatch(entry.name))
                        folders.append((Path(entry.path), f"{prefix}{entry.name}/", side))
                elif entry.name.endswith((".py", ".ipynb")) and _is_small(entry):
                    read += 1
                    yield prefix + entry.name, is_side or bool(_SIDE_FILE.fullmatch(entry.name))
            except OSError:
                continue
            if read >= MOST_FILES:
                return


def read_notebooks(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield the notebooks of a folder of notebooks, with the commands of a cell on one line."""
    programs = list(list_programs(folder))
    for name, is_side in programs:
        if not all(side for _, side in programs) or not (is_side and name.endswith(".ipynb")):
            continue
        try:
            cells = [c.replace("\\\n", " ") for c in _list_cells((folder / name).read_bytes())]
        except (OSError, ValueError, RecursionError):
            continue
        yield name, "\n".join(" && ".join(re.findall(r"(?m)^[ \t]*[%!](.*)$", cell)) for cell in cells)


def _is_small(entry: os.DirEntry[str]) -> bool:
    most = MOST_NOTEBOOK_BYTES if entry.name.endswith(".ipynb") else MOST_BYTES
    return entry.is_file() and entry.stat().st_size <= most


# Comments and strings, so that code in a docstring is not read. A string without an end matches too: a search that fails
# at each quote would take quadratic time.
_NO_CODE = re.compile(
    r'#[^\n]*|"""[^"\\]*(?:(?:\\.|"(?!""))[^"\\]*)*(?:"""|\\?\Z)'
    r"|'''[^'\\]*(?:(?:\\.|'(?!''))[^'\\]*)*(?:'''|\\?\Z)"
    r'|"[^"\\\n]*(?:\\.[^"\\\n]*)*"?|\'[^\'\\\n]*(?:\\.[^\'\\\n]*)*\'?',
    re.DOTALL,
)
_IMPORT = re.compile(
    r"^([ \t]*)(?:import[ \t]+([^\n;]+)|from[ \t]+([A-Za-z_][\w.]*)[ \t]+import[ \t]*(\([^)]{0,4000}\)|[^\n;]*))",
    re.MULTILINE,
)


def _read_modules(
    path: Path, submodules: Collection[str], removed: Collection[RemovedNames]
) -> tuple[dict[str, bool], list[str]]:
    """Return the imported modules of a program or notebook, each with whether it is always imported.

    The second value has what is always imported, as `names` of ImportedModule. A file that cannot be read has none.
    """
    try:
        data = path.read_bytes()[: MOST_NOTEBOOK_BYTES + 1]
        text = _read_cells(data) if path.suffix == ".ipynb" else data.decode("utf-8-sig", "replace")
    except (OSError, ValueError, RecursionError):
        return {}, []
    modules: dict[str, bool] = {}
    exact: list[str] = []
    code = _NO_CODE.sub("''", text.replace("\r\n", "\n")).replace("\\\n", " ")
    for indent, names, package, parts in _IMPORT.findall(code):
        listed = (names or parts.strip("()")).replace("''", "").split(",")
        imported = [words[0] for name in listed if (words := name.split())]
        if not indent:
            exact += [f"{package}:{part}" for part in imported] if package else [f"{n}:" for n in imported]
        for name in [f"{package}.{part}" for part in imported] if package else imported:
            found = [name.partition(".")[0], *(m for m in submodules if f"{name}.".startswith(f"{m}."))]
            modules |= {module: modules.get(module, False) or not indent for module in found}
    for row in removed:
        pattern = rf"^import[ \t]+{row.package}(?![\w.])(?:[ \t]+as[ \t]+(\w+))?"
        for name in re.findall(pattern, code, re.MULTILINE):
            alias = name or row.package
            # `tf = tf.compat.v1` and `np.float = float` make what the package does not have.
            made = set(re.findall(rf"^[ \t]*{alias}(?:\.(\w+))?[ \t]*=(?!=)", code, re.MULTILINE))
            used = dict.fromkeys(re.findall(rf"(?<![\w.]){alias}\.(\w+)", code))
            exact += [f"{row.package}:{n}" for n in used if n in row.names and not made & {"", n}]
    return modules, exact


def _read_cells(data: bytes) -> str:
    """Return the code cells of a notebook, without lines in notebook syntax."""
    return "\n".join(re.sub(r"(?m)^[ \t]*[%!?].*$", "", cell) for cell in _list_cells(data))


def _list_cells(data: bytes) -> list[str]:
    notebook = json.loads(data)
    cells = notebook.get("cells") if isinstance(notebook, dict) else None
    sources = []
    for cell in cells if isinstance(cells, list) else []:
        if isinstance(cell, dict) and cell.get("cell_type") == "code":
            source = cell.get("source", "")
            sources.append("".join(map(str, source)) if isinstance(source, list) else str(source))
    return sources
