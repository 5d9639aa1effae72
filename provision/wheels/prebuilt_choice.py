"""Chooses prebuilt wheels for the builds of a plan, and requires them by their address."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name, parse_wheel_filename
from packaging.version import Version

from ..errors import LockError
from ..index.prebuilt_names import find_cxx11, serves
from ..index.simple_api import version_of
from ..model import LockedPackage, PackageSources, Plan, PrebuiltWheel, Profiles, RequirementLine
from ..system.untrusted_names_to_paths import UnsafeNameError, file_name_of_url
from .index_metadata_cache import IndexMetadata
from .prebuilt_wheels import PrebuiltWheels, read_wheel, ruled_pages

_MOST_RELEASES = 24
"""The most releases of a package whose pages are read if no search has chosen one."""


@dataclass
class PrebuiltChoice:
    """The choice of prebuilt wheels for a plan.

    `locked` are the packages of an existing lock that may stay. `searched` are packages for which a search has chosen
    a release, with its wheel if the release has one for the plan.
    """

    plan: Plan
    profiles: Profiles
    sources: PackageSources
    locked: Mapping[str, LockedPackage]
    searched: Mapping[str, PrebuiltWheel | None]
    warn: Callable[[str], None]

    def require(self, text: str) -> str:
        """Return a requirement with the address of the wheel for the plan, or the unchanged requirement without one."""
        try:
            need = Requirement(text)
        except InvalidRequirement:
            return text  # a folder or an editable
        if need.url is not None or (wheel := self.choose(need)) is None:
            return text
        need.specifier = SpecifierSet()
        need.url = wheel.url + (f"#sha256={wheel.sha256}" if wheel.sha256 else "")
        return str(need)

    def require_lines(self, needs: Iterable[RequirementLine]) -> list[RequirementLine]:
        """Return the lines of a project with the addresses of wheels."""
        return [
            n if n.constraint or n.local or n.vcs or n.index or not n.name
            else dataclasses.replace(n, text=self.require(n.text)) for n in needs
        ]  # fmt: skip

    def choose(self, need: Requirement) -> PrebuiltWheel | None:
        """Return the wheel of the newest release within the bounds that has one for the plan. A locked wheel stays."""
        name = str(canonicalize_name(need.name))
        if not any(ruled_pages(self.profiles.pages, name)):
            return None
        locked = self._locked(name)
        if locked and need.specifier.contains(locked.version, prereleases=True):
            return locked
        if name in self.searched or self._pages.page_of(name) is None:
            return self.searched.get(name)
        for version in self._list_releases(name, need.specifier):
            fitting = [
                w for w in self._pages.of_release(name, version)
                if self._fits(w) and need.specifier.contains(_full_version(w), prereleases=True)
            ]  # fmt: skip
            if fitting:
                return max(fitting, key=lambda w: w.url)
        return None

    def _list_releases(self, name: str, bounds: SpecifierSet) -> Iterator[str]:
        """Return the releases whose pages are read, newest first, down to one that has a wheel on an index."""
        exact = [s.version for s in bounds if s.operator == "==" and "+" in s.version]
        indexed = self._read_index(name)
        versions = {Version(v) for v in self._pages.of_builds(name)} | indexed.keys()
        within = (
            [Version(Version(exact[0]).public)] if exact else sorted(bounds.filter(versions), reverse=True)
        )
        newest = itertools.islice(within, _MOST_RELEASES)
        return map(str, itertools.takewhile(lambda v: not indexed.get(v), newest))

    def _read_index(self, name: str) -> dict[Version, bool]:
        """Return the versions on the indexes, and whether each has a wheel."""
        try:
            files = IndexMetadata(self.sources).files(name)
        except LockError:
            return {}  # the solve says why the index does not answer
        has_wheel: dict[Version, bool] = {}
        for file in files:
            if version := version_of(file.name, name):
                has_wheel[version] = has_wheel.get(version, False) or file.name.endswith(".whl")
        return has_wheel

    def _locked(self, name: str) -> PrebuiltWheel | None:
        """Return the locked wheel of a package with its hash, if it is for the plan's builds."""
        package = self.locked.get(name)
        if package is None or package.unhashed or package.index:
            return None
        try:
            file = file_name_of_url(package.url)
        except UnsafeNameError:
            return None
        for page in ruled_pages(self.profiles.pages, name):
            wheel = read_wheel(page, file, package.url, self._pages.tags)
            if wheel and self._fits(wheel):
                return dataclasses.replace(wheel, sha256=package.sha256)
        return None

    @cached_property
    def _pages(self) -> PrebuiltWheels:
        return PrebuiltWheels(
            pages=self.profiles.pages, builds=self.plan.builds, sources=self.sources, target=self.plan.target,
            pythons=(self.plan.python or "",), warn=self.warn,
            glibcs=self.profiles.wheel_glibc,
        )  # fmt: skip

    def _fits(self, wheel: PrebuiltWheel) -> bool:
        cxx11 = ((b, find_cxx11(self.profiles.abis, b, self.plan.platform)) for b in self.plan.builds)
        return bool(wheel.pythons) and any(serves(wheel.built_for, b, abi) for b, abi in cxx11)


def _full_version(wheel: PrebuiltWheel) -> Version:
    """Return the version of a wheel with its local label."""
    return parse_wheel_filename(file_name_of_url(wheel.url))[1]
