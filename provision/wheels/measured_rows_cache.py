"""Cache of measured rows of wheels that no profile has, by sha256."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from ..model import Satellite, as_plain, from_plain
from ..system import trust
from ..system.cache import cache_folder


@dataclass
class MeasuredRows:
    """The rows in a cache folder."""

    cache: Path

    @cached_property
    def _folder(self) -> Path:
        return cache_folder(self.cache, "satellites")

    @cached_property
    def _known(self) -> set[str]:
        """The digests with rows, from one listing of the folder, which mostly has none."""
        try:
            return {name.removesuffix(".json") for name in os.listdir(self._folder)}  # noqa: PTH208  # names alone
        except OSError:
            return set()

    def __contains__(self, sha256: str | None) -> bool:
        return sha256 in self._known

    def of(self, sha256s: Iterable[str | None], platform: str) -> tuple[Satellite, ...]:
        """Return the rows of the first wheel that was measured. All wheels of one release have the same needs."""
        for sha256 in sha256s:
            if sha256 in self._known and (rows := self._read(str(sha256))):
                return tuple(row for row in rows if row.platform == platform)
        return ()

    def keep(self, sha256: str, rows: Iterable[Satellite]) -> None:
        """Store the rows of a wheel. The cache is optional."""
        trust.write_cached(self._folder / f"{sha256}.json", json.dumps([as_plain(row) for row in rows]))
        self._known.add(sha256)

    def _read(self, sha256: str) -> list[Satellite]:
        try:
            kept = json.loads(trust.read_cached(self._folder / f"{sha256}.json"))
            return [from_plain(Satellite, row) for row in kept]
        except (OSError, ValueError, TypeError):
            return []
