"""Installs packages into a prefix: download, compare with hashes, link."""

from __future__ import annotations

import json
import os
import posixpath
import re
import shutil
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from ...system.files import TooDeepError, find_existing, hash_file, iterate_links
from . import Json, awaited, channels, end_with, write_progress
from .channels import strip_url

_HASHED = 8 + 32
"""Bytes of the engine's note beside a package in the cache: a replacement count, and the sha256 of the archive if it was
known (rattler_cache, read 2026-11-22)."""


async def install(request: Json) -> Json:
    """Link packages into a prefix after comparing local files and downloads with their hashes.

    With `reinstall` only those packages are linked, installed ones again. Packages of the prefix stay unless the request
    or `replaced` names them.
    """
    from rattler import MatchSpec, PackageCache, PrefixRecord, ValidationMode, install

    prefix, packages = Path(request["prefix"]), request["packages"]
    again, replaced = set(request.get("reinstall") or ()), set(request.get("replaced") or ())
    to_link = [p for p in packages if not again or p["name"] in again]
    _check_local_files(to_link)
    config = channels.read_config(request["rc"])
    secrets = channels.find_secrets(request, config)
    records = [_record(p, secrets) for p in packages]
    mode = ValidationMode.full() if request["distrust"] else ValidationMode.fast()
    pool = _choose_cache(request, packages)
    cache = PackageCache.new_layered([pool], validation_mode=mode)
    cached = await cache.index()
    pairs = zip(packages, records, strict=True)
    absent = [p for p, r in pairs if p in to_link and not cached.contains_record(r)]
    fetched = [p for p in absent if not p["url"].startswith("file:")]
    if fetched and request["offline"]:
        return {"error": {"kind": "Offline", "text": " ".join(p["name"] for p in fetched)}}
    if refused := _refuse_full_disk(request, to_link, absent, pool):
        return {"error": refused}
    if fetched:
        write_progress("fetching", packages=len(fetched), total=sum(p["size"] or 0 for p in fetched))
    installed = {PrefixRecord.from_path(p).name.normalized for p in check_records(prefix)}
    others = installed - {p["name"] for p in packages} - replaced
    await install(
        records,
        prefix,
        reinstall_packages=again or None,
        ignored_packages=others or None,
        package_cache=cache,
        client=channels.make_client(config, request),
        show_progress=False,
        reporter=_Reporter(request, len(to_link), PathGuard(pool, records)),
        requested_specs=[MatchSpec(s)._match_spec for s in request["specs"]],  # noqa: SLF001  # the only accepted form
        execute_link_scripts=False,
    )
    written = _complete_records(prefix, {p["url"]: p for p in to_link})
    linked = pool.stat().st_dev == prefix.stat().st_dev
    return {"copied": 0 if linked or pool.parent != Path(request["cache"]) else written}


def _choose_cache(request: Json, packages: list[Json]) -> Path:
    """Return the shared package cache, or an empty cache for this run.

    Without a sha256 in the lock or the cache, the engine uses any cached package of that name, version and build. If the
    cache has another sha256, the engine writes the lock's before the download. After a failed download, the next run
    would then use the wrong package.
    """
    shared = Path(request["cache"]) / "pkgs"
    for package in packages:
        file = unquote(package["url"].rsplit("/", 1)[1])
        note = shared / f"{file.removesuffix('.conda').removesuffix('.tar.bz2')}.lock"
        if not package["sha256"] or (note.exists() and not _has_hash(note, package["sha256"])):
            return Path(request["answer"]).parent / "pkgs"
    return shared


def _has_hash(note: Path, sha256: str) -> bool:
    """Return whether the engine's note beside a package has this sha256."""
    with note.open("rb") as file:
        return file.read(_HASHED)[_HASHED - 32 :] == bytes.fromhex(sha256)


def _refuse_full_disk(request: Json, to_link: list[Json], absent: list[Json], pool: Path) -> Json | None:
    """Return the error for a disk with too little space, or None.

    The cache needs space for downloads and unpacked packages. A prefix on another disk needs space for copies.
    """
    cache, prefix = find_existing(pool), find_existing(Path(request["prefix"]))
    needs = {cache: sum(p["size"] or 0 for p in absent) * (1 + request["unpacked"])}
    if cache.stat().st_dev != prefix.stat().st_dev:
        needs[prefix] = sum(p["size"] or 0 for p in to_link) * request["unpacked"]
    for place, need in needs.items():
        free = shutil.disk_usage(place).free
        if free < need:
            return {"kind": "Disk", "text": str(place), "free": free, "need": need}
    return None


