"""Prebuilt wheels of pages: which build has one, and the requirements with their addresses."""

from __future__ import annotations

import functools
import itertools
import re
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from urllib.parse import unquote, urlsplit

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.tags import Tag
from packaging.utils import InvalidWheelFilename, canonicalize_name
from packaging.version import Version

from ..errors import LockError
from ..index.simple_api import File, version_of
from ..index.wheel_names import wheel_tags
from ..model import (
    Build,
    BuiltFor,
    CxxAbi,
    Emit,
    Event,
    LockedPackage,
    Plan,
    PlannedBuild,
    PrebuiltWheel,
    RequestContext,
    WheelGlibc,
    WheelPage,
    format_label,
)
from ..requirements.quote import try_requirement
from ..resolve.choice import candidates
from ..resolve.objections import objections
from ..resolve.satellites import SatelliteRows, objection
from ..system.untrusted import UnsafeNameError, file_name_of_url
from ..system.versions import meets
from ..system.wheel_file import parse_wheel
from ..wheels.releases import IndexMetadata, SourceArchives
from .builds import FittingBuilds
from .named import NamedPackage

_MOST_RELEASES = 24
"""The most releases of a package whose pages are read."""
_MOST_MINORS = 6
"""The most minor releases of a framework that a note names."""
_TIMEOUT = 8.0
"""Seconds for a page: many networks let no request to its host through."""
_NO_HASH = "Its file has no hash before the first lock"
_MOST_PAGES = 24
"""The most pages of builds to read: those of the newest builds of a framework."""


