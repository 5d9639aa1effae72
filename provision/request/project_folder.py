"""Find the project of a command: its file, its folder and its environment."""

from __future__ import annotations

import os
from pathlib import Path

from ..environment import place
from ..project.config.project_file import find_project_file
from ..system import process
from .paths_of_environment_and_cache import make_absolute

DEFAULT_ENV = Path(".venv")
_ACTIVE = ("VIRTUAL_ENV", "CONDA_PREFIX")


def locate_project_file() -> Path | None:
    """Return the file that describes the project of this folder, or None. Raises DataError if there are
    several."""
    return find_project_file(Path.cwd(), _homes())


def find_project_folder() -> Path:
    """Return the folder of the project's file, or the current folder if there is no file."""
    file = locate_project_file()
    return file.parent if file else Path.cwd()


def find_project_env() -> Path:
    """Return the path of the project's environment, relative if the project is the current folder."""
    folder = find_project_folder()
    return DEFAULT_ENV if folder == Path.cwd() else folder / DEFAULT_ENV


def find_active_env() -> tuple[str, Path] | None:
    """Return the variable that names the active environment, and its path, or None."""
    environ = process.environ()
    for name in _ACTIVE:
        path = Path(environ.get(name, ""))
        if path.is_absolute() and holds_python(path):
            return name, path
    return None


def is_present(env: Path) -> bool:
    """Return whether an environment exists at a path, or an interrupted run left one beside it."""
    path = make_absolute(env)
    return path.exists() or path.is_symlink() or not place.is_undisturbed(path)


def holds_python(path: Path) -> bool:
    """Return whether a folder is an environment with a Python."""
    return any((path / name).exists() for name in ("bin/python", "Scripts/python.exe", "python.exe"))


def _homes() -> tuple[Path, ...]:
    """Return the home folders of this user: that of HOME, and that of the user database."""
    named = [process.environ().get("HOME", "")]
    try:
        import pwd

        named.append(pwd.getpwuid(os.geteuid()).pw_dir)
    except (ImportError, KeyError):
        pass
    return tuple(Path(home) for home in named if home.startswith("/"))
