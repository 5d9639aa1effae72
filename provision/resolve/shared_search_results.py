"""Keep results that several searches of one question share.

More releases are read between these searches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ..model import PackageRelease
from .assign_releases import Pairs
from .compatible_build_sets import CandidateBuilds

Releases = Sequence[PackageRelease]


@dataclass
class SearchMemory:
    """Results on single releases.

    `needs` are the bounds of a release by name, version and Python. `unfit` are objections of builds by name,
    version and place. `pairs` are pairs of releases by Python. `binding` tells by name and version whether a release
    requires a version of a framework.
    """

    candidates: tuple[CandidateBuilds, ...] | None = None
    needs: dict[tuple[str, str, str], Mapping[str, Sequence[str]]] = field(default_factory=dict)
    unfit: dict[tuple[str, str, int], str | None] = field(default_factory=dict)
    pairs: dict[str, Pairs] = field(default_factory=dict)
    binding: dict[tuple[str, str], bool] = field(default_factory=dict)


@dataclass
class SharedLists:
    """Shared lists of releases, so that hundreds of builds with the same options are one question.

    Results are kept by the identity of these lists.
    """

    lists: dict[tuple[str, tuple[str, ...]], Releases] = field(default_factory=dict)
    least_ages: dict[int, int] = field(default_factory=dict)
    without_compiled: dict[tuple[object, ...], Releases] = field(default_factory=dict)
    assigned: dict[tuple[object, ...], Mapping[str, PackageRelease] | None] = field(default_factory=dict)

    def share(self, name: str, releases: Releases) -> Releases:
        """Return the list for these releases of a package."""
        return self.lists.setdefault((name, tuple(r.version for r in releases)), releases)
