"""Reads the system libraries that locked wheels need, before the installation.

A wheel is read from a folder of wheels or a bundle. A wheel from an index is read as soon as it is unpacked into an
environment. The result is cached by the wheel's sha256, and is known before the next download.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from ..environment.distributions import Distribution, read_distributions
from ..index.config import own_cache
from ..model import LockedPackage, PackageSources, Satellite, as_plain, from_plain, normalize_name
from ..model.values import dataclass
from ..system import trust
from ..system.cache import cache_folder
from ..system.elf import Elf, ElfError, parse, read_elf
from ..system.files import hash_readable
from ..wheels.pylock import file_name

if TYPE_CHECKING:
    import zipfile

_SHARED = re.compile(r"\.so(?:\.\d+)*$")
_ROW = re.compile(r"^([^,\"\n]+\.so(?:\.\d+)*),", re.MULTILINE)
_MODULE = re.compile(r"\.(?:cpython-[\w-]+|abi3)\.so$")
_GLIBC = re.compile(r"GLIBC_(2\.\d+)$")
_MOST_PACKED = 300 << 20  # a wheel file above this brings its own libraries, and takes long to inflate
_MOST_LIBRARY = 400 << 20
_MOST_FILES = 20_000


@dataclass(frozen=True, kw_only=True, slots=True)
class SystemNeeds:
    """The needs of a wheel's compiled modules that the wheel does not contain.

    `libraries` are sonames. `glibc` is the newest one ("2.34") whose symbols they use.
    """

    libraries: tuple[str, ...] = ()
    glibc: str | None = None

    def exceeds(self, glibc: str) -> bool:
        """Return whether the symbols are newer than those of a glibc ("2.31")."""
        return bool(self.glibc) and _parse_number(self.glibc or "") > _parse_number(glibc)


def needs_of(
    packages: Iterable[LockedPackage], sources: PackageSources, folders: Sequence[Path] = ()
) -> dict[LockedPackage, SystemNeeds]:
    """Return the needs of each wheel that is readable here, or that was read before.

    `folders` have wheels in addition to those of the sources.
    """
    by_package: dict[LockedPackage, SystemNeeds] = {}
    places = [*folders, *(Path(p) for p in sources.find_links if "://" not in p)]
    for package in filter(is_compiled_wheel, packages):
        try:
            kept = json.loads(trust.read_cached(_cache_path(package, sources)))
            by_package[package] = from_plain(SystemNeeds, kept)
        except (OSError, ValueError):
            if needs := _read(package, places):
                by_package[package] = _keep(needs, package, sources)
    return by_package


def needs_of_installed(
    packages: Iterable[LockedPackage], env: Path, sources: PackageSources
) -> dict[LockedPackage, SystemNeeds]:
    """Return the needs of each wheel from its files in an environment. Their hashes were compared at the
    installation."""
    wanted = {normalize_name(p.name): p for p in packages if is_compiled_wheel(p)}
    by_package: dict[LockedPackage, SystemNeeds] = {}
    for name, one in ((n, d) for n, several in read_distributions(env).items() for d in several):
        package = wanted.get(name)
        if package is None or one.record is None:
            continue
        by_package[package] = _keep(_needs(_iterate_recorded(one)), package, sources)
    return by_package


def is_compiled_wheel(package: LockedPackage) -> bool:
    """Return whether a package is a wheel with compiled files and a hash."""
    if package.is_conda or not package.sha256:
        return False
    name = file_name(package)
    return name.endswith(".whl") and not name.endswith("-any.whl")


def _cache_path(package: LockedPackage, sources: PackageSources) -> Path:
    return cache_folder(own_cache(sources), "system-needs") / f"{package.sha256}.json"


def _keep(needs: SystemNeeds, package: LockedPackage, sources: PackageSources) -> SystemNeeds:
    """Store what was read. The cache is optional."""
    trust.write_cached(_cache_path(package, sources), json.dumps(as_plain(needs)))
    return needs


def _read(package: LockedPackage, places: Sequence[Path]) -> SystemNeeds | None:
    split = urlsplit(package.url)
    files = [Path(unquote(split.path))] if split.scheme == "file" else []
    for path in (*files, *(place / file_name(package) for place in places)):
        if path.is_file() and path.stat().st_size <= _MOST_PACKED and hash_readable(path) == package.sha256:
            return _read_file(path)  # another file may have the same name
    return None


def _read_file(path: Path) -> SystemNeeds | None:
    import zipfile  # the decompressors of Python: most wheels were read before
    import zlib

    try:
        with zipfile.ZipFile(path) as wheel:
            infos = [
                i for i in wheel.infolist() if _SHARED.search(i.filename) and i.file_size <= _MOST_LIBRARY
            ]
            return _needs((i.filename, functools.partial(_parse, wheel, i)) for i in infos[:_MOST_FILES])
    except (OSError, zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, zlib.error):
        return None  # the installation reports the reason


def _parse(wheel: zipfile.ZipFile, info: zipfile.ZipInfo) -> Elf:
    """Read a file of a wheel through an unnamed file, because libraries of some hundred MB must not fill the memory."""
    with wheel.open(info) as packed, tempfile.TemporaryFile() as plain:
        shutil.copyfileobj(packed, plain, 1 << 20)
        plain.flush()
        return parse(lambda start, size: os.pread(plain.fileno(), size, start), info.file_size)


def _iterate_recorded(one: Distribution) -> Iterator[tuple[str, Callable[[], Elf]]]:
    """Yield the libraries that a RECORD lists in its site-packages folder."""
    rows, site = _ROW.findall(one.record_text), one.folder.parent
    inside = (r for r in rows if r.isprintable() and not r.startswith("/") and ".." not in r.split("/"))
    for row in itertools.islice(inside, _MOST_FILES):
        yield row, functools.partial(read_elf, site / row)


def _needs(files: Iterable[tuple[str, Callable[[], Elf]]]) -> SystemNeeds:
    """Return the system libraries that extension modules need, directly or through the wheel's own libraries.

    Libraries that no module needs are opened by the package itself, and may be alternatives.
    """
    known: dict[str, Elf] = {}
    modules: list[str] = []
    for path, read in files:
        try:
            elf = read()
        except ElfError:
            continue  # the verdict reports a damaged file
        name = path.rpartition("/")[2]
        known[name] = elf
        if elf.soname:
            known.setdefault(elf.soname, elf)
        if _MODULE.search(name):
            modules.append(name)
    needed: dict[str, None] = {}
    todo, seen, glibc = list(modules), set[str](), ""
    while todo:
        name = todo.pop()
        elf_ = known.get(name)
        if name in seen:
            continue
        seen.add(name)
        if elf_ is None:
            needed[name] = None
            continue
        glibc = max([glibc, *(m[1] for v in elf_.requires if (m := _GLIBC.match(v.name)))], key=_parse_number)
        todo += elf_.needed
    return SystemNeeds(libraries=tuple(sorted(needed)), glibc=glibc or None)


def _parse_number(version: str) -> tuple[int, ...]:
    return tuple(int(x) for x in version.split(".") if x)


# --- measured rows ---------------------------------------------------------------------------------


@dataclasses.dataclass
class MeasuredRows:
    """The measured rows of wheels that no profile has, in a cache folder, by the sha256 of the wheel."""

    cache: Path

    @cached_property
    def _folder(self) -> Path:
        return cache_folder(self.cache, "satellites")

    @cached_property
    def _known(self) -> set[str]:
        """The digests with rows, from one listing of the folder, which mostly has none."""
        try:
            return {name.removesuffix(".json") for name in os.listdir(self._folder)}  # noqa: PTH208  # names alone
        except OSError:
            return set()

    def __contains__(self, sha256: str | None) -> bool:
        return sha256 in self._known

    def rows(self, sha256: str | None, platform: str) -> tuple[Satellite, ...]:
        """Return the rows of a wheel for a platform, or none for a wheel that was not measured."""
        if sha256 not in self._known:
            return ()
        try:
            kept = json.loads(trust.read_cached(self._folder / f"{sha256}.json"))
            rows = [Satellite.from_columns(row) for row in kept]
        except (OSError, ValueError, TypeError, AttributeError):
            return ()
        return tuple(row for row in rows if row.platform == platform)

    def keep(self, sha256: str, rows: Iterable[Satellite]) -> None:
        """Store the rows of a wheel. The cache is optional."""
        trust.write_cached(self._folder / f"{sha256}.json", json.dumps([row._asdict() for row in rows]))
        self._known.add(sha256)
