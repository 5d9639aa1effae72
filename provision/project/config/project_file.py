"""Find the file that describes a project: gpuenv.yaml, gpuenv.yml or pyproject.toml."""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterator
from pathlib import Path

from provision.errors import DataError
from provision.system import untrusted

from .key_forms import PYPROJECT, YAML_NAMES
from .pyproject_table import read_table_of
from .yaml_tree import MAX_BYTES, NotReadError


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
    if not hasattr(os, "geteuid"):
        return  # this system has no user ids to compare
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
