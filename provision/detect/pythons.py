"""Finds the CPythons on this machine that an environment can be created with.

Neither virtualenv nor uv searches ~/.pyenv/versions, so all the usual places are searched here.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ..model import PythonInstallation
from ..model.values import Value
from ..system import process, trust
from .files import exists, join_root, list_entries, read_text

OLDEST = (3, 8)
_SECONDS = 10.0  # for a Python to say its version
EXECUTABLE = r"python(3(\.\d+)?)?"
CONDA_HOMES = ("miniconda3", "anaconda3", "miniforge3", "mambaforge", "micromamba", ".conda")
ASK = (
    "import sys, sysconfig, json; "
    "print(json.dumps([sys.implementation.name, '.'.join(map(str, sys.version_info[:3])), "
    "sys.version_info[3], sys.prefix == getattr(sys, 'base_prefix', sys.prefix), "
    "bool(sysconfig.get_config_var('Py_GIL_DISABLED'))]))"
)


class _PythonCandidate(Value):
    """A program that may be a CPython. `version` is set if its folder's name states it."""

    path: Path
    source: str
    version: str | None = None
    free_threaded: bool = False


_STATED = {
    "pyenv": re.compile(r"(3\.\d+\.\d+)(t)?$"),
    "uv": re.compile(r"cpython-(3\.\d+\.\d+)(\+freethreaded)?-"),
    "conda": re.compile(r"python-(3\.\d+\.\d+)-\w*?(_cp3\d*t)?\.json$"),
}
"""The names that state a CPython's version, and whether it is free-threaded: of a folder in ~/.pyenv/versions, of uv's
folder, and of the record in conda-meta. Those of PyPy, virtualenvs and links to a minor version state none."""


def read_stated_version(source: str, names: Iterable[str]) -> tuple[str, bool] | None:
    """Return (version, free-threaded) of the first name that states them, or None."""
    stated = next(filter(None, map(_STATED[source].match, names)), None)
    return (stated[1], bool(stated[2])) if stated else None


def is_virtual(executable: Path) -> bool:
    """Return whether an executable belongs to a virtualenv: pyvenv.cfg beside it or above it (PEP 405)."""
    return exists(executable.parent / "pyvenv.cfg") or exists(executable.parent.parent / "pyvenv.cfg")


def _find_uv_folder(environ: Mapping[str, str], home: Path) -> Path:
    """Return the folder in which uv installs Pythons."""
    if named := environ.get("UV_PYTHON_INSTALL_DIR"):
        return Path(named)
    # uv follows the XDG rules on macOS too
    return Path(environ.get("XDG_DATA_HOME") or home / ".local" / "share") / "uv" / "python"


def _list_conda_prefixes(root: Path, environ: Mapping[str, str], home: Path) -> list[Path]:
    prefixes = [Path(environ["CONDA_PREFIX"])] if environ.get("CONDA_PREFIX") else []
    for base in [*(home / name for name in CONDA_HOMES), join_root(root, "/opt/conda")]:
        prefixes += [base, *list_entries(base / "envs")]
    listed = read_text(home / ".conda" / "environments.txt") or ""
    return prefixes + [Path(line.strip()) for line in listed.splitlines() if line.strip()]


def _list_managed(root: Path, environ: Mapping[str, str], home: Path) -> Iterator[_PythonCandidate]:
    """Yield the Pythons of pyenv, uv and conda, whose files state their versions."""
    pyenv = Path(environ.get("PYENV_ROOT") or home / ".pyenv") / "versions"
    found = [(p, "pyenv", [p.name]) for p in list_entries(pyenv)]
    found += [(p, "uv", [p.name]) for p in list_entries(_find_uv_folder(environ, home))]
    for prefix in _list_conda_prefixes(root, environ, home):
        found.append((prefix, "conda", [path.name for path in list_entries(prefix / "conda-meta")]))
    for prefix, source, names in found:
        stated = read_stated_version(source, names)
        programs = (prefix / name for name in ("bin/python3", "bin/python"))
        if stated and (path := next(filter(exists, programs), None)):
            yield _PythonCandidate(path=path, source=source, version=stated[0], free_threaded=stated[1])


def _list_in_folder(folder: Path, source: str) -> Iterator[_PythonCandidate]:
    try:
        names = [n for n in os.listdir(folder) if n.startswith("python") and re.fullmatch(EXECUTABLE, n)]  # noqa: PTH208  # thousands of names
    except OSError:
        return  # the PATH entry is missing or unreadable
    for path in (folder / name for name in sorted(names)):
        if os.access(path, os.X_OK) and not path.is_dir():
            yield _PythonCandidate(path=path, source=source)


def _list_on_path(environ: Mapping[str, str], home: Path) -> Iterator[_PythonCandidate]:
    shims = Path(environ.get("PYENV_ROOT") or home / ".pyenv") / "shims"
    for folder in trust.list_absolute_entries(environ.get("PATH")):
        if folder != shims:  # a shim is a shell script that picks another Python by the working directory
            yield from _list_in_folder(folder, "path")