@dataclass
class Pages:
    """The prebuilt wheels for the builds that fit a request. Each page is read once, and an unreadable one is named once.

    `named` are the requested packages, and `locked` the packages of an existing lock that may stay.
    """

    fitting: FittingBuilds
    named: Sequence[NamedPackage]
    emit: Emit
    locked: Mapping[str, LockedPackage] = field(default_factory=dict)

    _unread: set[str] = field(default_factory=set)
    _warned: dict[str, str] = field(default_factory=dict)
    _of_builds: dict[str, list[File]] = field(default_factory=dict, repr=False)
    _indexed: dict[str, dict[Version, bool]] = field(default_factory=dict, repr=False)
    _reading: threading.Lock = field(default_factory=threading.Lock, repr=False)

    @property
    def context(self) -> RequestContext:
        """The request, with its target and sources."""
        return self.fitting.context

    @cached_property
    def packages_with_page(self) -> tuple[NamedPackage, ...]:
        """The requested packages that have a page. Offline there are none."""
        context = self.context
        if context.sources.offline or context.sources.no_index:
            return ()
        return tuple(n for n in self.named if find_pages(n.name, context.profiles.pages) and not n.index)

    def builds(self, python: str) -> tuple[Build, ...] | None:
        """Return the newest builds for which every package with a page has a wheel, or None without such builds."""
        if not self.packages_with_page:
            return None
        newest, needs = (
            self.fitting.rows(self.fitting.newest),
            [Requirement(n.text) for n in self.packages_with_page],
        )
        for build in self.fitting.chains[0]:
            usable = python in self.fitting.question.pythons(build)
            builds = self.fitting.replace_build(build, newest) if usable else None
            if builds and all(self.choose(need, builds, python) for need in needs):
                return builds
        return None

    def require(self, text: str, plan: Plan) -> str:
        """Return a requirement with the address of the wheel for a plan, or the unchanged requirement without one."""
        need = try_requirement(text)
        wheel = self.choose(need, plan.builds, plan.python or "") if need and not need.url else None
        if need is None or wheel is None:
            return text
        need.specifier = SpecifierSet()
        need.url = wheel.url + (f"#sha256={wheel.sha256}" if wheel.sha256 else "")
        return str(need)

    def packages(self, plan: Plan) -> tuple[LockedPackage, ...]:
        """Return the wheels of pages for a plan."""
        wheels = (
            self.choose(Requirement(n.text), plan.builds, plan.python or "") for n in self.packages_with_page
        )
        return tuple(
            LockedPackage(name=w.package, version=w.version, url=w.url, sha256=w.sha256) for w in wheels if w
        )

    def notes(self, packages: Iterable[LockedPackage], plan: Plan) -> Iterator[str]:
        """Yield a sentence for each package with a page: its wheel, or that it is built and which builds have one."""
        by_name = {p.name: p for p in packages}
        for named in self.packages_with_page:
            package = by_name.get(named.name)
            if package is None or package.unhashed:
                continue
            if package.url.endswith(".whl"):
                if package.index is None:
                    text = f"{package.name} {package.version} is the wheel {unquote(package.url.rpartition('/')[2])}"
                    yield text if package.sha256 else f"{text}. {_NO_HASH}"
                elif elsewhere := self._unreachable(named, package, plan):
                    yield elsewhere
                continue
            cudas = " and ".join(
                f"{b.framework} {b.version}{f' with CUDA {b.cuda}' if b.cuda else ''}" for b in plan.builds
            )
            text = f"{package.name} {package.version} has no wheel for {cudas} and Python {plan.python}, so it is built from source"
            wheels = [
                w
                for v in self._releases(named.name, SpecifierSet(named.specifier))
                for w in self._wheels_of(named.name, v)
            ]
            framework = wheels[0].built_for.framework if wheels else ""
            known = [
                b for b in self.context.profiles.builds
                if b.framework == framework and b.platform == plan.platform
            ]  # fmt: skip
            minors = {w.built_for.minor for w in wheels if self._is_fitting(w, known, plan.python or "")} - {
                ""
            }
            newest = sorted(minors, key=Version, reverse=True)[:_MOST_MINORS]
            yield text + (f". Wheels exist for {framework} {', '.join(newest)}" if newest else "")

    def _unreachable(self, named: NamedPackage, package: LockedPackage, plan: Plan) -> str | None:
        """Return the newer wheel of a page for a build that fits, of an index that does not respond, or None."""
        question, need = self.fitting.question, Requirement(named.text)
        for wanted in question.request.frameworks:
            for build in candidates(question, wanted):
                if {r.code for r in objections(question, wanted, build)} != {"index_unreachable"}:
                    continue
                wheel = self.choose(need, [build], plan.python or "")
                if wheel and Version(wheel.version) > Version(package.version):
                    return (
                        f"{wheel.package} {wheel.version} for {build.framework} {build.version} and CUDA {build.cuda} is "
                        f"outside of the default index: {unquote(wheel.url)}. It is taken when the index of this "
                        f"{build.framework} responds. {_NO_HASH}"
                    )
        return None

    def choose(
        self, need: Requirement, builds: Sequence[Build | PlannedBuild], python: str
    ) -> PrebuiltWheel | None:
        """Return the wheel of the newest release within the bounds that has one for builds. A locked wheel stays."""
        name = str(canonicalize_name(need.name))
        if name not in {n.name for n in self.packages_with_page}:
            return None
        locked = self._find_locked(name, builds, python)
        if locked and need.specifier.contains(locked.version, prereleases=True):
            return locked
        for version in self._releases(name, need.specifier):
            fitting = [
                w for w in self._wheels_of(name, version)
                if self._is_fitting(w, builds, python) and need.specifier.contains(parse_wheel(file_name_of_url(w.url)).version, prereleases=True)
            ]  # fmt: skip
            if fitting:
                return max(fitting, key=lambda w: w.url)
        return None

    def _releases(self, name: str, bounds: SpecifierSet) -> Iterator[str]:
        """Return the releases whose pages are read, newest first, down to one that has a fitting wheel on an index."""
        if self._find_page(name) is None and not any(self._list_recorded(name)):
            return iter(())
        exact = [s.version for s in bounds if s.operator == "==" and "+" in s.version]
        indexed = self._read_index(name)
        versions = {Version(w.version) for w in self._wheels_of(name)} | indexed.keys()
        within = (
            [Version(Version(exact[0]).public)] if exact else sorted(bounds.filter(versions), reverse=True)
        )
        newest = itertools.islice(within, _MOST_RELEASES)
        needed = itertools.takewhile(
            lambda v: not (indexed.get(v) and self._index_serves(name, str(v))), newest
        )
        return map(str, needed)

    def _index_serves(self, name: str, release: str) -> bool:
        """Return whether the index's wheels of a release go with a build that fits. Unmeasured ones are taken to."""
        question = self.fitting.question
        rows, ignored = self._rows.rows(name, release), question.per_target
        return not rows or any(
            objection(question, rows, [b], ignore_gpus_of=ignored) is None for b in self._builds
        )

    def _read_index(self, name: str) -> dict[Version, bool]:
        """Return the versions on the indexes, and whether each has a wheel."""
        if name not in self._indexed:
            has_wheel: dict[Version, bool] = {}
            for file in SourceArchives(self.context.sources).files(name):
                if version := version_of(file.name, name):
                    has_wheel[version] = has_wheel.get(version, False) or file.name.endswith(".whl")
            self._indexed[name] = has_wheel
        return self._indexed[name]

    def _find_locked(
        self, name: str, builds: Sequence[Build | PlannedBuild], python: str
    ) -> PrebuiltWheel | None:
        """Return the locked wheel of a package with its hash, if it is for the builds."""
        package = self.locked.get(name)
        if package is None or package.unhashed or package.index:
            return None
        try:
            file = file_name_of_url(package.url)
        except UnsafeNameError:
            return None
        for page in find_pages(name, self.context.profiles.pages):
            wheel = self._read_wheel(page, file, package.url)
            if wheel and self._is_fitting(wheel, builds, python):
                return wheel._replace(sha256=package.sha256)
        return None

    def _is_fitting(self, wheel: PrebuiltWheel, builds: Sequence[Build | PlannedBuild], python: str) -> bool:
        context = self.context
        cxx11 = ((b, find_cxx11(context.profiles.abis, b, context.target.platform)) for b in builds)
        return python in wheel.pythons and any(serves(wheel.built_for, b, abi) for b, abi in cxx11)

    # --- reading -------------------------------------------------------------------------------------

    def _find_page(self, package: str) -> WheelPage | None:
        """Return the page of a package that can have wheels for the builds. An unreadable page has none."""
        frameworks = {b.framework for b in self._builds}
        cuda = {b.framework for b in self._builds if b.cuda}
        for page in find_pages(package, self.context.profiles.pages):
            possible = cuda if "{cuda}" in page.local else frameworks
            if page.framework in possible and page.url not in self._unread:
                return page
        return None

    def _list_recorded(self, package: str, version: str | None = None) -> Iterator[File]:
        """Yield the wheels of a release, or of all, that a row lists for the platform and the GPUs of the target."""
        context = self.context
        platform, gpus = context.target.platform, context.target.gpus
        for row in context.profiles.listed_wheels:
            if row.package != package or platform not in row.platform:
                continue
            if row.oldest_gpu and any(Version(g.capability) < Version(row.oldest_gpu) for g in gpus):
                continue
            for release in row.releases if version is None else {version} & set(row.releases):
                url = row.url.format(release=release, machine=platform.partition("-")[2])
                yield File(name=unquote(url.rpartition("/")[2]), url=url)

    def _wheels_of(self, package: str, version: str | None = None) -> list[PrebuiltWheel]:
        """Return the wheels of one release, or of all releases where each build has a page.

        A release that a row lists is not looked up on the page.
        """
        rule = find_pages(package, self.context.profiles.pages)[0]
        files = list(self._list_recorded(package, version)) if version else []
        page = None if files else self._find_page(package)
        if page is not None and page.is_of_release and version is not None:
            files = self._files(page, package, page.url.format(release=version))
        elif page is not None and not page.is_of_release:
            with self._reading:
                if page.url not in self._of_builds:
                    self._of_builds[page.url] = self._read_builds(page, package)
            files = self._of_builds[page.url]
        by_url = {f.url: f for f in files}
        read = ((f, self._read_wheel(page or rule, f.name, f.url)) for f in by_url.values())
        return [
            w._replace(sha256=f.sha256) for f, w in read
            if w and w.package == package and version in (None, w.version) and self._has_glibc(w)
        ]  # fmt: skip

    def _read_builds(self, page: WheelPage, package: str) -> list[File]:
        """Return the files of the pages of builds that exist, those of the newest builds."""
        builds = sorted(self._builds, key=lambda b: Version(b.version), reverse=True)
        urls = list(dict.fromkeys(
            page.url.format(version=b.version, label=format_label(b.cuda))
            for b in builds if b.framework == page.framework
        ))  # fmt: skip
        if page.listing is not None and len(urls) > 1:
            try:
                known = {unquote(link) for link in self._metadata.links(page.listing)}
            except LockError as error:
                self._skip_page(page, package, error)
                return []
            urls = [url for url in urls if unquote(url) in known]
        from ..index.http import fetch_all

        pages = fetch_all(urls[:_MOST_PAGES], lambda url: self._files(page, package, url))
        return [file for files in pages.values() for file in files]

    def _files(self, page: WheelPage, package: str, url: str) -> list[File]:
        try:
            return self._metadata.page(url)
        except LockError as error:
            self._skip_page(page, package, error)
            return []

    def _read_wheel(self, page: WheelPage, file: str, url: str) -> PrebuiltWheel | None:
        """Return a wheel of a page by its file name, or None for another file."""
        read = read_name(page, file) if urlsplit(url).scheme in ("https", "http", "file") else None
        if read is None:
            return None
        parts = parse_wheel(file)
        built_for = read[1]
        if not built_for.minor:
            known = self._rows.rows(parts.name, read[0])
            needs = [Requirement(r.built_for) for r in known if r.built_for]
            bounds = [str(n.specifier) for n in needs if n.name == built_for.framework]
            built_for = built_for._replace(bounds=next(filter(None, bounds), ""))
        return PrebuiltWheel(
            package=parts.name, version=read[0], url=url, built_for=built_for,
            pythons=tuple(p for p, theirs in self._tags.items() if not parts.tags.isdisjoint(theirs)),
        )  # fmt: skip

    def _has_glibc(self, wheel: PrebuiltWheel) -> bool:
        """Return whether the target has the glibc of a wheel. Warn once for a package where it has not."""
        context = self.context
        needed, glibc = (
            find_glibc(context.profiles.wheel_glibc, wheel.package, wheel.version),
            context.target.glibc,
        )
        if not needed or not glibc or Version(needed) <= Version(glibc):
            return True
        self._warn_once(
            wheel.package,
            f"the wheels of {wheel.package} {wheel.version} require glibc {needed}, and the target has {glibc}. "
            "Use a newer system or a container for them",
        )
        return False

    def _skip_page(self, page: WheelPage, package: str, error: LockError) -> None:
        """Warn once about an unreadable page, and do not read it again."""
        self._unread.add(page.url)
        known = [v for file in self._list_recorded(package) if (v := version_of(file.name, package))]
        text = f"no prebuilt wheel of {package} is known: {error.message}. {package} is planned from its source archive"
        if known:
            text = f"no wheel of {package} newer than {max(known).public} is known outside of the index: {error.message}"
        self._warn_once(
            page.url,
            f"{text}. Repeat the command when the page answers, or add a row for a mirror to profiles/indexes.yaml",
        )

    def _warn_once(self, key: str, text: str) -> None:
        if self._warned.setdefault(key, text) is text:
            self.emit(Event("warning", "lock", text))

    @cached_property
    def _rows(self) -> SatelliteRows:
        return SatelliteRows(self.context.profiles, self.context.target.platform)

    @cached_property
    def _builds(self) -> tuple[Build, ...]:
        return tuple(b for chain in self.fitting.chains for b in chain)

    @cached_property
    def _metadata(self) -> IndexMetadata:
        return IndexMetadata(self.context.sources, tries=1, timeout=_TIMEOUT)  # a plan can do without

    @cached_property
    def _tags(self) -> Mapping[str, Mapping[Tag, int]]:
        """The wheel tags that each Python supports on the target."""
        target = self.context.target
        pythons = dict.fromkeys(p for b in self._builds for p in b.python)
        return {p: wheel_tags(p, target.platform, target.glibc) for p in pythons}


