"""Reads the available releases of named packages, from indexes and folders of wheels.

The newest are first. Only metadata is read. Older releases are read only if the search for the newest set needs them.
"""

from __future__ import annotations

import datetime as dt
import functools
import re
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.tags import Tag
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from ..index.http import AT_ONCE
from ..index.markers_and_tags_of_platform import wheel_tags
from ..index.simple_api import File, allows_python, version_of
from ..model import AvailableWheels, NamedPackage, PackageRelease, PackageSources, Target
from .cache_and_disk import own_cache
from .index_metadata_cache import IndexMetadata
from .measured_rows_cache import MeasuredRows
from .prebuilt_wheels import PrebuiltWheels
from .read_source_archives import SourceArchive, SourceArchives, package_of

_MOST_ARCHIVES = 5
"""The most source archives of one package to download. Older ones count as compiled code."""
_EPOCH = dt.date(1970, 1, 1)
_NAME = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)")
"""The name at the start of a requirement (PyPA dependency specifiers)."""
_normalize = functools.lru_cache(maxsize=4096)(
    canonicalize_name
)  # releases repeat the names that they require


@dataclass(frozen=True, kw_only=True, slots=True)
class RequestedPackage:
    """A named package with its bounds. `index` is the only index that has it, or None for the configured ones."""

    name: str
    specifier: str = ""
    extras: tuple[str, ...] = ()
    named_by: str = ""
    index: str | None = None


@dataclass
class _Listing:
    """The files of a package by version, newest first, and the releases that were read."""

    named: RequestedPackage
    versions: list[tuple[Version, list[File]]]
    days: list[int]
    dated: bool
    releases: list[PackageRelease] = field(default_factory=list)

    def package(self) -> NamedPackage:
        """Return the package with the releases that were read and have files for some Python."""
        read = len(self.releases)
        return NamedPackage(
            name=self.named.name, specifier=self.named.specifier, extras=self.named.extras,
            named_by=self.named.named_by, releases=tuple(r for r in self.releases if r.pythons),
            complete=read == len(self.versions), next_day=self.days[read] if read < len(self.days) else None,
            dated=self.dated,
        )  # fmt: skip


