"""Find the project of the current folder, and choose the environment of a command that names none."""

from __future__ import annotations

import os
import shlex
import stat
from collections.abc import Collection, Iterator
from pathlib import Path

from ..environment import place
from ..errors import DataError, UsageError
from ..model import Emit, Event
from ..requirements.nodes import MAX_BYTES, NotReadError
from ..system import process, trust, untrusted
from .file import PYPROJECT, YAML_NAMES, read_table_of
from .options import make_absolute


def find_in_folder(folder: Path) -> Path | None:
    """Return the file of a folder that describes its project, or None. Raises DataError if there are several."""
    files = [folder / name for name in YAML_NAMES if (folder / name).is_file()]
    if _has_table(folder / PYPROJECT, alone=not files):
        files.append(folder / PYPROJECT)
    if len(files) > 1:
        names = " and ".join(
            "[tool.gpuenv] of pyproject.toml" if f.name == PYPROJECT else f.name for f in files
        )
        raise DataError(
            f"{names} describe the same project in {folder}",
            hint="keep one: move the keys of the other into it, then delete the other",
        )
    return files[0] if files else None


def find_project_file(start: Path, homes: Collection[Path]) -> Path | None:
    """Return the project's file of `start` or of the nearest folder above it. Raises DataError.

    A file above `start` decides which packages are installed. So the search ends at one of `homes`, at another file
    system, at a folder of another user and at a folder that everyone can write to.
    """
    if file := find_in_folder(start):
        return file
    for folder in _list_own_parents(start, homes):
        if file := find_in_folder(folder):
            return file
    return None


def _list_own_parents(start: Path, homes: Collection[Path]) -> Iterator[Path]:
    """Yield the folders above `start`, nearest first, up to the first that another user controls."""
    ends = {(status.st_dev, status.st_ino) for home in homes if (status := _stat(home))}
    first = _stat(start)
    if first is None or first.st_uid != os.geteuid() or (first.st_dev, first.st_ino) in ends:
        return
    for folder in start.parents:
        status = _stat(folder)
        if status is None or (status.st_dev, status.st_ino) in ends or status.st_dev != first.st_dev:
            return
        if status.st_uid != os.geteuid() or status.st_mode & stat.S_IWOTH:
            return
        yield folder


def _stat(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except OSError:
        return None


def _has_table(path: Path, *, alone: bool) -> bool:
    """Return whether a pyproject.toml has `tool.gpuenv`.

    Raises DataError for an invalid file, if no other file describes the project.
    """
    try:
        data = untrusted.read_bytes(path, MAX_BYTES)
    except OSError:
        return False
    try:
        return read_table_of(data) is not None
    except NotReadError as error:
        if not alone or b"tool.gpuenv" not in data:
            return False
        raise DataError(f"{path} is invalid: {error.text}", hint="correct its syntax") from error


_ACTIVE = ("VIRTUAL_ENV", "CONDA_PREFIX")


def locate_project_file() -> Path | None:
    """Return the file that describes the project of this folder, or None. Raises DataError if there are
    several."""
    return find_project_file(Path.cwd(), trust.list_homes())


def find_project_folder() -> Path:
    """Return the folder of the project's file, or the current folder if there is no file."""
    file = locate_project_file()
    return file.parent if file else Path.cwd()


def find_project_env() -> Path:
    """Return the path of the project's environment, relative if the project is the current folder."""
    return locate_in_project(".venv")


def locate_in_project(name: str) -> Path:
    """Return the path of a file in the project's folder, relative if that is the current folder."""
    folder = find_project_folder()
    return Path(name) if folder == Path.cwd() else folder / name


def find_active_env() -> tuple[str, Path] | None:
    """Return the variable that names the active environment, and its path, or None."""
    environ = process.environ()
    for name in _ACTIVE:
        path = Path(environ.get(name, ""))
        if path.is_absolute() and place.find_python(path):
            return name, path
    return None


def is_present(env: Path) -> bool:
    """Return whether an environment exists at a path, or an interrupted run left one beside it."""
    path = make_absolute(env)
    return path.exists() or path.is_symlink() or not place.is_undisturbed(path)


# --- the environment of a command that names none --------------------------------------------------


def is_environment(word: str) -> bool:
    """Return whether a word is the path of an environment.

    That is a folder with a Python, or one that an interrupted run left.
    """
    path = Path(word).expanduser()
    if path.is_dir():
        return place.find_python(path) is not None or place.made_by_gpuenv(path)
    return not path.exists() and not place.is_undisturbed(make_absolute(path))


def choose_env_to_change(emit: Emit, named: Path | None, option: str = "") -> Path:
    """Return the environment that a command may change: the named one, otherwise the project's.

    The environment that is active in the shell never counts. `option` is the option that names one, "" for an
    argument. Raises UsageError if the project's is a link out of the project: a project that somebody else
    wrote would otherwise choose which environment changes.
    """
    note_project(emit)
    if named is not None:
        return named
    env = _find_project_env()
    if link := describe_link_outside(env):
        raise UsageError(
            f"{link}. It was not changed",
            hint=f"to change it, name it: {f'{option} {shlex.quote(str(env))}'.strip()}",
        )
    return env


def describe_link_outside(env: Path) -> str | None:
    """Return where the project's environment is, if it is a link out of the project."""
    project, target = os.path.realpath(find_project_folder()), os.path.realpath(env)
    if env != find_project_env() or Path(target).is_relative_to(project):
        return None
    return f"{env} is a link to {target}, which is outside of the project {project}"


def choose_env_to_read(emit: Emit, named: Path | None) -> Path:
    """Return the environment that a command reads or runs: the named one, otherwise the project's, otherwise
    the active one."""
    if named is not None:
        return named
    project_env = _find_project_env()
    if not is_present(project_env) and (active := find_active_env()):
        text = f"{project_env} is missing. Using {active[1]} from {active[0]}"
        emit(Event("note", "env", text))
        return active[1]
    note_project(emit)
    return project_env


def _find_project_env() -> Path:
    """Return the project's environment. Raises UntrustedError if another user can change it."""
    env = find_project_env()
    trust.refuse_foreign_folder(env)
    return env


def note_project(emit: Emit) -> None:
    """Note which project applies if its file is in a parent folder."""
    file = locate_project_file()
    if file and file.parent != Path.cwd():
        emit(Event("note", "project", f"the project is {file.parent} ({file.name})"))
