"""Folders that gpuenv never removes: the home folder, file system roots, mount points."""

from __future__ import annotations

import os
from pathlib import Path

from ..errors import BuildError


def home_folder() -> Path | None:
    try:
        return Path.home()
    except RuntimeError:
        return None  # neither HOME nor the user database names one


def holds_more_than_an_environment(path: Path) -> bool:
    """Return whether a folder contains the home folder, or is the root of the file system or directly below it.

    Messages never advise to remove such a folder.
    """
    real, home = path.resolve(), home_folder()
    return (
        real == real.parent
        or real.parent == Path(real.anchor)
        or bool(home and home.resolve().is_relative_to(real))
    )


def find_mount(env: Path) -> Path | None:
    """Return the mount point of another disk at or in a folder, or None. Files there would be removed from that disk."""
    real = env.resolve()
    inside = next((m for m in _read_mounts() if m.is_relative_to(real)), None)
    return inside or (env if os.path.ismount(env) else None)


def _read_mounts() -> list[Path]:
    """Return the mount points from Linux's table (proc(5): the fifth field, blanks as octal)."""
    try:
        rows = Path("/proc/self/mountinfo").read_bytes().splitlines()
    except OSError:
        return []  # on other systems ismount checks the environment itself
    points = [row.split(b" ")[4] for row in rows if row.count(b" ") > 4]
    return [Path(os.fsdecode(p.decode("unicode_escape").encode("latin-1"))) for p in points]


def refuse_mounts(path: Path) -> None:
    """Raise BuildError if another disk is mounted in a folder to remove."""
    if place := find_mount(path):
        raise BuildError(f"another disk is mounted at {place}; {path} is left alone", hint="unmount it first")
