"""Which older releases are read: those that could make a better set than the best one of what was read.

Each package stands in the search with one release more, without a version: the older ones that were not read, which go
with everything as far as is known. Where the best set takes it, the package is read further.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from ..model import NamedPackage, PackageRelease
from ..resolve.joint_search import Chosen, JointSearch, Refused
from ..resolve.question import Question
from ..wheels.available_releases import ReleaseReader

_MOST_ROUNDS = 12
_MOST_RELEASES = 120
"""Releases of one package that are read at most."""
_FIRST = 8
"""Releases of one package that are read in the first round; twice as many in each further one."""
_PRICE_ROUNDS = 3
_MOST_PRICES = 100


def read_what_matters(question: Question, reader: ReleaseReader, refused: Sequence[Refused]) -> JointSearch:
    """A search with all the releases that can matter. Raises LockError where an index does not answer."""
    search = JointSearch(question, reader.packages, refused)
    for number in range(_MOST_ROUNDS):
        if not reader.deepen(list_promising(search), _has_more, most=_FIRST << number):
            break
        search = JointSearch(question, reader.packages, refused)
    for _ in range(_PRICE_ROUNDS):
        if not reader.deepen(priced(search), _has_more, most=_MOST_PRICES):
            break
        search = JointSearch(question, reader.packages, refused)
    return search


def _has_more(package: NamedPackage) -> bool:
    return package.next_day is not None and len(package.releases) < _MOST_RELEASES


def list_promising(search: JointSearch) -> list[str]:
    """The packages whose older releases could make a better set."""
    best = search.best()
    if best and not best.most_behind:
        return []
    hoped = _with_unread(search).best()
    if hoped is None or (best and hoped.key[:4] >= best.key[:4]):
        return []
    return _unread(hoped)


def priced(search: JointSearch) -> list[str]:
    """The packages whose older releases could go with the newest build, where no set that was read has it: the plan
    says what that build would hold back."""
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
    """The search with one release of each package that stands for the older ones that were not read."""
    pythons = tuple(search.pythons)
    packages = [
        dataclasses.replace(p, releases=(*p.releases, _older(p, pythons))) if _has_more(p) else p
        for p in search.packages
    ]
    return JointSearch(search.asked, packages, search.refused)


def _older(package: NamedPackage, pythons: tuple[str, ...]) -> PackageRelease:
    return PackageRelease(package=package.name, version="", day=package.next_day or 0, pythons=pythons)
