"""Find releases of a set that are over two years older than the newest possible ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property

from packaging.utils import canonicalize_name

from ..model import NamedPackage, PackageRelease
from .chosen_and_refused_sets import Chosen
from .objections import unbounded_versions
from .search_builds_and_packages import JointSearch
from .versions import allows, meets

OLD = 2 * 365
"""Days behind its newest release from which a release is not taken without being asked for."""


def too_old(search: JointSearch, chosen: Chosen) -> Iterator[tuple[PackageRelease, PackageRelease]]:
    """Yield the releases of a set that are too old, each with the newest one that the bounds allow."""
    newest = _NewestWithinBounds(search)
    for name, release in chosen.releases.items():
        package = search.fit.by_name[name]
        reference = newest.release(package)
        if reference and package.dated and reference.day - release.day > OLD:
            yield release, reference


class _NewestWithinBounds:
    """The newest releases that are compatible with a framework version within the bounds, for any driver and
    GPUs."""

    def __init__(self, search: JointSearch) -> None:
        self.search = search

    def release(self, package: NamedPackage) -> PackageRelease | None:
        request = self.search.question.request
        pythons = {request.python} if request.python else None
        for release in package.releases:
            served = [
                p for p in release.pythons
                if (pythons is None or p in pythons)
                and (not request.requires_python or allows(request.requires_python, p))
            ]  # fmt: skip
            if any(self._goes_with_some(package, release, p) for p in served):
                return release
        return None

    def _goes_with_some(self, package: NamedPackage, release: PackageRelease, python: str) -> bool:
        for need in self.search.fit.requirements(package, release, python):
            versions = self._versions.get(str(canonicalize_name(need.name)))
            if versions is not None and not any(meets(v, str(need.specifier)) for v in versions):
                return False
        return True

    @cached_property
    def _versions(self) -> Mapping[str, frozenset[str]]:
        question = self.search.question
        return {w.name: unbounded_versions(question, w) for w in question.request.frameworks}
