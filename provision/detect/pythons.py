"""The CPythons on this machine that an environment can be made with.

Neither virtualenv nor uv looks into ~/.pyenv/versions, so all the usual places are read here.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..model import PythonInstallation
from ..system import process
from ..system.write_inside_folder import write_file
from .kernel_files import absolute_entries, anybody_may_write, entries, is_there, read_text, under

OLDEST = (3, 8)
EXECUTABLE = re.compile(r"python(3(\.\d+)?)?(\.exe)?")
CONDA_HOMES = ("miniconda3", "anaconda3", "miniforge3", "mambaforge", "micromamba", ".conda")
ASK = (
    "import sys, sysconfig, json; "
    "print(json.dumps([sys.implementation.name, '.'.join(map(str, sys.version_info[:3])), "
    "sys.version_info[3], sys.prefix == getattr(sys, 'base_prefix', sys.prefix), "
    "bool(sysconfig.get_config_var('Py_GIL_DISABLED'))]))"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Found:
    """A candidate: `version` where the place it lies in tells it."""

    path: Path
    source: str
    version: str | None = None
    free_threaded: bool = False


def pyenv_version(folder: str) -> tuple[str, bool] | None:
    """(version, free-threaded) of a folder in ~/.pyenv/versions: "3.13.0t" is free-threaded,
    "pypy3.10-7.3.15", "miniforge3-24.3.0-0" and names of virtualenvs are None."""
    found = re.fullmatch(r"(3\.\d+\.\d+)(t?)", folder)
    return (found[1], bool(found[2])) if found else None


def uv_version(folder: str) -> tuple[str, bool] | None:
    """(version, free-threaded) of a folder of uv's: "cpython-3.12.8-linux-x86_64-gnu",
    "cpython-3.13.1+freethreaded-linux-x86_64-gnu"."""
    found = re.match(r"cpython-(3\.\d+\.\d+)(\+freethreaded)?-", folder)
    return (found[1], bool(found[2])) if found else None


def conda_version(names: Iterable[str]) -> tuple[str, bool] | None:
    """(version, free-threaded) from the file names of a prefix's conda-meta: the record of
    python is "python-3.11.7-hab00c5b_1_cpython.json", with "_cp313t" where free-threaded."""
    for name in names:
        found = re.fullmatch(r"python-(3\.\d+\.\d+)-(\w+)\.json", name)
        if found:
            return found[1], found[2].endswith("t") and "_cp3" in found[2]
    return None


def is_virtual(executable: Path) -> bool:
    """Whether an executable is a virtualenv's: pyvenv.cfg beside it or above (PEP 405)."""
    return is_there(executable.parent / "pyvenv.cfg") or is_there(executable.parent.parent / "pyvenv.cfg")


def _executable(prefix: Path) -> Path | None:
    names = ("bin/python3", "bin/python", "python.exe")
    return next((prefix / name for name in names if is_there(prefix / name)), None)


def _pyenv(environ: Mapping[str, str], home: Path) -> Iterator[_Found]:
    folder = Path(environ.get("PYENV_ROOT") or home / ".pyenv") / "versions"
    yield from _by_folder(folder, "pyenv", pyenv_version)


def _uv(environ: Mapping[str, str], home: Path) -> Iterator[_Found]:
    named = environ.get("UV_PYTHON_INSTALL_DIR")
    if named:
        folder = Path(named)
    elif os.name == "posix":  # uv follows the XDG rules on macOS too
        folder = Path(environ.get("XDG_DATA_HOME") or home / ".local" / "share") / "uv" / "python"
    else:
        import platformdirs

        folder = Path(platformdirs.user_data_dir("uv", appauthor=False, roaming=True)) / "python"
    yield from _by_folder(folder, "uv", uv_version)


def _by_folder(
    folder: Path, source: str, version_of: Callable[[str], tuple[str, bool] | None]
) -> Iterator[_Found]:
    for prefix in entries(folder):
        told, executable = version_of(prefix.name), _executable(prefix)
        if told and executable:
            yield _Found(path=executable, source=source, version=told[0], free_threaded=told[1])


def _conda(root: Path, environ: Mapping[str, str], home: Path) -> Iterator[_Found]:
    bases = [home / name for name in CONDA_HOMES] + [under(root, "/opt/conda")]
    prefixes = [Path(environ["CONDA_PREFIX"])] if environ.get("CONDA_PREFIX") else []
    for base in bases:
        prefixes += [base, *entries(base / "envs")]
    listed = read_text(home / ".conda" / "environments.txt") or ""
    prefixes += [Path(line.strip()) for line in listed.splitlines() if line.strip()]
    for prefix in prefixes:
        told = conda_version(path.name for path in entries(prefix / "conda-meta"))
        executable = _executable(prefix)
        if told and executable:
            yield _Found(path=executable, source="conda", version=told[0], free_threaded=told[1])


def _in_folder(folder: Path, source: str) -> Iterator[_Found]:
    try:
        names = [n for n in os.listdir(folder) if EXECUTABLE.fullmatch(n)]  # noqa: PTH208  # thousands of names
    except OSError:
        return  # a PATH entry that is not there or may not be read holds no Python for us
    for path in (folder / name for name in sorted(names)):
        if os.access(path, os.X_OK) and not path.is_dir():
            yield _Found(path=path, source=source)