def _list_candidates(root: Path, environ: Mapping[str, str]) -> Iterator[_PythonCandidate]:
    """Yield the programs on PATH first, then those of each manager.

    An entry of PATH in a manager's folder is named after that manager. Other programs of an active environment are left
    out: its Python is no base of another environment, and `detect` runs no code of an environment.
    """
    home = Path(environ.get("HOME") or Path.home())
    managed = list(_list_managed(root, environ, home))
    known = {candidate.path.resolve(): candidate for candidate in managed}
    active = [Path(environ[name]) for name in ("VIRTUAL_ENV", "CONDA_PREFIX") if environ.get(name)]
    for candidate in _list_on_path(environ, home):
        real = candidate.path.resolve()
        if real in known or not any(real.is_relative_to(env.resolve()) for env in active):
            yield known.get(real, candidate)
    yield from managed
    places = [path / "bin" for path in list_entries(join_root(root, "/opt"))]
    for folder in (*places, join_root(root, "/usr/local/bin"), join_root(root, "/usr/bin")):
        yield from _list_in_folder(folder, "system")


def ask_python(path: Path) -> tuple[str, bool] | None:
    """Start a Python, isolated, and return (version, free-threaded).

    Return None if no environment can be created with it: PyPy, a pre-release, a virtualenv's Python, a wrapper
    that fails.
    """
    try:
        ended = process.run([str(path), "-I", "-S", "-c", ASK], timeout=_SECONDS)
    except OSError:
        return None
    try:
        name, version, level, is_base, free_threaded = json.loads(ended.stdout)
    except ValueError:
        return None
    if not ended.ok or name != "cpython" or level != "final" or not is_base:
        return None
    return version, free_threaded


class PythonCache:
    """A cache of the answers of Pythons, by the state of their files."""

    def __init__(self, cache: Path) -> None:
        self._file = cache / "pythons.json"
        self._kept = self._read()
        self._used: dict[str, list[Any]] = {}

    def _read(self) -> dict[str, Any]:
        try:
            kept = json.loads(trust.read_cached(self._file))
        except (OSError, ValueError, RecursionError):
            return {}  # missing or damaged: the Pythons are started again
        return kept if isinstance(kept, dict) else {}

    def ask(self, path: Path) -> tuple[str, bool] | None:
        """Return the answer of the Python at a real path, from the cache if its file has not changed.

        A script is always started, because it can start another Python tomorrow.
        """
        mark = _get_mark(path)
        if mark is None:
            return ask_python(path)
        kept: Any = self._kept.get(str(path))
        if not _is_answer(kept, mark):
            answer = ask_python(path)
            if answer is None:
                return None
            kept = [mark, *answer]
        self._used[str(path)] = kept
        return kept[1], bool(kept[2])

    def write(self) -> None:
        """Write new answers to the cache. If that fails, the Pythons are started again the next time."""
        if all(self._kept.get(path) == answer for path, answer in self._used.items()):
            return
        trust.write_cached(self._file, json.dumps({**self._kept, **self._used}))


def _is_answer(kept: Any, mark: str) -> bool:
    """Return whether a cached value is an answer, and for the present state of the file. The cache may be
    damaged."""
    if not (isinstance(kept, list) and len(kept) == 3 and kept[0] == mark):
        return False
    return isinstance(kept[1], str) and re.fullmatch(r"3\.\d{1,3}\.\d{1,3}", kept[1]) is not None


def _get_mark(path: Path) -> str | None:
    """Return the state of a program's file, or None for a script."""
    try:
        with path.open("rb") as file:
            status, head = os.fstat(file.fileno()), file.read(2)
    except OSError:
        return None
    return (
        None
        if head == b"#!"
        else f"{status.st_ino} {status.st_size} {status.st_mtime_ns} {status.st_ctime_ns}"
    )


def read_pythons(
    root: Path, environ: Mapping[str, str], cache: Path | None = None
) -> tuple[PythonInstallation, ...]:
    """Return every CPython from 3.8 on, once, by its real path.

    Free-threaded ones are returned only if there is no other, because most wheels do not support them. With a
    `cache` folder each program is started once.
    """
    ask = PythonCache(cache) if cache else None
    seen: set[Path] = set()
    refused: list[trust.UntrustedError] = []
    installations: list[tuple[PythonInstallation, bool]] = []
    for candidate in _list_candidates(root, environ):
        real = candidate.path.resolve()
        if real in seen or is_virtual(candidate.path) or is_virtual(real):
            continue
        seen.add(real)
        try:
            trust.may_start(real)
        except trust.UntrustedError as error:
            refused.append(error)
            continue
        except OSError:
            continue  # removed meanwhile
        version, free_threaded = candidate.version, candidate.free_threaded
        if version is None:
            answer = ask.ask(real) if ask else ask_python(real)
            if answer is None:
                continue
            version, free_threaded = answer
        if tuple(map(int, version.split(".")[:2])) >= OLDEST:
            installations.append(
                (PythonInstallation(path=str(real), version=version, source=candidate.source), free_threaded)
            )
    if ask:
        ask.write()
    if refused:
        more = f", and {len(refused) - 1} more" if len(refused) > 1 else ""
        trust.note(f"{refused[0].message}{more}")
    plain = tuple(python for python, free in installations if not free)
    return plain or tuple(python for python, _ in installations)
