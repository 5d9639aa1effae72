"""Digests of the lists of files that indexes have of packages. They show whether releases changed since a run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from ..index.http import AT_ONCE
from ..model import PackageSources
from .index_metadata_cache import IndexMetadata


@dataclass
class PageDigests:
    """The digests of these sources. Each list is read once in a run."""

    sources: PackageSources
    _digests: dict[tuple[str, str | None], str] = field(default_factory=dict, repr=False)

    def of(self, names: Iterable[str], bound: Mapping[str, str]) -> dict[str, str]:
        """Return a digest of the lists of files of each package. `bound` has the only index of some packages.

        Raises LockError if an index does not answer.
        """
        places = {name: bound.get(name) for name in names}
        missing = [place for place in places.items() if place not in self._digests]
        indexes = IndexMetadata(self.sources)
        with ThreadPoolExecutor(AT_ONCE) as pool:
            digests = pool.map(lambda place: indexes.digest(*place), missing)
            self._digests |= zip(missing, digests, strict=True)
        return {name: self._digests[name, index] for name, index in places.items()}
