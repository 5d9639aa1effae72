"""Decide which older releases to read: those that could make a better set.

In the search each package has one more release without a version. It represents the unread older releases and
is assumed to be compatible with everything. If the best set contains it, more releases of the package are
read.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from ..model import NamedPackage, PackageRelease
from ..resolve.chosen_and_refused_sets import Chosen, Refused
from ..resolve.question import Question
from ..resolve.search_builds_and_packages import JointSearch
from ..resolve.shared_search_results import SearchMemory
from ..wheels.available_releases import ReleaseReader

_MOST_ROUNDS = 12
_MOST_RELEASES = 120
"""Releases of one package that are read at most."""
_MOST_PAGES = 24
"""The same for a package with prebuilt wheels: each release has a page of its own."""
_FIRST = 8
"""Releases of one package that are read in the first round; twice as many in each further one."""
_PRICE_ROUNDS = 3
_MOST_PRICES = 100


def read_what_matters(question: Question, reader: ReleaseReader, refused: Sequence[Refused]) -> JointSearch:
    """Return a search with all relevant releases. Raises LockError if an index does not answer."""
    memory = SearchMemory()
    search = JointSearch(question, reader.packages, refused, memory)
    for number in range(_MOST_ROUNDS):
        if not reader.deepen(list_promising(search), _has_more, most=_FIRST << number):
            break
        search = JointSearch(question, reader.packages, refused, memory)
    for _ in range(_PRICE_ROUNDS):
        if not reader.deepen(priced(search), _has_more, most=_MOST_PRICES):
            break
        search = JointSearch(question, reader.packages, refused, memory)
    return search


def _has_more(package: NamedPackage) -> bool:
    most = _MOST_PAGES if package.paged else _MOST_RELEASES
    return package.next_day is not None and len(package.releases) < most


def list_promising(search: JointSearch) -> list[str]:
    """Return the packages whose older releases could make a better set."""
    best = search.best()
    if best and not best.most_behind and not best.compiles:
        return []
    hoped = _with_unread(search).best()
    if hoped is None or (best and hoped.key[:4] >= best.key[:4]):
        return []
    return _unread(hoped)


def priced(search: JointSearch) -> list[str]:
    """Return the packages whose older releases could be compatible with the newest build.

    The plan states what that build would hold back. Return none if a set that was read has that build.
    """
    chosen = search.best()
    if chosen is None or search.candidates[0].versions == chosen.candidate.versions:
        return []
    newest = [c for c in search.candidates if c.versions == search.candidates[0].versions]
    if any(search.best_with(c) for c in newest):
        return []
    hopes = filter(None, map(_with_unread(search).best_with, newest))
    hoped = min(hopes, key=lambda c: c.key, default=None)
    return _unread(hoped) if hoped else []


def _unread(chosen: Chosen) -> list[str]:
    return [name for name, release in chosen.releases.items() if not release.version]


def _with_unread(search: JointSearch) -> JointSearch:
    """Return the search with one extra release of each package for its unread older releases."""
    pythons = tuple(search.fit.pythons)
    packages = [
        dataclasses.replace(p, releases=(*p.releases, _older(p, pythons))) if _has_more(p) else p
        for p in search.packages
    ]
    return JointSearch(search.question, packages, search.refused, search.memory)


def _older(package: NamedPackage, pythons: tuple[str, ...]) -> PackageRelease:
    return PackageRelease(package=package.name, version="", day=package.next_day or 0, pythons=pythons)
