"""What indexes have: lists of files, requirements of wheels, and source archives, kept in the cache."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from urllib.parse import unquote, urlsplit

from packaging.metadata import parse_email
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import InvalidSdistFilename, canonicalize_name, parse_sdist_filename
from packaging.version import Version

from ..errors import BuildError, LockError
from ..index.archives import DAMAGED, list_sdist, metadata, read_local_metadata
from ..index.config import own_cache, pip_settings, uv_variables
from ..index.downloads import Addresses, FileRequest, download
from ..index.http import AT_ONCE, Http, Response
from ..index.places import list_indexes
from ..index.simple_api import ACCEPT, File, parse_links, parse_project, project_url, version_of
from ..index.wheel_names import CPYTHON, markers_of
from ..model import LockedPackage, PackageSources, Plan, as_plain, from_plain, normalize_name
from ..system import process, trust, untrusted
from ..system.cache import cache_folder
from ..system.redaction import redact
from ..system.scratch import make_scratch
from ..system.untrusted import UnsafeNameError
from .sdist import is_building, is_stating, read_compiling, read_stated
from .uv_install import file_name

_LONGEST = 600.0
"""The most seconds for which a list of files is cached. Its server states how long it is valid."""


@dataclass
class IndexMetadata:
    """Lists of files and requirements, from the indexes of the configuration. `tries` and `timeout` (seconds) are those
    of a request."""

    sources: PackageSources
    tries: int = 2
    timeout: float = 20.0

    def files(self, name: str, index: str | None = None) -> list[File]:
        """Return the files of a package on the indexes of a solve. `index` is the only index to use.

        All of pip's extra indexes are used together. uv's are used in order, until one has the package. Raises
        LockError if an index does not answer.
        """
        files: list[File] = []
        for place in [index] if index else self._places:
            files += self.page(project_url(place, name))
            if files and not self.sources.extra:
                break
        return files

    def requirements(self, file: File) -> tuple[str, ...] | None:
        """Return the Requires-Dist of a wheel, or None if they cannot be read."""
        if file.url.startswith("file:"):
            return _parse_requirements(read_local_metadata(Path(unquote(urlsplit(file.url).path))))
        kept = cache_folder(self._cache, "requirements") / f"{file.sha256}.json" if file.sha256 else None
        if kept and (known := _read_remembered(kept)) is not None:
            return known
        try:
            requirements = _parse_requirements(metadata(self._http, file))
        except LockError:
            return None
        if kept:
            _keep(kept, json.dumps(requirements))
        return requirements

    def digest(self, name: str, index: str | None = None) -> str:
        """Return a digest of the lists of a package's files. Raises LockError if an index does not answer."""
        digest = hashlib.sha256()
        for place in [index] if index else self._places:
            answer = self._read_page(project_url(place, name))
            digest.update(f"{place} {len(answer.body) if answer else None}\n".encode())
            digest.update(answer.body if answer else b"")
        return digest.hexdigest()

    def page(self, url: str) -> list[File]:
        """Return the files that a page links to, or [] for a missing page. Raises LockError for an unreadable one."""
        answer = self._read_page(url)
        return parse_project(answer) if answer else []

    def links(self, url: str) -> list[str]:
        """Return the addresses that a page links to. Raises LockError for an unreadable one."""
        answer = self._read_page(url)
        return parse_links(answer) if answer else []

    def _read_page(self, url: str) -> Response | None:
        """Return the list at an address, or None if it is missing. It is read once in a run."""
        if url not in self.sources.pages:
            answer = self._read_page_once(url)
            kind = answer.headers.get("content-type", "") if answer else ""
            self.sources.pages[url] = (answer.url, kind, answer.body) if answer else None
        if (known := self.sources.pages[url]) is None:
            return None
        final, kind, body = known
        return Response(200, {"content-type": kind}, body, final)

    def _read_page_once(self, url: str) -> Response | None:
        """Read the list at an address, from the cache while its server allows it."""
        if url.startswith("file:"):
            return self._http.get(url, missing_ok=True)
        kept = cache_folder(self._cache, "pages") / f"{hashlib.sha256(url.encode()).hexdigest()}.json"
        answer = _read_recent(kept)
        if answer is None:
            answer = self._http.get(url, accept=ACCEPT, missing_ok=True)
            if answer and (seconds := _find_seconds_to_keep(answer)):
                until = time.time() + min(seconds, _LONGEST)
                page = {"until": until, "url": answer.url, "body": answer.body.decode("utf-8", "replace")}
                _keep(kept, json.dumps(page))
        return answer

    @cached_property
    def _places(self) -> list[str]:
        return list_indexes(self.sources)

    @cached_property
    def _http(self) -> Http:
        return Http(pip_settings(process.environ()), tries=self.tries, timeout=self.timeout)

    @cached_property
    def _cache(self) -> Path:
        return own_cache(self.sources)


