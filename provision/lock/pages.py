"""Prebuilt wheels of pages: which build has one, and the requirements with their addresses."""

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
from ..index.prebuilt_names import find_cxx11, label_of, serves
from ..index.simple_api import version_of
from ..model import (
    Build,
    Emit,
    Event,
    LockedPackage,
    PackageSources,
    Plan,
    PrebuiltWheel,
    Profiles,
    RequestContext,
    RequirementLine,
)
from ..system.untrusted_names_to_paths import UnsafeNameError, file_name_of_url
from ..wheels.index_metadata_cache import IndexMetadata
from ..wheels.prebuilt_wheels import PrebuiltWheels, read_wheel, ruled_pages
from .builds import Fitting
from .named import NamedPackage

_MOST_RELEASES = 24
"""The most releases of a package whose pages are read."""
_MOST_BUILDS = 24
"""The most builds for which a page is searched, newest first."""


@dataclass
class PrebuiltChoice:
    """The choice of prebuilt wheels for a plan.

    `locked` are the packages of an existing lock that may stay.
    """

    plan: Plan
    profiles: Profiles
    sources: PackageSources
    locked: Mapping[str, LockedPackage]
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
        if self._pages.page_of(name) is None:
            return None
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


def prebuilt_builds(
    fitting: Fitting, named: Iterable[NamedPackage], python: str, emit: Emit
) -> tuple[Build, ...] | None:
    """Return the newest builds for which every named package with a page has a wheel, or None without such builds."""
    context = fitting.context
    if context.sources.offline or context.sources.no_index:
        return None
    needs = [
        Requirement(n.text) for n in named if any(ruled_pages(context.profiles.pages, n.name)) and not n.index
    ]
    if not needs:
        return None
    newest = fitting.rows(fitting.newest)
    for build in fitting.chains[0][:_MOST_BUILDS]:
        builds = fitting.beside(build, newest) if python in fitting.question.pythons(build) else None
        if builds is None:
            continue
        choice = choice_for(context, fitting.plan(builds, python, {}), emit)
        if all(choice.choose(need) for need in needs):
            return builds
    return None


def choice_for(
    context: RequestContext, plan: Plan, emit: Emit, locked: Mapping[str, LockedPackage] | None = None
) -> PrebuiltChoice:
    """Return the choice of prebuilt wheels for a plan."""

    def warn(text: str) -> None:
        emit(Event(kind="warning", stage="lock", text=text))

    return PrebuiltChoice(plan, context.profiles, context.sources, locked or {}, warn)


def unruled_pages(context: RequestContext, plan: Plan) -> tuple[str, ...]:
    """Return the pages whose file names have no rule, if their packages are required. uv reads them itself."""
    if context.sources.offline or context.sources.no_index:
        return ()
    wanted = {n.name for n in context.demands.needs}
    wanted |= {str(canonicalize_name(Requirement(p).name)) for p in context.request.packages}
    return tuple(
        page.url.format(version=build.version, label=label_of(build.cuda))
        for build in plan.builds
        for page in context.profiles.pages
        if page.framework == build.framework and not page.local and wanted & set(page.packages)
    )