def find_pages(package: str, pages: Iterable[WheelPage]) -> list[WheelPage]:
    """Return the pages of a package."""
    return [p for p in pages if package in [canonicalize_name(n) for n in p.packages]]


# --- file names ------------------------------------------------------------------------------------

_FIELDS = {
    "minor": r"(?P<minor>\d+\.\d+)",
    "digits": r"(?P<digits>\d{2,3})",
    "label": r"(?P<label>cpu|cu\d{2,3})",
    "cuda": r"(?P<cuda>\d\d)\d?",
    "abi": "(?P<abi>true|false)",
}


def read_name(page: WheelPage, file: str) -> tuple[str, BuiltFor] | None:
    """Return the version and the builds of a wheel of a page, or None for a file of another package or form."""
    try:
        parts = parse_wheel(file)
    except InvalidWheelFilename:
        return None
    if parts.name not in [canonicalize_name(n) for n in page.packages]:
        return None
    match = _pattern(page.local).fullmatch(parts.version.local or "")
    if match is None:
        return None
    fields = match.groupdict()
    digits, abi = fields.get("digits"), fields.get("abi")
    return parts.version.public, BuiltFor(
        framework=page.framework, minor=fields.get("minor") or (f"{digits[0]}.{digits[1:]}" if digits else ""),
        label=fields.get("label"), cuda=fields.get("cuda"), cxx11={"true": "1", "false": "0"}.get(abi or ""),
    )  # fmt: skip