@dataclass
class ReleaseReader:
    """A reader of releases for a target and some Pythons. `about` are the packages whose requirements matter."""

    sources: PackageSources
    supply: AvailableWheels
    target: Target
    pythons: Sequence[str]
    about: frozenset[str]
    pre: bool = False
    known: tuple[NamedPackage, ...] = ()
    prebuilt: PrebuiltWheels | None = None
    _listings: dict[str, _Listing] = field(default_factory=dict)

    def read(self, named: Iterable[RequestedPackage]) -> None:
        """Read the newest release of each package. Packages that no index lists are omitted.

        Raises LockError if an index does not answer.
        """
        with ThreadPoolExecutor(AT_ONCE) as pool:
            for listing in pool.map(self._list_files, named):
                if listing.versions:
                    self._listings[listing.named.name] = listing
            list(pool.map(self._read_newest, self._listings.values()))

    @property
    def packages(self) -> tuple[NamedPackage, ...]:
        """Return the packages with the releases that were read."""
        read = (listing.package() for listing in self._listings.values())
        return (*(replace(p, paged=self._is_paged(p.name)) for p in read), *self.known)

    def _is_paged(self, name: str) -> bool:
        """Return whether a page that could be read has prebuilt wheels of a package."""
        return self.prebuilt is not None and self.prebuilt.page_of(name) is not None

    def deepen(self, names: Iterable[str], wanted: Callable[[NamedPackage], bool], most: int = 8) -> bool:
        """Read up to `most` older releases of each package while they are wanted. Return whether any was read."""
        listings = [self._listings[n] for n in names if n in self._listings]
        with ThreadPoolExecutor(AT_ONCE) as pool:
            return any(list(pool.map(lambda listing: self._deepen_one(listing, wanted, most), listings)))

    def behind(self, name: str, version: str) -> int:
        """Return the days by which a version is older than the package's newest one, or 0 if no index was read."""
        if name not in self._listings:
            return 0
        listing = self._listings[name]
        place = next((i for i, (v, _) in enumerate(listing.versions) if v == Version(version)), None)
        return listing.days[0] - listing.days[place] if place is not None else 0

    def oldest(self, name: str, days: int) -> str:
        """Return the oldest version of a package that is at most some days older than its newest one."""
        listing = self._listings[name]
        within = [
            v
            for (v, _), day in zip(listing.versions, listing.days, strict=True)
            if listing.days[0] - day <= days
        ]
        return within[-1].public

    def _deepen_one(self, listing: _Listing, wanted: Callable[[NamedPackage], bool], most: int) -> bool:
        before = len(listing.releases)
        last = before
        package = listing.package()
        while last < min(before + most, len(listing.versions)) and wanted(
            replace(package, next_day=listing.days[last])
        ):
            last += 1
        with ThreadPoolExecutor(AT_ONCE) as pool:
            listing.releases += pool.map(lambda at: self._release(listing, at), range(before, last))
        return last > before

    def _read_newest(self, listing: _Listing) -> None:
        """Read the newest release, and older ones until each Python has one, because the newest may lack files for
        some."""
        most = len(self.pythons) + 3
        while len(listing.releases) < min(most, len(listing.versions)):
            listing.releases.append(self._release(listing, len(listing.releases)))
            if {p for r in listing.releases for p in r.pythons}.issuperset(self.pythons):
                return

    # --- the list of files -----------------------------------------------------------------------

    @functools.cached_property
    def _metadata(self) -> IndexMetadata:
        return IndexMetadata(self.sources)

    def _list_files(self, named: RequestedPackage) -> _Listing:
        grouped: dict[Version, list[File]] = {}
        for file in (*self._list_local(named.name), *self._metadata.files(named.name, named.index)):
            version = version_of(file.name, named.name)
            if version is not None and not self._is_late(file):
                grouped.setdefault(version, []).append(file)
        for text in self.prebuilt.of_builds(named.name) if self.prebuilt and not named.index else ():
            grouped.setdefault(Version(text), [])
        versions = sorted(self._select_within(named, grouped).items(), reverse=True)
        days, dated = _compute_days(versions)
        return _Listing(named, versions, days, dated)

    def _select_within(
        self, named: RequestedPackage, grouped: dict[Version, list[File]]
    ) -> dict[Version, list[File]]:
        """Return the versions within the bounds.

        Withdrawn versions and pre-releases are included only if the bounds name them, or if there are no others.
        """
        bounds = SpecifierSet(named.specifier)
        exact = any(s.operator in ("==", "===") and "*" not in s.version for s in bounds)
        usable = {
            v: fs for v, fs in grouped.items()
            if bounds.contains(v, prereleases=True) and (exact or not fs or any(f.yanked is None for f in fs))
        }  # fmt: skip
        finals = {v: fs for v, fs in usable.items() if not v.is_prerelease}
        return usable if self.pre or bounds.prereleases or not finals else finals

    def _is_late(self, file: File) -> bool:
        limit = self.sources.exclude_newer
        return bool(limit and file.uploaded and file.uploaded[:19] > limit[:19])

    def _list_local(self, name: str) -> list[File]:
        """Return the wheels of a package in folders, with the day of today."""
        today = dt.datetime.now(tz=dt.timezone.utc).isoformat()
        return [
            File(name=w.url.rpartition("/")[2].replace("%2B", "+"), url=w.url, uploaded=today)
            for w in self.supply.wheels if w.name == name
        ]  # fmt: skip

    # --- one release -----------------------------------------------------------------------------

    def _release(self, listing: _Listing, at: int) -> PackageRelease:
        version, files = listing.versions[at]
        wheels = [f for f in files if f.name.endswith(".whl")]
        fitting = {f: self._find_pythons(f) for f in wheels}
        having = {p for pythons in fitting.values() for p in pythons}
        archives = [f for f in files if not f.name.endswith(".whl")]
        built = {p for f in archives for p in self.pythons if allows_python(f.requires_python, p)}
        best = next((f for f, pythons in fitting.items() if pythons), wheels[0] if wheels else None)
        compiled = [f for f in wheels if not f.name.endswith("-none-any.whl")]
        paged = self.prebuilt if not listing.named.index else None
        prebuilt = paged.of_release(listing.named.name, str(version)) if paged else ()
        for_builds = {p for w in prebuilt for p in w.pythons}
        archive = None if wheels or at >= _MOST_ARCHIVES else self._describe(listing.named.name, archives)
        requires = self._metadata.requirements(best) if best else archive.requires if archive else None
        return PackageRelease(
            package=listing.named.name, version=str(version), day=listing.days[at],
            pythons=tuple(p for p in self.pythons if p in having or p in built or p in for_builds),
            wheels=tuple(p for p in self.pythons if p in having),
            requires=tuple(t for t in requires or () if self._concerns(t)),
            requires_known=requires is not None,
            compiles=archive.needs_compiler if archive else bool(compiled) or not wheels,
            compiled=any(fitting[f] for f in compiled),
            measured=self._measured.of((f.sha256 for f in compiled), self.target.platform),
            prebuilt=prebuilt, sourced=bool(archives),
        )  # fmt: skip

    def _concerns(self, requirement: str) -> bool:
        """Return whether a valid requirement names a package in `about`. Only these are parsed: a release can
        list hundreds of others."""
        start = _NAME.match(requirement)
        if start is None or _normalize(start[1]) not in self.about:
            return False
        try:
            return canonicalize_name(Requirement(requirement).name) in self.about
        except InvalidRequirement:
            return False

    @functools.cached_property
    def _measured(self) -> MeasuredRows:
        return MeasuredRows(own_cache(self.sources))

    def _describe(self, name: str, archives: Sequence[File]) -> SourceArchive | None:
        """Return the metadata of the source archive of a release without wheels."""
        packages = [p for f in archives if (p := package_of(name, f))]
        return next(iter(SourceArchives(self.sources).describe(packages[:1]).values()), None)

    def _find_pythons(self, file: File) -> frozenset[str]:
        try:
            tags = parse_wheel_filename(file.name)[3]
        except (InvalidWheelFilename, InvalidVersion):
            return frozenset()
        return frozenset(
            p
            for p in self.pythons
            if allows_python(file.requires_python, p) and not tags.isdisjoint(self._tags[p])
        )

    @functools.cached_property
    def _tags(self) -> dict[str, frozenset[Tag]]:
        return {p: frozenset(wheel_tags(p, self.target.platform, self.target.glibc)) for p in self.pythons}


def _compute_days(versions: Sequence[tuple[Version, Sequence[File]]]) -> tuple[list[int], bool]:
    """Return the day of each version, and whether the index has upload times. A version is older than every newer
    version."""
    stated = [min((f.uploaded for f in files if f.uploaded), default=None) for _, files in versions]
    if not any(stated):
        return [len(versions) - i for i in range(len(versions))], False
    days: list[int] = []
    last = max((dt.date.fromisoformat(text[:10]) - _EPOCH).days for text in stated if text) + 1
    for text in stated:  # a version without a time, or of the same day, is also older than the newer one
        last = min(last - 1, (dt.date.fromisoformat(text[:10]) - _EPOCH).days) if text else last - 1
        days.append(last)
    return days, True