def _check_local_files(packages: list[Json]) -> None:
    """Compare the files of file:// channels with their hashes, which the engine does only for downloads."""
    for package in packages:
        if not package["url"].startswith("file:"):
            continue
        name = "sha256" if package["sha256"] else "md5"
        actual = hash_file(unquote(urlsplit(package["url"]).path), name)
        if actual != package[name]:
            raise ValueError(
                f"hash mismatch for {package['url']}: expected {name} {package[name]}, found {actual}"
            )


def _record(package: Json, secrets: dict[str, str]) -> Any:
    from rattler import BuildString, PackageRecord, RepoDataRecord

    channel, subdir, file = package["url"].rsplit("/", 2)
    stem = file.removesuffix(".conda").removesuffix(".tar.bz2")
    build = stem.rsplit("-", 1)[1]
    number = build.rsplit("_", 1)[-1]
    record = PackageRecord(
        package["name"],
        package["version"],
        BuildString(build),
        int(number) if number.isdigit() else 0,
        subdir,
        noarch="generic" if subdir == "noarch" else None,
        depends=package["depends"],
        sha256=bytes.fromhex(package["sha256"]) if package["sha256"] else None,
        md5=bytes.fromhex(package["md5"]) if package["md5"] else None,
        size=package["size"],
    )
    return RepoDataRecord(
        record, unquote(file), channels.insert_credentials(package["url"], secrets), channel + "/"
    )


def _complete_records(prefix: Path, packages: Json) -> int:
    """Complete the records in conda-meta for conda and mamba, remove credentials, and return the bytes of the files.

    A lock lacks dependencies, constraints and noarch. The packages have them.
    """
    size = 0
    for path in (prefix / "conda-meta").glob("*.json"):
        data = json.loads(path.read_text(encoding="utf-8"))
        plain = strip_url(data.get("url") or "")
        if plain not in packages:
            continue
        size += sum(row.get("size_in_bytes") or 0 for row in (data.get("paths_data") or {}).get("paths", ()))
        index = Path(data.get("extracted_package_dir") or "") / "info" / "index.json"
        metadata = json.loads(index.read_text(encoding="utf-8")) if index.is_file() else {}
        kept = {k: metadata[k] for k in ("depends", "constrains", "noarch", "license", "build_number",
                                     "timestamp", "track_features") if k in metadata}  # fmt: skip
        # The lock's dependencies have priority: channels correct them after a build.
        if packages[plain]["depends"]:
            kept["depends"] = packages[plain]["depends"]
        path.write_text(json.dumps(data | kept | {"url": plain}, indent=2) + "\n", encoding="utf-8")
    return size


class _Reporter:
    """Reports the engine's progress, and checks each package before the engine links it."""

    def __init__(self, request: Json, total: int, packages: PathGuard) -> None:
        self.request, self.total, self.packages, self.linked = request, total, packages, 0
        self.downloads: dict[int, int] = {}
        self.caching: dict[int, str] = {}

    def on_populate_cache_start(self, operation: int, package_name: str) -> int:
        self.caching[operation] = package_name
        return operation

    def on_download_start(self, cache_entry: int) -> int:
        awaited.add(self.caching.get(cache_entry, ""))
        return cache_entry

    def on_download_completed(self, download_idx: int) -> None:
        awaited.discard(self.caching.get(download_idx, ""))

    def on_download_progress(self, download_idx: int, progress: int, total: int | None) -> None:
        before = self.downloads.get(download_idx, 0)
        if progress - before > 1 << 20 or progress == total:  # one line per MiB
            self.downloads[download_idx] = progress
            write_progress("download", name=self.caching.get(download_idx, ""), done=progress, total=total)

    def on_link_start(self, operation: int, package_name: str) -> int:
        try:
            self.packages.check(package_name)
        except Exception as error:  # noqa: BLE001  # the engine ignores exceptions of a callback
            kind = type(error).__name__
            text = str(error) if kind == "UnsafeError" else f"{package_name} cannot be read: {kind}: {error}"
            end_with(self.request, {"error": {"kind": kind, "text": text}})
        return operation

    def on_link_complete(self, index: int) -> None:
        del index
        self.linked += 1
        write_progress("link", done=self.linked, total=self.total)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("on_"):
            return lambda *_args: 0
        raise AttributeError(name)


_MARK = ".gpuenv"
_LINKS = 40
"""The most links in one path, as in Linux."""
_MOST = 64 << 20
"""The most bytes of a record. The largest real ones have ten million."""


class UnsafeError(ValueError):
    """A package or a record with a path outside of the prefix."""


