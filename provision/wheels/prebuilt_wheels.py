"""Reads prebuilt wheels that no index has, from the pages in profiles/indexes.yaml."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from urllib.parse import unquote, urlsplit

from packaging.tags import Tag
from packaging.utils import canonicalize_name, parse_wheel_filename
from packaging.version import Version

from ..errors import LockError
from ..index.http import AT_ONCE
from ..index.simple_api import File
from ..index.wheel_names import FrameworkBuild, find_glibc, label_of, read_name, wheel_tags
from ..model import PackageSources, PrebuiltWheel, Target, WheelGlibc, WheelPage
from .releases import IndexMetadata

_TIMEOUT = 8.0
"""Seconds for a page: many networks let no request to its host through."""
_MOST_PAGES = 24
"""The most pages of builds to read: those of the newest builds of a framework."""


@dataclass
class PrebuiltWheels:
    """The wheels of pages for a target, its Pythons and some builds.

    An unreadable page counts as empty, and `warn` gets a sentence about it.
    """

    pages: Sequence[WheelPage]
    builds: Sequence[FrameworkBuild]
    sources: PackageSources
    target: Target
    pythons: Sequence[str]
    warn: Callable[[str], None]
    glibcs: Sequence[WheelGlibc] = ()
    _unread: set[str] = field(default_factory=set)
    _warned: set[str] = field(default_factory=set)
    _known: dict[str, list[File]] = field(default_factory=dict, repr=False)
    _reading: threading.Lock = field(default_factory=threading.Lock, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def page_of(self, package: str) -> WheelPage | None:
        """Return the page of a package that can have wheels for the builds. An unreadable page has none."""
        if self.sources.offline or self.sources.no_index:
            return None
        frameworks = {b.framework for b in self.builds}
        cuda = {b.framework for b in self.builds if b.cuda}
        for page in ruled_pages(self.pages, package):
            possible = cuda if "{cuda}" in (page.local or "") else frameworks
            if page.framework in possible and page.url not in self._unread:
                return page
        return None

    def of_release(self, package: str, version: str) -> tuple[PrebuiltWheel, ...]:
        """Return the wheels of one release of a package."""
        page = self.page_of(package)
        if page is None:
            return ()
        if page.is_of_release:
            files = self._files(page, package, page.url.format(release=version))
            return tuple(w for w in self._wheels(page, package, files) if w.version == version)
        return tuple(w for v, wheels in self.of_builds(package).items() if v == version for w in wheels)

    def of_builds(self, package: str) -> Mapping[str, Sequence[PrebuiltWheel]]:
        """Return the wheels of a package by version, if each build has a page."""
        page = self.page_of(package)
        if page is None or page.is_of_release:
            return {}
        by_version: dict[str, list[PrebuiltWheel]] = {}
        for wheel in self._wheels(page, package, self._files_of_builds(page, package)):
            by_version.setdefault(wheel.version, []).append(wheel)
        return by_version

    def _files_of_builds(self, page: WheelPage, package: str) -> list[File]:
        with self._reading:
            if page.url not in self._known:
                self._known[page.url] = self._read_builds(page, package)
        return self._known[page.url]

    def _read_builds(self, page: WheelPage, package: str) -> list[File]:
        builds = sorted(self.builds, key=lambda b: Version(b.version), reverse=True)
        urls = dict.fromkeys(
            page.url.format(version=b.version, label=label_of(b.cuda))
            for b in builds if b.framework == page.framework
        )  # fmt: skip
        listed = self._listed(page, package, list(urls))
        with ThreadPoolExecutor(AT_ONCE) as pool:
            pages = pool.map(lambda url: self._files(page, package, url), listed)
            return [file for files in pages for file in files]

    def _listed(self, page: WheelPage, package: str, urls: list[str]) -> list[str]:
        """Return the pages of builds that exist, those of the newest builds."""
        if page.listing is None or len(urls) == 1:
            return urls[:_MOST_PAGES]
        try:
            known = {unquote(link) for link in self._metadata.links(page.listing)}
        except LockError as error:
            self._tell(page, package, error)
            return []
        return [url for url in urls if unquote(url) in known][:_MOST_PAGES]

    def _files(self, page: WheelPage, package: str, url: str) -> list[File]:
        try:
            return self._metadata.page(url)
        except LockError as error:
            self._tell(page, package, error)
            return []

    def _wheels(self, page: WheelPage, package: str, files: Iterable[File]) -> Iterator[PrebuiltWheel]:
        """Return the wheels of a package among the files of its page, each address once."""
        for file in {f.url: f for f in files}.values():
            wheel = read_wheel(page, file.name, file.url, self.tags)
            if wheel and wheel.package == package and self._has_glibc(wheel):
                yield dataclasses.replace(wheel, sha256=file.sha256)

    def _has_glibc(self, wheel: PrebuiltWheel) -> bool:
        """Return whether the target has the glibc of a wheel. Warn once for a package where it has not."""
        needed, glibc = find_glibc(self.glibcs, wheel.package, wheel.version), self.target.glibc
        if not needed or not glibc or Version(needed) <= Version(glibc):
            return True
        self._warn_once(
            wheel.package,
            f"the wheels of {wheel.package} {wheel.version} require glibc {needed}, and the target has {glibc}. "
            "Use a newer system or a container for them",
        )
        return False

    def _warn_once(self, key: str, text: str) -> None:
        with self._lock:
            known = key in self._warned
            self._warned.add(key)
        if not known:
            self.warn(text)

    def _tell(self, page: WheelPage, package: str, error: LockError) -> None:
        """Warn once about an unreadable page, and do not read it again."""
        self._unread.add(page.url)
        self._warn_once(
            page.url,
            f"no prebuilt wheel of {package} is known: {error.message}. {package} is planned from its source archive. "
            "Repeat the command when the page answers, or add a row for a mirror to profiles/indexes.yaml",
        )

    @cached_property
    def _metadata(self) -> IndexMetadata:
        return IndexMetadata(self.sources, tries=1, timeout=_TIMEOUT)  # a plan can do without

    @cached_property
    def tags(self) -> Mapping[str, frozenset[Tag]]:
        """Return the wheel tags that each Python supports on the target."""
        return {p: frozenset(wheel_tags(p, self.target.platform, self.target.glibc)) for p in self.pythons}


def ruled_pages(pages: Iterable[WheelPage], package: str) -> Iterator[WheelPage]:
    """Return the pages of a package whose file names have a rule."""
    return (p for p in pages if p.local and package in [canonicalize_name(n) for n in p.packages])


def read_wheel(
    page: WheelPage, file: str, url: str, tags: Mapping[str, frozenset[Tag]]
) -> PrebuiltWheel | None:
    """Return a wheel of a page by its file name, or None for another file. `tags` are those that each Python
    supports."""
    read = read_name(page, file) if urlsplit(url).scheme in ("https", "http", "file") else None
    if read is None:
        return None
    name, _, _, file_tags = parse_wheel_filename(file)
    return PrebuiltWheel(
        package=name, version=read[0], url=url, built_for=read[1],
        pythons=tuple(p for p, theirs in tags.items() if not file_tags.isdisjoint(theirs)),
    )  # fmt: skip
