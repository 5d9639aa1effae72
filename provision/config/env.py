"""Choose the environment of a command that names none."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

from ..environment import place
from ..errors import UsageError
from ..model import Emit, Event
from ..system import trust
from .options import make_absolute
from .project import (
    find_active_env,
    find_project_env,
    find_project_folder,
    is_present,
    locate_project_file,
)


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
