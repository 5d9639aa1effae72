"""What indexes and folders have: lists of files, requirements of wheels, and source archives, kept in the cache.

    archives = SourceArchives(sources)
    described = archives.describe(packages)  # {Package: SourceArchive}, without archives that cannot be fetched
    described[package].requires              # Requires-Dist as stated, or None if only build code knows them
    described[package].compiles              # "" for Python only, else what compiles code in the build

An archive is downloaded once, compared with its hash and read. Nothing of it is executed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import re
import time
from collections.abc import Iterable, Sequence
from dataclasses import field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import InvalidSdistFilename, canonicalize_name, parse_sdist_filename
from packaging.version import Version

from ..errors import BuildError, LockError
from ..index.config import own_cache
from ..index.places import list_indexes
from ..index.simple_api import (
    ACCEPT,
    File,
    allows_python,
    parse_links,
    parse_project,
    project_url,
    version_of,
)
from ..index.wheel_names import applies, cpython_markers, tags_of, wheel_tags
from ..model import LockedPackage, PackageSources, Plan, as_plain, from_plain, normalize_name
from ..model.values import Value
from ..system import trust, untrusted
from ..system.cache import cache_folder
from ..system.redaction import redact
from ..system.scratch import make_scratch
from ..system.untrusted import UnsafeNameError
from .pylock import file_name
from .sdist import SourceArchive, find_extras, read_archive

if TYPE_CHECKING:
    from ..index.http import Http

_LONGEST = 600.0
"""The most seconds for which a list of files is cached. Its server states how long it is valid."""
MOST_ARCHIVE = 256 << 20
"""The most bytes of a source archive to download."""
BUILT = "the package that was built from it before"
_FORMAT = 1  # format of the cache of archives; files of another format are ignored


@dataclasses.dataclass
class IndexMetadata:
    """Pages of indexes, and requirements of their wheels. `tries` and `timeout` (seconds) are those
    of a request."""

    sources: PackageSources
    tries: int = 2
    timeout: float = 20.0

    def requirements(self, file: File) -> tuple[str, ...] | None:
        """Return the Requires-Dist of a wheel, or None if they cannot be read. They are kept by its sha256.

        Raises LockError for a damaged wheel on this machine: the user can replace it.
        """
        kept = cache_folder(self._cache, "requirements") / f"{file.sha256}.json" if file.sha256 else None
        if kept and isinstance(known := _recall(kept), list):
            return tuple(map(str, known))
        from packaging.metadata import parse_email

        from ..index.archives import metadata  # it needs the decompressors of Python

        try:
            text = metadata(self.http, file)
        except LockError as error:
            if not file.url.startswith("file:"):
                return None
            raise LockError(error.message, hint="copy it again, or remove it") from error
        requirements = tuple(parse_email(text)[0].get("requires_dist", ()))
        if kept:
            trust.write_cached(kept, json.dumps(requirements))
        return requirements

    def page(self, url: str, naming: str = "") -> list[File]:
        """Return the files that a page links to, or [] for a missing page and one without the text `naming`.

        Raises LockError for an unreadable page.
        """
        address, body = self._read_page(url)
        return parse_project(address, body) if naming.encode() in body else []

    def links(self, url: str) -> list[str]:
        """Return the addresses that a page links to. Raises LockError for an unreadable one."""
        return parse_links(*self._read_page(url))

    def _read_page(self, url: str) -> tuple[str, bytes]:
        """Return the address and the body of a list, which is empty if it is missing. It is read once in a run."""
        if url not in self.sources.pages:
            self.sources.pages[url] = self._read_page_once(url)
        return self.sources.pages[url]

    def _read_page_once(self, url: str) -> tuple[str, bytes]:
        """Read the list at an address, from the cache while its server allows it."""
        name = f"{hashlib.sha256(url.encode()).hexdigest()}.json"
        kept, now = cache_folder(self._cache, "pages") / name, time.time()
        known = _recall(kept)
        try:
            if known and now < float(known["until"]) < now + _LONGEST:
                return str(known["url"]), str(known["body"]).encode()
        except (ValueError, KeyError, TypeError):
            known = None  # a damaged file: it is written again
        answer = self.http.get(url, accept=ACCEPT, missing_ok=True)
        if answer is None:
            return url, b""
        if seconds := _find_seconds_to_keep(answer.headers.get("cache-control", "")):
            page = {
                "until": now + min(seconds, _LONGEST),
                "url": answer.url,
                "body": answer.body.decode("utf-8", "replace"),
            }
            trust.write_cached(kept, json.dumps(page))
        return answer.url, answer.body

    @cached_property
    def http(self) -> Http:
        """The connection to the indexes."""
        from ..index.http import Http

        return Http(tries=self.tries, timeout=self.timeout)

    @cached_property
    def _cache(self) -> Path:
        return own_cache(self.sources)


def _find_seconds_to_keep(control: str) -> int:
    """Return the seconds for which a response may be cached (RFC 9111, Cache-Control: max-age)."""
    age = re.search(r"\bmax-age=(\d{1,9})", control)
    return int(age[1]) if age and not re.search(r"no-cache|no-store|must-revalidate", control) else 0


def _recall(path: Path) -> Any:
    """Return what an earlier run kept, or None for a missing or damaged file. The cache is optional."""
    try:
        return json.loads(trust.read_cached(path))
    except (OSError, ValueError):
        return None


# --- source archives -------------------------------------------------------------------------------


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


class SourceArchives(Value, kw_only=False):
    """The source archives of the configured indexes and folders."""

    sources: PackageSources
    places: dict[str, str] = field(default_factory=dict)
    """The only index of a package, by the package's name."""

    def describe(self, packages: Iterable[LockedPackage]) -> dict[LockedPackage, SourceArchive]:
        """Describe source archives. Too large and unreadable ones are missing in the result."""
        wanted = list(packages)
        if not wanted:
            return {}
        from ..index.http import fetch_all

        found = fetch_all(wanted, self._describe_one)
        return {package: archive for package, archive in found.items() if archive}

    def list_archives(self, name: str) -> tuple[LockedPackage, ...]:
        """Return the source archives of a package on the indexes and in folders, newest first."""
        files = sorted([*self.files(name), *self._local_files()], key=lambda file: file.yanked is not None)
        first: dict[str, LockedPackage] = {}
        for package in filter(None, (package_of(name, file) for file in files)):
            first.setdefault(package.version, package)
        return tuple(sorted(first.values(), key=lambda p: Version(p.version), reverse=True))

    def wheel_files(self, name: str) -> list[File]:
        """Return a package's wheels on the indexes and in folders, without yanked ones."""
        local = (f for f in self._local_files() if canonicalize_name(f.name.partition("-")[0]) == name)
        return [f for f in (*self.files(name), *local) if f.name.endswith(".whl") and f.yanked is None]

    def releases(self, name: str, bounds: SpecifierSet, plan: Plan) -> dict[Version, bool]:
        """Return the releases of a package within bounds for a plan's Python, and whether each has a wheel for it."""
        tags = wheel_tags(plan.python or "", plan.platform, plan.target.glibc)
        releases: dict[Version, bool] = {}
        for file in (*self.files(name), *self._local_files()):
            release = version_of(file.name, name)
            if release is None or file.yanked is not None or not bounds.contains(release):
                continue
            if allows_python(file.requires_python, plan.python or ""):
                releases[release] = releases.get(release, False) or not tags_of(file.name).isdisjoint(tags)
        return releases

    def pythons(self, package: LockedPackage, plan: Plan) -> str:
        """Return for which Pythons a release has wheels on a plan's target ("3.8 to 3.10"), or "" for none."""
        files = (f.name for f in self.wheel_files(package.name))
        tags = {
            t for f in files if version_of(f, package.name) == Version(package.version) for t in tags_of(f)
        }
        have = [
            python for python in (f"3.{minor}" for minor in range(6, 30))
            if not tags.isdisjoint(wheel_tags(python, plan.platform, plan.target.glibc))
        ]  # fmt: skip
        return " to ".join(dict.fromkeys((have[0], have[-1]))) if have else ""

    def list_yanked(self, name: str) -> dict[Version, bool]:
        """Return the versions of a package on the indexes, and whether all files of each are yanked."""
        versions: dict[Version, bool] = {}
        for file in self.files(name):
            if version := version_of(file.name, name):
                versions[version] = versions.get(version, True) and file.yanked is not None
        return versions

    def files(self, name: str) -> Sequence[File]:
        """Return a package's files on the indexes. One that does not answer has none: the solve says why."""
        files: list[File] = []
        for index in self._indexes(name):
            with contextlib.suppress(LockError):
                files += self._metadata.page(project_url(index, name))
        return files

    def correct(self, package: LockedPackage, requires: Iterable[str]) -> None:
        """Store the requirements of the built package, if they differ from those in the archive."""
        if package.sha256 and (archive := self._describe_one(package)):
            self._keep(package, dataclasses.replace(archive, requires=tuple(requires), stated_in=BUILT))

    def _local_files(self) -> list[File]:
        return [File(name=p.name, url=p.as_uri()) for folder in self._folders for p in folder.iterdir()]

    @property
    def _folders(self) -> list[Path]:
        return [Path(p) for p in self.sources.find_links if "://" not in p and Path(p).is_dir()]

    @cached_property
    def _metadata(self) -> IndexMetadata:
        return IndexMetadata(self.sources, timeout=self.sources.timeout or 30.0)

    def _indexes(self, name: str) -> list[str]:
        """Return the indexes of a package."""
        if self.sources.offline or self.sources.no_index:
            return []
        return [self.places[name]] if name in self.places else list_indexes(self.sources)

    def _describe_one(self, package: LockedPackage) -> SourceArchive | None:
        if package.sha256 and (known := _recall(self._cache_path(package))):
            try:
                return from_plain(SourceArchive, known)
            except ValueError:
                known = None  # a damaged file: it is written again
        if (package.size or 0) > MOST_ARCHIVE:
            return None
        try:
            archive = self._fetch_and_describe(package)
        except (LockError, BuildError, OSError, UnsafeNameError):
            return None  # the solver or the installer reports the reason
        self._keep(package, archive)
        return archive

    def _cache_path(self, package: LockedPackage) -> Path:
        return cache_folder(own_cache(self.sources), "source-archives") / f"{package.sha256}-{_FORMAT}.json"

    def _keep(self, package: LockedPackage, archive: SourceArchive) -> None:
        if package.sha256:
            trust.write_cached(self._cache_path(package), json.dumps(as_plain(archive)))

    def _fetch_and_describe(self, package: LockedPackage) -> SourceArchive:
        """Download an archive, compare it with its hash and describe it. Raises LockError, BuildError, OSError."""
        left, http = MOST_ARCHIVE, self._metadata.http

        def count(more: int) -> None:
            nonlocal left
            left -= more
            if left < 0:
                raise LockError(f"{redact(package.url)} has more than {MOST_ARCHIVE} bytes")

        from ..index.downloads import Addresses, Download

        addresses = Addresses(http, self._folders, offline=self.sources.offline)
        with make_scratch("source") as scratch:
            path = scratch / file_name(package)
            Download(
                path=path, urls=addresses.find(package, self._indexes(package.name)), shown=redact(package.url),
                hashes={"sha256": package.sha256} if package.sha256 else {}, size=package.size,
            ).fetch(http, count)  # fmt: skip
            return read_archive(path, package.name, package.version)


