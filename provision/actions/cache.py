"""`gpuenv cache dir|prune|clean`: show or remove what gpuenv keeps between runs."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from ..config.options import Choices, get_cache_dir
from ..model import CacheUsage, Emit, Event, drop_event
from ..model.declare import group
from ..model.values import Value
from ..system import cache


class CacheDirOptions(Value):
    """The options of `cache dir`."""

    choices: Choices = group(Choices, "cache_dir")


class CachePruneOptions(Value):
    """The options of `cache prune`."""

    NAMES_WHAT_IS_REMOVED: ClassVar = ("cache_dir",)

    choices: Choices = group(Choices, "cache_dir")


class CacheCleanOptions(CachePruneOptions):
    """The options of `cache clean`."""


def dir(options: CacheDirOptions, emit: Emit = drop_event) -> CacheUsage:  # noqa: A001  # the command's name
    """Return the folder of gpuenv's cache, without reading it."""
    return CacheUsage(path=str(get_cache_dir(options.choices)))


def prune(options: CachePruneOptions, emit: Emit = drop_event) -> CacheUsage:
    """Remove files unused for a month."""
    return _remove(emit, options.choices, cache.list_outdated(get_cache_dir(options.choices)))


def clean(options: CacheCleanOptions, emit: Emit = drop_event) -> CacheUsage:
    """Remove everything that gpuenv keeps. Later runs create it again."""
    folder = get_cache_dir(options.choices)
    return _remove(emit, options.choices, cache.list_entries(folder))


def _remove(emit: Emit, choices: Choices, entries: list[Path]) -> CacheUsage:
    files, freed = cache.remove_entries(entries)
    if choices.cache_dir is None:
        text = (
            "packages stay: they are in the caches of uv (uv cache clean) and of rattler (pixi clean cache)"
        )
        emit(Event("note", "cache", text))
    return CacheUsage(path=str(get_cache_dir(choices)), removed_files=files, freed_bytes=freed)
