"""uv's cache, folders of wheels, and free space on disks.

For the same release uv prefers an index's answer in its cache to a folder, and names a file that it cannot fetch. So
without a network, files of folders are installed without any index, and the rest from the cache.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from urllib.parse import unquote, urlsplit

from ..errors import BuildError
from ..index import uv, uv_config
from ..model import LockedPackage, PackageSources
from ..system import process, trust

# Ratio of unpacked to packed bytes of a whole environment: 1.6 to 2.3 for CUDA wheels (measured on torch, TensorFlow
# and JAX locks of 2026-11). The upper end applies, because a full disk costs more than a warning.
UNPACKED = 2.3


def size(count: float) -> str:
    """Return bytes as text: "2.4 GB" (powers of ten, as registries count)."""
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"


def installer_cache(sources: PackageSources) -> Path:
    if sources.cache_dir:
        return Path(sources.cache_dir, "uv")
    if configured := uv_config.variables(process.environ()).get("UV_CACHE_DIR"):
        return Path(configured)
    return uv.cache_folder(process.environ())


def is_cached(sources: PackageSources, name: str, version: str) -> bool:
    """Return whether uv's cache has a wheel of a version from any index (uv's cache layout, wheels-v*)."""
    pattern = f"wheels-v*/*/**/{name}/{version}-*.http"
    return next(installer_cache(sources).glob(pattern), None) is not None


def may_be_here(packages: Sequence[LockedPackage], sources: PackageSources) -> bool:
    """Return whether uv may be able to install these packages without the network.

    It cannot on a machine's first run, when its cache has no unpacked wheel (in `archive-v*`), without a folder of
    wheels.
    """
    configured = uv_config.variables(process.environ()).get("UV_FIND_LINKS")
    local = sources.offline or sources.find_links or configured
    if local or any(p.url.startswith("file:") for p in packages):
        return True
    return _holds_wheels(uv.cache_folder(process.environ())) or _holds_wheels(installer_cache(sources))


def _holds_wheels(cache: Path) -> bool:
    return any(cache.glob("archive-v*/*"))


def own_cache(sources: PackageSources) -> Path:
    """Return gpuenv's own cache, beside the installer's."""
    import platformdirs

    return trust.settle_cache(Path(sources.cache_dir or platformdirs.user_cache_dir("gpuenv")))


def check_disk(path: Path, packed: int, *, cached: bool = False) -> None:
    """Raise BuildError if a disk has too little space.

    Wheels are unpacked in the cache and linked into an environment on the same disk. An environment on another disk
    needs the space again.
    """
    while not path.exists():
        path = path.parent
    need = packed * ((1 + UNPACKED) if cached else 0)
    free = shutil.disk_usage(path).free
    if free < need:
        raise BuildError(
            f"{path} has {size(free)} free; downloading and unpacking needs about {size(need)}",
            hint="free space, or choose another disk: --cache-dir DIR and another ENV",
        )


def split(
    packages: tuple[LockedPackage, ...], sources: PackageSources
) -> Iterator[tuple[tuple[LockedPackage, ...], bool]]:
    """Yield the packages in parts, each with whether only folders of wheels are used for it."""
    if sources.no_index:
        yield packages, True
        return
    names = file_names(sources)
    there = tuple(p for p in packages if file_name(p) in names)
    for part, only_files in ((there, True), (tuple(p for p in packages if p not in there), False)):
        if part:
            yield part, only_files


def file_names(sources: PackageSources) -> frozenset[str]:
    """Return the names of the files in the folders of wheels, or nothing if the network may be used."""
    return frozenset(_list_files(sources.find_links)) if sources.offline else frozenset()


def _list_files(places: Iterable[str]) -> Iterator[str]:
    for place in places:
        if "://" not in place and Path(place).is_dir():
            yield from os.listdir(place)  # noqa: PTH208  # names alone are wanted


def file_name(package: LockedPackage) -> str:
    """Return the name of a package's file."""
    return unquote(urlsplit(package.url).path).rpartition("/")[2]