def _parse_requirements(text: str) -> tuple[str, ...]:
    return tuple(parse_email(text)[0].get("requires_dist", ()))


def _read_remembered(path: Path) -> tuple[str, ...] | None:
    try:
        return tuple(str(text) for text in json.loads(trust.read_cached(path)))
    except (OSError, ValueError):
        return None


def _find_seconds_to_keep(answer: Response) -> int:
    """Return the seconds for which the response may be cached (RFC 9111, Cache-Control: max-age)."""
    control = answer.headers.get("cache-control", "")
    age = re.search(r"\bmax-age=(\d{1,9})", control)
    return int(age[1]) if age and not re.search(r"no-cache|no-store|must-revalidate", control) else 0


def _read_recent(path: Path) -> Response | None:
    """Return the cached response of an index if it is still valid, else None."""
    try:
        kept = json.loads(trust.read_cached(path))
        if not time.time() < float(kept["until"]) < time.time() + _LONGEST:
            return None
        return Response(200, {}, str(kept["body"]).encode(), str(kept["url"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _keep(path: Path, text: str) -> None:
    """Store what was read. The cache is optional."""
    trust.write_cached(path, text)


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
    configured = uv_variables(process.environ()).get("UV_FIND_LINKS")
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
        return Http(pip_settings(process.environ()), tries=_TRIES, timeout=self.sources.timeout or _SECONDS)

    def _list_indexes(self, name: str) -> list[str]:
        """Return the indexes of a package."""
        if self.sources.offline or self.sources.no_index:
            return []
        if name in self.places:
            return [self.places[name]]
        return list_indexes(self.sources)

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


def check_built(package: LockedPackage, plan: Plan, env: Path, sources: PackageSources) -> None:
    """Raise BuildError if a package built from a source archive has other requirements than the lock.

    The built requirements are stored by the hash of the archive, and the next solve uses them.
    """
    if not package.depends:
        return
    stated = package.depends[1:]  # the first one is Python
    for path in _find_metadata(package, env):
        try:
            about, _ = parse_email(untrusted.read_bytes(path))
            every = about.get("requires_dist") or ()
            built = applying(every, plan, list_extras(stated))
        except (OSError, InvalidRequirement, RecursionError) as error:
            raise BuildError(
                f"the metadata of the built {package.name} {package.version} cannot be read: {error}",
                hint=f"remove {package.name}, or request another release of it",
            ) from error
        if _strip_markers(built) != _strip_markers(stated):
            SourceArchives(sources).correct(package, every)
            raise BuildError(
                f"the built {package.name} {package.version} requires {_describe(built)}; the lock was solved with the "
                f"requirements of its source archive: {_describe(stated)}",
                hint=f"lock again: gpuenv lock; it then uses the requirements of the built {package.name}",
            )


def applying(requires: Iterable[str], plan: Plan, extras: Iterable[str] | None) -> tuple[str, ...]:
    """Return the requirements that apply to a plan's Python and platform, in one spelling.

    `extras` None means all extras.
    """
    versions = {"python_version": plan.python or "", "python_full_version": f"{plan.python}.0"}
    markers = markers_of(plan.platform) | CPYTHON | versions
    lines: dict[str, None] = {}
    for text in requires:
        need = Requirement(text)
        applied = ["", *(list_extras([text]) if extras is None else extras)]
        if need.marker is None or any(need.marker.evaluate({**markers, "extra": e}) for e in applied):
            lines[_spell(need)] = None
    return tuple(sorted(lines))


def _spell(need: Requirement) -> str:
    """Return a requirement as "NAME SPECIFIER ; MARKER", which is valid for conda and PEP 508."""
    extras = f"[{','.join(sorted(need.extras))}]" if need.extras else ""
    target = f"@ {need.url}" if need.url else ",".join(sorted(map(str, need.specifier)))
    line = f"{canonicalize_name(need.name)}{extras} {target}".rstrip()
    return f"{line} ; {need.marker}" if need.marker else line


def list_extras(requires: Iterable[str]) -> list[str]:
    """Return the extras that the markers of requirements name."""
    return sorted({e for text in requires for e in re.findall(r"""extra\s*==\s*["']([\w.-]+)["']""", text)})


def _find_metadata(package: LockedPackage, env: Path) -> Iterator[Path]:
    """Yield the package's metadata in an environment, or in a folder with unpacked packages."""
    paths = (*env.glob("lib*/python3*/site-packages/*.dist-info/METADATA"), *env.glob("*.dist-info/METADATA"))
    for path in paths:
        if normalize_name(path.parent.name.partition("-")[0]) == normalize_name(package.name):
            yield path


def _strip_markers(requires: tuple[str, ...]) -> set[str]:
    """Return requirements without their markers, which apply on both sides."""
    return {text.partition(" ; ")[0] for text in requires}


def _describe(requires: tuple[str, ...]) -> str:
    return ", ".join(sorted(_strip_markers(requires))) or "no package"