# --- built packages --------------------------------------------------------------------------------


def check_built(package: LockedPackage, plan: Plan, env: Path, sources: PackageSources) -> None:
    """Raise BuildError if a package built from a source archive has other requirements than the lock.

    The built requirements are stored by the hash of the archive, and the next solve uses them. `env` is an environment
    or a folder with unpacked packages.
    """
    from packaging.metadata import parse_email

    if not package.depends:
        return
    stated = package.depends[1:]  # the first one is Python
    for path in (
        *env.glob("lib*/python3*/site-packages/*.dist-info/METADATA"),
        *env.glob("*.dist-info/METADATA"),
    ):
        if normalize_name(path.parent.name.partition("-")[0]) != normalize_name(package.name):
            continue
        try:
            every = parse_email(untrusted.read_bytes(path))[0].get("requires_dist") or ()
            built = select_applying(every, plan, find_extras(stated))
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


def select_applying(requires: Iterable[str], plan: Plan, extras: Iterable[str] | None) -> tuple[str, ...]:
    """Return the requirements that apply to a plan's Python and platform, in one spelling.

    `extras` None means all extras.
    """
    markers = cpython_markers(plan.platform, plan.python)
    lines: dict[str, None] = {}
    for text in requires:
        need = Requirement(text)
        applied = ["", *(find_extras([text]) if extras is None else extras)]
        if applies(need.marker, markers, applied):
            lines[_spell(need)] = None
    return tuple(sorted(lines))


def _spell(need: Requirement) -> str:
    """Return a requirement as "NAME SPECIFIER ; MARKER", which is valid for conda and PEP 508."""
    extras = f"[{','.join(sorted(need.extras))}]" if need.extras else ""
    target = f"@ {need.url}" if need.url else ",".join(sorted(map(str, need.specifier)))
    line = f"{canonicalize_name(need.name)}{extras} {target}".rstrip()
    return f"{line} ; {need.marker}" if need.marker else line


def _strip_markers(requires: Iterable[str]) -> set[str]:
    """Return requirements without their markers, which apply on both sides."""
    return {text.partition(" ; ")[0] for text in requires}


def _describe(requires: Iterable[str]) -> str:
    return ", ".join(sorted(_strip_markers(requires))) or "no package"
