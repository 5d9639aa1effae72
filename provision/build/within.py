"""An environment that is to be written in must not lead out of itself.

Whoever writes into `lib/.../site-packages/x` writes somewhere else where one of these folders is a link,
and an uninstaller removes there what a RECORD lists. Environments come with archives, shared disks and other
people's projects, so that is looked at before anything is written. What reads an environment follows links.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from ..errors import BuildError
from .place import MARK, not_writable

_DEEPEST = 60
"""Folders in folders: more than any package has, and less than what a path can name."""


def check(env: Path) -> None:
    """Raise BuildError where a folder in an environment, or a file that gpuenv or an installer writes anew,
    is a link that leads out. A link of `bin/python` does, and is never written through."""
    root = os.path.realpath(env)
    for folder, entry in _links(str(env), 0):
        real = os.path.realpath(entry.path)
        if real == root or not real.startswith(root + os.sep):
            told = os.path.relpath(entry.path, env)
            if entry.is_dir() or _is_written(os.path.relpath(folder, env), entry.name):
                raise BuildError(
                    f"{told} in {env} is a link to {Path(entry.path).readlink()}: nothing is written through it",
                    hint="remove the link, or build the environment anew: gpuenv create with --recreate",
                )


def _links(folder: str, depth: int) -> Iterator[tuple[str, os.DirEntry[str]]]:
    if depth > _DEEPEST:
        raise BuildError(
            f"{folder[:200]}... has folders more than {_DEEPEST} deep, which no package has",
            hint="build the environment anew: gpuenv create with --recreate",
        )
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_symlink():
                    yield folder, entry
                elif entry.is_dir(follow_symlinks=False):
                    yield from _links(entry.path, depth + 1)
    except OSError as error:
        raise BuildError(f"{folder} cannot be looked through: {error.strerror or error}") from error


def _is_written(folder: str, name: str) -> bool:
    """Whether a file of this name is written in its place, not replaced by another one."""
    first, _, rest = folder.partition(os.sep)
    if folder == ".":
        return name in ("pyvenv.cfg", ".gitignore")
    if first == "bin" and not rest:
        return not name.startswith("python")
    return first in (MARK, "conda-meta") or (
        folder.endswith("site-packages") and name.startswith("_virtualenv")
    )


def own(path: Path) -> None:
    """Make a file that has other names, as hard links give them, one of its own. Raises BuildError."""
    try:
        found = path.lstat()
        if not stat.S_ISREG(found.st_mode):
            raise BuildError(f"{path} is no plain file", hint="gpuenv create with --recreate builds it anew")
        if found.st_nlink > 1:
            number, draft = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
            os.close(number)
            shutil.copy2(path, draft)
            Path(draft).replace(path)
    except OSError as error:
        raise not_writable(path, error) from error