def _path(environ: Mapping[str, str], home: Path) -> Iterator[_Found]:
    shims = Path(environ.get("PYENV_ROOT") or home / ".pyenv") / "shims"
    for folder in absolute_entries(environ.get("PATH")):
        if anybody_may_write(folder):
            continue  # what lies there may be anybody's program of that name
        if folder != shims:  # a shim is a shell script that picks another Python by the working directory
            yield from _in_folder(folder, "path")


def _system(root: Path) -> Iterator[_Found]:
    folders = [path / "bin" for path in entries(under(root, "/opt"))]
    for folder in (*folders, under(root, "/usr/local/bin"), under(root, "/usr/bin")):
        yield from _in_folder(folder, "system")


def _candidates(root: Path, environ: Mapping[str, str]) -> Iterator[_Found]:
    """PATH first (what the user calls python), then the places of each manager. PATH's entries
    that lie in such a place are named for it."""
    home = Path(environ.get("HOME") or environ.get("USERPROFILE") or Path.home())
    managed = [*_pyenv(environ, home), *_uv(environ, home), *_conda(root, environ, home)]
    known = {found.path.resolve(): found for found in managed}
    for found in _path(environ, home):
        yield known.get(found.path.resolve(), found)
    yield from managed
    yield from _system(root)


def ask_python(path: Path, seconds: float = 10.0) -> tuple[str, bool] | None:
    """(version, free-threaded) by starting it, isolated; None for what is no CPython that an
    environment can be made with (PyPy, a pre-release, an interpreter of a virtualenv, a wrapper
    that fails)."""
    try:
        ended = process.run([str(path), "-I", "-S", "-c", ASK], timeout=seconds)
    except OSError:
        return None
    try:
        name, version, level, is_base, free_threaded = json.loads(ended.stdout)
    except ValueError:
        return None
    if not ended.ok or name != "cpython" or level != "final" or not is_base:
        return None
    return version, free_threaded


class Answers:
    """What Pythons said when they were asked, under the state of their files, kept from run to run."""

    def __init__(self, cache: Path) -> None:
        self._file = cache / "pythons.json"
        self._kept = self._read()
        self._used: dict[str, list[Any]] = {}

    def _read(self) -> dict[str, Any]:
        try:
            kept = json.loads(self._file.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            return {}  # not there yet, or damaged: they are asked again
        return kept if isinstance(kept, dict) else {}

    def of(self, path: Path) -> tuple[str, bool] | None:
        """What the Python at a real path says, asked where that is not known of this very file. A script that
        stands before one can begin another tomorrow, so it is always asked."""
        mark = _mark(path)
        if mark is None:
            return ask_python(path)
        kept: Any = self._kept.get(str(path))
        if not _is_answer(kept, mark):
            asked = ask_python(path)
            if asked is None:
                return None
            kept = [mark, *asked]
        self._used[str(path)] = kept
        return kept[1], bool(kept[2])

    def keep(self) -> None:
        """Write down what is new; where that cannot be, they are asked again the next time."""
        if all(self._kept.get(path) == answer for path, answer in self._used.items()):
            return
        with contextlib.suppress(OSError):
            self._file.parent.mkdir(parents=True, exist_ok=True)
            write_file(self._file, json.dumps({**self._kept, **self._used}))


def _is_answer(kept: Any, mark: str) -> bool:
    """Whether what is kept is an answer at all (the file may be damaged), and of the file as it is now."""
    if not (isinstance(kept, list) and len(kept) == 3 and kept[0] == mark):
        return False
    return isinstance(kept[1], str) and re.fullmatch(r"3\.\d{1,3}\.\d{1,3}", kept[1]) is not None


def _mark(path: Path) -> str | None:
    """The state of a program's file; None for a script."""
    try:
        with path.open("rb") as file:
            found, head = os.fstat(file.fileno()), file.read(2)
    except OSError:
        return None
    return (
        None if head == b"#!" else f"{found.st_ino} {found.st_size} {found.st_mtime_ns} {found.st_ctime_ns}"
    )


def read_pythons(
    root: Path, environ: Mapping[str, str], cache: Path | None = None
) -> tuple[PythonInstallation, ...]:
    """Every CPython from 3.8 on, once, by its real path; free-threaded ones only where there is
    no other, because most wheels are not made for them. With a `cache` folder a program is asked once."""
    ask = Answers(cache) if cache else None
    seen: set[Path] = set()
    found: list[tuple[PythonInstallation, bool]] = []
    for candidate in _candidates(root, environ):
        if is_virtual(candidate.path):
            continue
        real = candidate.path.resolve()
        if real in seen:
            continue
        seen.add(real)
        version, free_threaded = candidate.version, candidate.free_threaded
        if version is None:
            asked = ask.of(real) if ask else ask_python(real)
            if asked is None:
                continue
            version, free_threaded = asked
        if tuple(map(int, version.split(".")[:2])) >= OLDEST:
            found.append(
                (PythonInstallation(path=str(real), version=version, source=candidate.source), free_threaded)
            )
    if ask:
        ask.keep()
    plain = tuple(python for python, free in found if not free)
    return plain or tuple(python for python, _ in found)
