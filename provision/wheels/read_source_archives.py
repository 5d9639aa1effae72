"""Reads source archives of an index: stated metadata, and whether a build needs a compiler.

    archives = SourceArchives(sources)
    described = archives.describe(packages)  # {Package: SourceArchive}, without archives that cannot be fetched
    described[package].requires              # Requires-Dist as stated, or None if only build code knows them
    described[package].compiler              # "" for Python only, else what the build needs, with evidence

A `LockedPackage` needs `name`, `version` and `url`, and `sha256` if the index states it. `package_of(name, file)`
makes it from a `File` of an index page. `archives.listed(name)` finds the archives on the configured indexes. An
archive is downloaded once, compared with its hash and read. Nothing of it is executed. The result is cached by
sha256.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from packaging.utils import InvalidSdistFilename, canonicalize_name, parse_sdist_filename
from packaging.version import Version

from ..errors import BuildError, LockError
from ..index import uv_config
from ..index.bounded_archive import DAMAGED, list_sdist
from ..index.download_files import FileRequest, download
from ..index.http import AT_ONCE, Http
from ..index.locked_file_addresses import Addresses
from ..index.pip_config import default_index, pip_configuration
from ..index.simple_api import File, project_url, version_of
from ..model import LockedPackage, PackageSources, as_plain, from_plain
from ..system import process, trust
from ..system.cache import cache_folder
from ..system.redaction import redact
from ..system.scratch import make_scratch
from ..system.untrusted import UnsafeNameError
from .cache_and_disk import file_name, own_cache
from .index_metadata_cache import IndexMetadata
from .needs_compiler import is_building, read_compiling
from .requirements_stated_in_source import is_stating, read_stated

MOST_ARCHIVE = 256 << 20
"""The most bytes of a source archive to download."""
BUILT = "the package that was built from it before"
_TRIES, _SECONDS = 2, 30.0
_FORMAT = 1  # format of the cache; files of another format are ignored


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceArchive:
    """A source archive, described by its files.

    `requires` is Requires-Dist as stated, or None if no file states it. `changeable` says that a build may state
    other requirements (metadata that is dynamic, or older than 2.2). `stated_in` is the file that states them.
    `compiles` is a clause about compiled code, or "" for none. `tools` are the needed programs ("a C/C++ compiler",
    "nvcc"). `compiled_files` counts files of compiled languages, including unused ones.
    """

    name: str
    version: str
    metadata_version: str = ""
    requires: tuple[str, ...] | None = None
    requires_python: str | None = None
    extras: tuple[str, ...] = ()
    changeable: bool = True
    stated_in: str = ""
    compiles: str = ""
    tools: tuple[str, ...] = ()
    compiled_files: int = 0

    @property
    def needs_compiler(self) -> bool:
        """Return whether a build compiles code."""
        return bool(self.compiles)

    @property
    def needs_nvcc(self) -> bool:
        """Return whether a build compiles CUDA."""
        return "nvcc" in self.tools

    @property
    def compiler(self) -> str:
        """The needed programs with the evidence, as a clause, or "" if no compiler is needed."""
        return f"{' and '.join(self.tools)}: {self.compiles}" if self.compiles else ""


def read_archive(path: Path, name: str = "", version: str = "") -> SourceArchive:
    """Describe a source archive on this machine. Raises LockError for an unreadable one."""
    try:
        files = list_sdist(path, lambda file: is_stating(file) or is_building(file))
    except DAMAGED as error:
        raise LockError(
            f"the source archive {path.name} cannot be read: {error}",
            hint="copy the archive again, or remove it",
        ) from error
    stated, compiling = read_stated(files), read_compiling(files)
    return SourceArchive(
        name=name or str(canonicalize_name(stated.name)), version=version or stated.version,
        metadata_version=stated.metadata_version, requires=stated.requires,
        requires_python=stated.requires_python, extras=stated.extras, changeable=stated.changeable,
        stated_in=stated.file, compiles=compiling.evidence, tools=compiling.tools, compiled_files=compiling.files,
    )  # fmt: skip


def has_pages(sources: PackageSources) -> bool:
    """Return whether the sources have pages of wheels, which this module does not list."""
    configured = uv_config.variables(process.environ()).get("UV_FIND_LINKS")
    return bool(configured) or any("://" in place for place in sources.find_links)


def package_of(name: str, file: File) -> LockedPackage | None:
    """Return the source archive of a file on an index, or None for a wheel and other files."""
    try:
        sdist_name, version = parse_sdist_filename(file.name)
    except (InvalidSdistFilename, ValueError):
        return None
    if sdist_name != canonicalize_name(name):
        return None
    return LockedPackage(
        name=str(sdist_name), version=str(version), url=file.url, sha256=file.sha256, size=file.size,
    )  # fmt: skip


@dataclass(frozen=True)
class SourceArchives:
    """The source archives of the configured indexes and folders."""

    sources: PackageSources
    places: dict[str, str] = field(default_factory=dict)
    """The only index of a package, by the package's name."""
    _pages: dict[str, list[File]] = field(default_factory=dict, repr=False, compare=False)

    def describe(self, packages: Iterable[LockedPackage]) -> dict[LockedPackage, SourceArchive]:
        """Describe source archives. Too large and unreadable ones are missing in the result."""
        wanted = list(dict.fromkeys(packages))
        with ThreadPoolExecutor(AT_ONCE) as pool:
            archives = pool.map(self._describe_one, wanted)
            return {package: archive for package, archive in zip(wanted, archives, strict=True) if archive}

    def listed(self, name: str) -> tuple[LockedPackage, ...]:
        """Return the source archives of a package on the indexes and in folders, newest first.

        An index that does not answer is ignored.
        """
        files = [
            *self.files(name),
            *(File(name=p.name, url=p.as_uri()) for p in self._iterate_folders()),
        ]
        ordered = sorted(files, key=lambda file: file.yanked is not None)
        first: dict[str, LockedPackage] = {}
        for file in ordered:
            if package := package_of(name, file):
                first.setdefault(package.version, package)
        return tuple(sorted(first.values(), key=lambda p: Version(p.version), reverse=True))

    def wheels(self, name: str) -> tuple[str, ...]:
        """Return the names of a package's wheels on the indexes and in folders, without yanked ones."""
        return tuple(sorted(file.name for file in self.wheel_files(name)))

    def wheel_files(self, name: str) -> list[File]:
        """Return a package's wheels on the indexes and in folders, without yanked ones."""
        files = [f for f in self.files(name) if f.name.endswith(".whl") and f.yanked is None]
        here = [p for folder in self._list_folders() for p in folder.glob("*.whl")]
        local = [p for p in here if canonicalize_name(p.name.partition("-")[0]) == name]
        return [*files, *(File(name=p.name, url=p.as_uri()) for p in local)]

    def withdrawn(self, name: str) -> dict[Version, bool]:
        """Return the versions of a package on the indexes, and whether all files of each are yanked."""
        versions: dict[Version, bool] = {}
        for file in self.files(name):
            if version := version_of(file.name, name):
                versions[version] = versions.get(version, True) and file.yanked is not None
        return versions

    def files(self, name: str) -> Sequence[File]:
        """Return a package's files on the indexes."""
        if name not in self._pages:
            self._pages[name] = [
                file for index in self._list_indexes(name) for file in self._read_page(index, name)
            ]
        return self._pages[name]

    def correct(self, package: LockedPackage, requires: Iterable[str]) -> None:
        """Store the requirements of the built package, if they differ from those in the archive."""
        if package.sha256 and (archive := self._describe_one(package)):
            corrected = dataclasses.replace(archive, requires=tuple(requires), stated_in=BUILT)
            _remember(self._get_cache_path(package), corrected)

    def _get_cache_path(self, package: LockedPackage) -> Path:
        return cache_folder(own_cache(self.sources), "source-archives") / f"{package.sha256}-{_FORMAT}.json"

    def _read_page(self, index: str, name: str) -> Sequence[File]:
        try:
            lists = IndexMetadata(self.sources, tries=_TRIES, timeout=self.sources.timeout or _SECONDS)
            return lists.page(project_url(index, name))
        except LockError:
            return ()

    def _iterate_folders(self) -> Iterator[Path]:
        for folder in self._list_folders():
            yield from (p for p in folder.iterdir() if p.name.endswith((".tar.gz", ".zip")))

    def _list_folders(self) -> list[Path]:
        return [Path(p) for p in self.sources.find_links if "://" not in p and Path(p).is_dir()]

    def _make_http(self) -> Http:
        return Http(
            pip_configuration(process.environ()), tries=_TRIES, timeout=self.sources.timeout or _SECONDS
        )

    def _list_indexes(self, name: str) -> list[str]:
        """Return the indexes of a package."""
        if self.sources.offline or self.sources.no_index:
            return []
        if name in self.places:
            return [self.places[name]]
        default = self.sources.default or default_index(process.environ(), cache_dir=own_cache(self.sources))
        return [default, *self.sources.extra]

    def _describe_one(self, package: LockedPackage) -> SourceArchive | None:
        kept = self._get_cache_path(package)
        if package.sha256 and (archive := _recall(kept)):
            return archive
        if (package.size or 0) > MOST_ARCHIVE:
            return None
        try:
            archive = self._fetch_and_describe(package)
        except (LockError, BuildError, OSError, UnsafeNameError):
            return None  # the solver or the installer reports the reason
        if package.sha256:
            _remember(kept, archive)
        return archive

    def _fetch_and_describe(self, package: LockedPackage) -> SourceArchive:
        """Download an archive, compare it with its hash and describe it. Raises LockError, BuildError, OSError."""
        left = MOST_ARCHIVE

        def count(more: int) -> None:
            nonlocal left
            left -= more
            if left < 0:
                raise LockError(f"{redact(package.url)} has more than {MOST_ARCHIVE} bytes")

        addresses = Addresses(self._make_http(), self._list_folders(), offline=self.sources.offline)
        with make_scratch("source") as scratch:
            path = scratch / file_name(package)
            download(self._make_http(), FileRequest(
                path=path, urls=addresses.of(package, self._list_indexes(package.name)), shown=redact(package.url),
                hashes={"sha256": package.sha256} if package.sha256 else {}, size=package.size,
            ), count)  # fmt: skip
            return read_archive(path, package.name, package.version)


def _recall(path: Path) -> SourceArchive | None:
    try:
        return from_plain(SourceArchive, json.loads(trust.read_cached(path)))
    except (OSError, ValueError):
        return None


def _remember(path: Path, archive: SourceArchive) -> None:
    """Store what was read. The cache is optional."""
    trust.write_cached(path, json.dumps(as_plain(archive)))
