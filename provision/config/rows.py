"""Load the profiles with the overlays of the user, the parts that a command needs."""

from __future__ import annotations

import os
from pathlib import Path

from .. import profiles
from ..errors import UsageError
from ..model import ImportName, Profiles
from .options import Choices, get_cache_dir

_FOR_VERDICT = (
    "cudnn",
    "system_libraries",
    "opened_libraries",
    "optional_libraries",
    "replacements",
    "satellites",
)
_KEPT = 4  # a run needs one of each kind
_FOR_FIXES = ("system_libraries", "replacements", "satellites", "toolkits")


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
    # Not Path.is_dir, which raises for a folder that this user may not enter. `settle_home` has said so.
    return list(c.profiles) or ([user_folder] if os.path.isdir(user_folder) else [])  # noqa: PTH112


def load_all(c: Choices) -> Profiles:
    """Return the shipped profiles with the user's rows. Raises DataError, UsageError."""
    return _loaded(c, ())


def load_for_verdict(c: Choices) -> Profiles:
    """Return the rows that each verdict needs: cuDNN's releases, and the system libraries of packages.

    Raises DataError, UsageError.
    """
    return _loaded(c, _FOR_VERDICT)


def load_for_fixes(c: Choices) -> Profiles:
    """Return the rows that name the package, wheel or release with a missing library. Raises DataError,
    UsageError."""
    return _loaded(c, _FOR_FIXES)


def load_for_imports(c: Choices) -> tuple[ImportName, ...]:
    """Return the rows on the packages of modules. Raises DataError, UsageError."""
    return _loaded(c, ("imports",)).imports


def causes_of_jobs(c: Choices) -> frozenset[str]:
    """Return the causes that depend on the jobs running on a machine. Raises DataError, UsageError."""
    known = _loaded(c, ("causes",))
    return frozenset(row.cause for row in known.causes if row.of_jobs)


_read: dict[tuple[str, tuple[str, ...]], Profiles] = {}
"""The last profiles that were loaded, by the digest of their files. Several parts of a run share them."""


def _loaded(c: Choices, parts: tuple[str, ...]) -> Profiles:
    """Return these fields of the profiles, or all for none."""
    folders = list_overlays(c)
    key = (profiles.digest(folders), parts)
    if key not in _read:
        cache = get_cache_dir(c)
        loaded = (
            profiles.load_parts(parts, folders, cache_dir=cache)
            if parts
            else profiles.load(folders, cache_dir=cache)
        )
        while len(_read) >= _KEPT:
            del _read[next(iter(_read))]
        _read[key] = loaded
    return _read[key]
