"""lock: a Plan's pins solved to exact files with hashes, and locks read and written.

Here stands what reads and writes locks. What solves them is asked by its name: `pypi` for a venv's
wheels, `conda` for packages of channels, `universal` for several Pythons at once.
"""

from __future__ import annotations

import json
from pathlib import Path

from ..errors import LockError
from ..model import Lock, from_plain
from ..system import foreign
from . import file_names
from .pylock import is_source, read, write

__all__ = ["is_source", "read", "read_in", "write"]


def read_in(folder: Path) -> Lock:
    """The lock that an environment carries in its folder: pylock.toml, or of a conda environment the
    value itself, which needs no conda-lock to be read. Raises LockError."""
    if (folder / "pylock.toml").exists():
        return read(folder / "pylock.toml")
    path = folder / "lock.json"
    try:
        data = json.loads(foreign.read_bytes(path))
        held = from_plain(Lock, data.get("lock") if isinstance(data, dict) else data, "lock")
        file_names.check_all(held.packages, "packages")
    except (OSError, ValueError, RecursionError) as error:
        raise LockError(
            f"the environment's own lock {path} cannot be read: {error}",
            hint="build the environment again: gpuenv create --recreate",
        ) from error
    return held
