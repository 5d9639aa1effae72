"""Load the shipped profiles with the user's own rows."""

from __future__ import annotations

import functools
from pathlib import Path

from .. import profiles
from ..errors import UsageError
from ..model import Profiles
from .paths_of_environment_and_cache import get_cache_dir
from .shared_options import Choices

_FOR_VERDICT = (
    "cudnn",
    "system_libraries",
    "opened_libraries",
    "optional_libraries",
    "replacements",
    "satellites",
)
_FOR_FIXES = ("system_libraries", "replacements", "satellites", "toolkits")


def own_profiles() -> Path:
    """Return the folder of the user's own profile rows."""
    import platformdirs

    return Path(platformdirs.user_config_dir("gpuenv")) / "profiles"


def list_overlays(c: Choices) -> list[Path]:
    """Return the folders with rows that extend the shipped profiles. Raises UsageError for a missing one."""
    for folder in c.profiles:
        if not folder.is_dir():
            raise UsageError(f"--profiles {folder}: no such folder")
    user_folder = own_profiles()
    return list(c.profiles) or ([user_folder] if user_folder.is_dir() else [])


def load_all(c: Choices) -> Profiles:
    """Return the shipped profiles with the user's rows. Raises DataError, UsageError."""
    folders = tuple(list_overlays(c))
    return _loaded(profiles.digest(folders), folders, get_cache_dir(c))


@functools.lru_cache(maxsize=1)
def _loaded(_digest: str, folders: tuple[Path, ...], cache: Path) -> Profiles:
    """Return the profiles with that digest. Several parts of a run share the result."""
    return profiles.load(folders, cache_dir=cache)


def load_for_verdict(c: Choices) -> Profiles:
    """Return the rows that each verdict needs: cuDNN's releases, and the system libraries of packages.

    Raises DataError, UsageError.
    """
    folders = tuple(list_overlays(c))
    return _parts(_FOR_VERDICT, profiles.digest(folders), folders, get_cache_dir(c))


def load_for_fixes(c: Choices) -> Profiles:
    """Return the rows that name the package, wheel or release with a missing library. Raises DataError,
    UsageError."""
    folders = tuple(list_overlays(c))
    return _parts(_FOR_FIXES, profiles.digest(folders), folders, get_cache_dir(c))


def causes_of_jobs(c: Choices) -> frozenset[str]:
    """Return the causes that depend on the jobs running on a machine. Raises DataError, UsageError."""
    folders = tuple(list_overlays(c))
    known = _parts(("causes",), profiles.digest(folders), folders, get_cache_dir(c))
    return frozenset(row.cause for row in known.causes if row.of_jobs)


@functools.lru_cache(maxsize=3)
def _parts(parts: tuple[str, ...], _digest: str, folders: tuple[Path, ...], cache: Path) -> Profiles:
    return profiles.load_parts(parts, folders, cache_dir=cache)
