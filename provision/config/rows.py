"""Load the profiles with the overlays of the user."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import UsageError
from .options import Choices, get_cache_dir

if TYPE_CHECKING:
    from ..model import Profiles


def own_profiles() -> Path:
    """Return the folder of the user's own profile rows."""
    import platformdirs

    return Path(platformdirs.user_config_dir("gpuenv")) / "profiles"


def list_overlays(c: Choices) -> list[Path]:
    """Return the folders with rows that extend the shipped profiles. Raises UsageError for a missing one."""
    for folder in c.profiles:
        try:
            os.scandir(folder).close()
        except OSError as error:
            raise UsageError(
                f"--profiles {folder}: {error.strerror}", hint="give a folder with profiles"
            ) from error
    user_folder = own_profiles()
    # Not Path.is_dir, which raises for a folder that this user may not enter. `choose_home` has said so.
    return list(c.profiles) or ([user_folder] if os.path.isdir(user_folder) else [])  # noqa: PTH112


def load(c: Choices) -> Profiles:
    """Return the profiles with the user's rows, read once in a run. Raises DataError, UsageError."""
    folders, cache = list_overlays(c), get_cache_dir(c)  # each cache is checked, also where nothing is read
    files = tuple((path, path.stat().st_mtime_ns) for folder in folders for path in sorted(folder.iterdir()))
    from .. import profiles  # few commands that find everything in place read rows

    if files not in _read:
        _read[files] = profiles.load(folders, cache_dir=cache)
    profiles.current = _read[files]
    return profiles.current


_read: dict[tuple[tuple[Path, int], ...], Profiles] = {}
"""The profiles that were loaded, by the user's files."""


def causes_of_jobs(c: Choices) -> frozenset[str]:
    """Return the causes that depend on the jobs running on a machine. Raises DataError, UsageError."""
    return frozenset(row.cause for row in load(c).causes if row.of_jobs)
