"""What is known, for this run: the shipped profiles with the user's own rows over them."""

from __future__ import annotations

import functools
from pathlib import Path

from .. import profiles
from ..errors import UsageError
from ..model import Profiles
from .environment_paths import get_cache_dir
from .options import Choices

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
    """The folder in which the user lays rows over gpuenv's own."""
    import platformdirs

    return Path(platformdirs.user_config_dir("gpuenv")) / "profiles"


def list_overlays(c: Choices) -> list[Path]:
    """The folders laid over the shipped profiles. Raises UsageError for one that is not there."""
    for folder in c.profiles:
        if not folder.is_dir():
            raise UsageError(f"--profiles {folder}: no such folder")
    mine = own_profiles()
    return list(c.profiles) or ([mine] if mine.is_dir() else [])


def load_all(c: Choices) -> Profiles:
    """The shipped profiles with the user's laid over them. Raises DataError, UsageError."""
    folders = tuple(list_overlays(c))
    return _loaded(profiles.digest(folders), folders, get_cache_dir(c))


@functools.lru_cache(maxsize=1)
def _loaded(_digest: str, folders: tuple[Path, ...], cache: Path) -> Profiles:
    """Several parts of one run ask; what they read is held by its sha256."""
    return profiles.load(folders, cache_dir=cache)


def load_for_verdict(c: Choices) -> Profiles:
    """What a verdict asks of each environment: cuDNN's releases, and what packages need of the system. Raises
    DataError, UsageError."""
    folders = tuple(list_overlays(c))
    return _parts(_FOR_VERDICT, profiles.digest(folders), folders, get_cache_dir(c))


def load_for_fixes(c: Choices) -> Profiles:
    """What names the package, wheel or release that brings a missing library. Raises DataError, UsageError."""
    folders = tuple(list_overlays(c))
    return _parts(_FOR_FIXES, profiles.digest(folders), folders, get_cache_dir(c))


def causes_of_jobs(c: Choices) -> frozenset[str]:
    """The causes that come and go with the jobs on a machine. Raises DataError, UsageError."""
    folders = tuple(list_overlays(c))
    known = _parts(("causes",), profiles.digest(folders), folders, get_cache_dir(c))
    return frozenset(row.cause for row in known.causes if row.of_jobs)


@functools.lru_cache(maxsize=3)
def _parts(parts: tuple[str, ...], _digest: str, folders: tuple[Path, ...], cache: Path) -> Profiles:
    return profiles.load_parts(parts, folders, cache_dir=cache)
