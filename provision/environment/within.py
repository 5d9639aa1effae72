"""An environment that is to be written in must not lead out of itself.

Whoever writes into `lib/.../site-packages/x` writes somewhere else where one of these folders is a link,
and an uninstaller removes there what a RECORD lists. Environments come with archives, shared disks and other
people's projects, so that is looked at before anything is written. What reads an environment follows links.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from ..errors import BuildError
from ..system.safe_write import TooDeepError, links_out, write_file
from .place import MARK, not_writable


def check(env: Path) -> None:
    """Raise BuildError where a folder in an environment, or a file that gpuenv or an installer writes anew,
    is a link that leads out. A link of `bin/python` does, and is never written through."""
    try:
        found = next((e for f, e in links_out(env) if _is_written_through(env, f, e)), None)
    except TooDeepError as error:
        raise BuildError(
            str(error.strerror), hint="build the environment anew: gpuenv create with --recreate"
        ) from error
    except OSError as error:
        raise BuildError(f"{error.filename} cannot be looked through: {error.strerror or error}") from error
    if found is not None:
        told = os.path.relpath(found.path, env)
        raise BuildError(
            f"{told} in {env} is a link to {Path(found.path).readlink()}: nothing is written through it",
            hint="remove the link, or build the environment anew: gpuenv create with --recreate",
        )


def _is_written_through(env: Path, folder: str, entry: os.DirEntry[str]) -> bool:
    return entry.is_dir() or _is_written(os.path.relpath(folder, env), entry.name)


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
            write_file(path, path.read_bytes())
    except OSError as error:
        raise not_writable(path, error) from error
