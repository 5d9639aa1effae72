"""A copy of an environment to work on, so that the environment itself changes in one step or not at all.

Files are hard links where that can be, so that a copy of gigabytes takes a second and no room: installers
replace files, they do not write into them. What gpuenv and conda write themselves is copied.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from ..errors import BuildError
from . import place

_WRITTEN = (place.MARK, "conda-meta", "pyvenv.cfg")


def check_writable(env: Path) -> None:
    """Raise BuildError where a folder inside could not be removed afterwards."""
    for folder, _, _ in os.walk(env):
        if not os.access(folder, os.W_OK | os.X_OK):
            raise BuildError(
                f"{folder} may not be written to: it belongs to user {Path(folder).stat().st_uid}",
                hint="give the environment back to its user, or run this command as that user",
            )


def copy(source: Path, target: Path) -> None:
    """Copy an environment into a folder. Raises BuildError."""
    try:
        _folder(source, target, written=False)
    except OSError as error:
        raise place.not_writable(target, error) from error


def _folder(source: Path, target: Path, *, written: bool) -> None:
    target.mkdir(exist_ok=True)
    with os.scandir(source) as entries:
        for entry in entries:
            old, new = Path(entry.path), target / entry.name
            ours = written or entry.name in _WRITTEN
            if entry.is_symlink():
                new.symlink_to(old.readlink())
            elif entry.is_dir():
                _folder(old, new, written=ours)
            elif ours:
                shutil.copy2(old, new)
            else:
                _file(old, new)
    shutil.copystat(source, target)


def _file(source: Path, target: Path) -> None:
    """A link, or a copy where the file system or the file's owner allows none."""
    try:
        target.hardlink_to(source)
    except OSError:
        shutil.copy2(source, target)
