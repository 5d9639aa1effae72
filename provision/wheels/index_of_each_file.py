"""Finds the index of each file in uv's answer, by the file's address.

uv states indexes only in another form of its answer, which takes a second run.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from urllib.parse import unquote, urlsplit

from ..errors import LockError
from ..index import uv, uv_config
from ..index.http import Http
from ..index.pip_config import default_index
from ..index.simple_api import project_files
from ..model import LockedPackage, PackageSources
from ..system import process
from ..system.redaction import redact
from .cache_and_disk import own_cache


@dataclass(frozen=True)
class FileIndexes:
    """The indexes and folders that uv uses.

    `bound` are packages with their only index. With `only_wheels` no index is used.
    """

    sources: PackageSources
    bound: Mapping[str, str]
    only_wheels: bool = False
    _http: Http = field(default_factory=Http, repr=False, compare=False)

    def indexes(self, packages: Sequence[LockedPackage]) -> dict[str, str] | None:
        """Return the index of each package, or None if an address can belong to several places or to none."""
        indexes = {p.name: self._index(p.name, p.url) for p in packages}
        known = {name: index for name, index in indexes.items() if index is not None}
        return known if len(known) == len(indexes) else None

    def _index(self, name: str, url: str) -> str | None:
        indexes = [self.bound[name]] if name in self.bound else self._indexes
        if not all(map(_is_plain, [*indexes, *self._links])):
            return None
        could = [index for index in indexes if self._could_be(index, name, url)]
        could += [_make_url(link) for link in self._links if _is_in_folder(url, link)]
        return could[0] if len(set(could)) == 1 else None

    def _could_be(self, index: str, name: str, url: str) -> bool:
        """Return whether an index can list an address.

        Pages of a folder are read. Any other index is assumed to list every downloadable file.
        """
        if not index.startswith("file:"):
            return not url.startswith("file:")
        try:
            return any(file.url == url for file in project_files(self._http, index, name))
        except LockError:
            return True

    @cached_property
    def _environ(self) -> dict[str, str]:
        return uv.environment(self.sources, process.environ(), uv.Settings(only_wheels=self.only_wheels))

    @cached_property
    def _indexes(self) -> list[str]:
        if uv_config.is_on(self._environ.get("UV_NO_INDEX")):
            return []
        default = uv_config.default_index(self._environ)
        default = default or default_index(process.environ(), cache_dir=own_cache(self.sources))
        return [*map(uv_config.address, uv_config.extra_indexes(self._environ)), default]

    @cached_property
    def _links(self) -> list[str]:
        return list(filter(None, self._environ.get("UV_FIND_LINKS", "").split(",")))


def _is_plain(place: str) -> bool:
    """Return whether uv's answer has a place unchanged: a folder, or an address without credentials."""
    scheme = place.partition("://")[0] if "://" in place else "file"
    return scheme in ("http", "https", "file") and "@" not in place and "$" not in place


def _is_in_folder(url: str, link: str) -> bool:
    """Return whether a file can belong to a folder of wheels, or to a page of them, which can list every address."""
    if link.startswith(("http:", "https:")):
        return True
    return url.startswith("file:") and _get_path(url).parent == _get_path(_make_url(link))


def _make_url(place: str) -> str:
    return place if "://" in place else Path(place).absolute().as_uri()


def _get_path(url: str) -> Path:
    return Path(unquote(urlsplit(url).path))


def drop_pages(packages: tuple[LockedPackage, ...], sources: PackageSources) -> tuple[LockedPackage, ...]:
    """Return the packages without the pages of wheels as their index. They are installed from their own addresses."""
    pages = {redact(p).rstrip("/") for p in sources.find_links if p.startswith(("http:", "https:"))}
    return tuple(
        dataclasses.replace(p, index=None) if p.index and p.index.rstrip("/") in pages else p
        for p in packages
    )