@functools.cache
def _pattern(rule: str) -> re.Pattern[str]:
    """Return the pattern of a local version in its normal form, which is lower case."""
    texts = re.split(r"\{(\w+)\}", rule)
    parts = [_FIELDS[text] if i % 2 else re.escape(text.lower()) for i, text in enumerate(texts)]
    return re.compile("".join(parts))


def serves(built_for: BuiltFor, build: Build | PlannedBuild, cxx11: str | None) -> bool:
    """Return whether a wheel is compiled for a build. `cxx11` is the build's C++11 string ABI, or None if unknown."""
    if built_for.framework != build.framework:
        return False
    if built_for.minor:
        if Version(build.version).release[:2] != tuple(map(int, built_for.minor.split("."))):
            return False
    elif not built_for.bounds or not meets(build.version, built_for.bounds):
        return False
    if built_for.label is not None and built_for.label != format_label(build.cuda):
        return False
    if built_for.cuda is not None and built_for.cuda != (build.cuda or "").split(".")[0]:
        return False
    return None in (built_for.cxx11, cxx11) or built_for.cxx11 == cxx11


def find_cxx11(rows: Iterable[CxxAbi], build: Build | PlannedBuild, platform: str) -> str | None:
    """Return the C++11 string ABI of a build on a platform, or None without a row for it."""
    of_build = (
        row.cxx11 for row in rows
        if row.framework == build.framework and platform == (row.platform or platform)
        and row.cuda in (None, build.cuda) and meets(build.version, row.versions)
    )  # fmt: skip
    return next(of_build, None)


def find_glibc(rows: Iterable[WheelGlibc], package: str, release: str) -> str | None:
    """Return the oldest glibc for the wheels of a release, None where no row has it."""
    return next((r.glibc for r in rows if r.package == package and meets(release, r.versions)), None)