class PathGuard:
    """The packages of one run with their places in the cache, and the links and folders found so far."""

    def __init__(self, cache: Path, records: Iterable[Any]) -> None:
        self._lying = {
            r.name.normalized: cache / f"{r.name.normalized}-{r.version}-{r.build}" for r in records
        }
        self._folders: set[str] = set()
        self._links: dict[str, str] = {}

    def check(self, name: str) -> None:
        """Raise UnsafeError if this package, alone or with others, would write outside of the prefix."""
        lying = self._lying[name]
        for command in _iterate_commands(lying):
            if not re.fullmatch(r"[^/\\\0]+", command) or command in (".", ".."):
                raise UnsafeError(f"{name} has an entry point outside of the environment: {command!r}")
        listed = set()
        for path in _iterate_paths(lying):
            place = posixpath.normpath(path) if is_inside(path) else ""
            if not place or place.split("/", 1)[0] == _MARK:
                raise UnsafeError(f"{name} has a file outside of the environment: {path!r}")
            listed.add(place)
            self._enter(place)
            self._enter(_normalize(place))
        try:
            links = [os.path.relpath(entry.path, lying) for _, entry in iterate_links(str(lying))]
        except TooDeepError as error:  # no later change of the environment would be allowed
            raise UnsafeError(f"{name} has too many nested folders") from error
        for place in listed.intersection(links):
            self._links[place] = self._links[_normalize(place)] = str((lying / place).readlink())
        for folder in sorted(self._folders & self._links.keys()):
            if not self._is_contained(folder):
                raise UnsafeError(f"{name} writes through a link out of the environment: {folder!r}")

    def _enter(self, place: str) -> None:
        """Record the folders of a file."""
        folder = place.rpartition("/")[0]
        while folder and folder not in self._folders:
            self._folders.add(folder)
            folder = folder.rpartition("/")[0]

    def _is_contained(self, folder: str) -> bool:
        """Return whether a folder is inside after following all links of the packages."""
        reached: list[str] = []
        todo, links = folder.split("/"), 0
        while todo:
            part = todo.pop(0)
            if part in ("", "."):
                continue
            if part == "..":
                if not reached:
                    return False
                reached.pop()
                continue
            reached.append(part)
            target = self._links.get("/".join(reached))
            if target is not None:
                links += 1
                if target.startswith("/") or links > _LINKS:
                    return False
                reached.pop()
                todo = [*target.split("/"), *todo]
        return True


def is_inside(path: object) -> bool:
    """Return whether a path of a package is inside of the prefix."""
    if not isinstance(path, str) or "\0" in path or re.match(r"[A-Za-z]:", path):
        return False
    parts = path.replace("\\", "/").split("/")
    return parts[0] != "" and ".." not in parts and any(p not in ("", ".") for p in parts)


def _normalize(place: str) -> str:
    """Return a path in a form that is the same for pure packages and those of one Python."""
    return re.sub(r"^lib/python[^/]+/site-packages/", "site-packages/", place)


def _iterate_paths(lying: Path) -> Iterator[str]:
    """Yield the paths that a package lists. Packages before 2016 have no paths.json."""
    listing = lying / "info" / "paths.json"
    if not listing.exists():
        yield from (x for x in (lying / "info" / "files").read_text(encoding="utf-8").splitlines() if x)
        return
    for row in json.loads(listing.read_bytes())["paths"]:
        yield row["_path"]


def _iterate_commands(lying: Path) -> Iterator[str]:
    """Yield the names of the generated scripts of a pure package."""
    listing = lying / "info" / "link.json"
    if listing.exists():
        noarch = json.loads(listing.read_bytes()).get("noarch") or {}
        for point in noarch.get("entry_points") or () if isinstance(noarch, dict) else ():
            yield point.partition("=")[0].strip()


def check_records(prefix: Path) -> list[Path]:
    """Return the records of a prefix, whose files a removal deletes.

    Raises UnsafeError for a record that lists a file outside of the prefix, or that is not a regular file.
    """
    records = sorted((prefix / "conda-meta").glob("*.json"))
    for path in records:
        state = path.lstat()
        if not stat.S_ISREG(state.st_mode) or state.st_size > _MOST:
            raise UnsafeError(f"{path} is damaged: conda cannot read which files the package has")
        try:
            data = json.loads(path.read_bytes())
            rows = (data.get("paths_data") or {}).get("paths") or []
            listed = [*(data.get("files") or ()), *(row.get("_path") for row in rows)]
        except (ValueError, AttributeError, TypeError, RecursionError) as error:
            raise UnsafeError(f"{path} is damaged: conda cannot read which files the package has") from error
        bad = next((x for x in listed if not is_inside(x)), None)
        if bad is not None:
            raise UnsafeError(f"{path} lists a file outside of the environment: {bad!r}")
    return records
