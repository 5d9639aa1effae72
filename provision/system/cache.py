"""The folders and entries of gpuenv's cache, and their removal by `cache prune` and `cache clean`."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, get_args

from ..errors import BuildError

_FILES = ("profiles-*", "project-*", "default-index-*", "pythons.json*")
CacheFolder = Literal["measured", "pages", "requirements", "satellites", "source-archives"]
_OF_INSTALLERS = ("uv", "conda")
"""Folders that exist only in a cache set by --cache-dir. By default uv and rattler have separate caches."""
_UNUSED_SECONDS = 30 * 86400.0


def cache_folder(cache: Path, name: CacheFolder) -> Path:
    """Return a folder of gpuenv's cache. Every folder is opened through here, so that `cache clean` knows it."""
    return cache / name


def list_entries(cache: Path) -> list[Path]:
    """Return the files and folders that gpuenv keeps in its cache. Others are left alone."""
    files = [
        path for pattern in _FILES for path in cache.glob(pattern) if path.is_file() or path.is_symlink()
    ]
    folders = [cache / name for name in (*get_args(CacheFolder), *_OF_INSTALLERS)]
    return sorted({*files, *(path for path in folders if path.is_dir() and not path.is_symlink())})


def list_outdated(cache: Path) -> list[Path]:
    """Return files that were not used for a month."""
    old = time.time() - _UNUSED_SECONDS
    paths: list[Path] = []
    for entry in list_entries(cache):
        if entry.name not in _OF_INSTALLERS:
            for file in _walk_files(entry):
                status = _get_status(file)
                paths += [file] if status and max(status.st_atime, status.st_mtime) < old else []
    return paths


def remove_entries(paths: Sequence[Path]) -> tuple[int, int]:
    """Remove files and folders, and return how many files there were and their bytes. Raises BuildError."""
    files = freed = 0
    for path in paths:
        for file in _walk_files(path):
            status = _get_status(file)
            files, freed = files + 1, freed + (status.st_size if status else 0)
        try:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        except FileNotFoundError:
            continue  # another run removed it or a part of it
        except OSError as error:
            raise BuildError(
                f"{error.filename or path} cannot be removed: {error.strerror}",
                hint="end runs that use this cache, or check its permissions",
            ) from error
    return files, freed


def _walk_files(path: Path) -> Iterator[Path]:
    if not path.is_dir() or path.is_symlink():
        yield path
        return
    for root, _, names in os.walk(path):
        yield from (Path(root, name) for name in names)


def _get_status(file: Path) -> os.stat_result | None:
    try:
        return file.lstat()
    except OSError:
        return None  # removed meanwhile
