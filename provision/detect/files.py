"""Small files of /proc, /sys and /etc under a root, where absent and unreadable mean unknown."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from pathlib import Path

from ..system import foreign


def under(root: Path, path: str) -> Path:
    """An absolute path of the machine under `root` (a made tree in tests, else "/")."""
    return root / path.lstrip("/")


def read_text(path: Path) -> str | None:
    """The stripped text of a file, or None where it is absent or may not be read."""
    try:
        return foreign.read_text(path).strip("\0\n ")
    except OSError:
        return None


def entries(folder: Path) -> tuple[Path, ...]:
    """What a directory holds, sorted by name; empty where it is absent or may not be read."""
    try:
        return tuple(sorted(folder.iterdir()))
    except OSError:
        return ()


def is_there(path: Path) -> bool:
    """Whether a path exists, a directory on the way that may not be searched meaning no."""
    try:
        return path.exists()
    except OSError:
        return False


def anybody_may_write(*paths: Path) -> bool:
    """Whether one of these, or what it links to, may be written by every user of the machine."""
    try:
        return any(path.stat().st_mode & stat.S_IWOTH for path in paths)
    except OSError:
        return True


def absolute_entries(value: str | None) -> Iterable[Path]:
    """The absolute directories of a PATH-like value; relative and empty ones are left out,
    because they mean something else in every working directory."""
    return (Path(entry) for entry in (value or "").split(os.pathsep) if Path(entry).is_absolute())
