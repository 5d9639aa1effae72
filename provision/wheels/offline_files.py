"""Without a network: which locked wheels lie in the folders that the user named, and which must be cached.

An index's answers in uv's cache stand over a folder that has the same release, and name a file that cannot be
fetched. So what the folders have is installed without any index, and the rest from the cache.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

from ..model import Package, Sources


def split(packages: tuple[Package, ...], sources: Sources) -> Iterator[tuple[tuple[Package, ...], bool]]:
    """Yield the packages in parts, each with whether folders of wheels are all that is asked for it."""
    if sources.no_index:
        yield packages, True
        return
    names = file_names(sources)
    there = tuple(p for p in packages if file_name(p) in names)
    for part, only_files in ((there, True), (tuple(p for p in packages if p not in there), False)):
        if part:
            yield part, only_files


def file_names(sources: Sources) -> frozenset[str]:
    """Return the names of the files in the folders of wheels; none where the network may be used."""
    return frozenset(_files(sources.find_links)) if sources.offline else frozenset()


def _files(places: Iterable[str]) -> Iterator[str]:
    for place in places:
        if "://" not in place and Path(place).is_dir():
            yield from os.listdir(place)  # noqa: PTH208  # names alone are wanted


def file_name(package: Package) -> str:
    """Return the name of a package's file."""
    return unquote(urlsplit(package.url).path).rpartition("/")[2]
