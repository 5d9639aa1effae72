"""Installs packages into a prefix: download, compare with hashes, link."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from . import channel_access, path_guard, progress_and_timeouts
from .channel_access import strip_url

_HASHED = 8 + 32
"""Bytes of the engine's note beside a package in the cache: a replacement count, and the sha256 of the archive if it was
known (rattler_cache, read 2026-11-22)."""


async def install(request: dict[str, Any]) -> dict[str, Any]:
    """Link packages into a prefix after comparing local files and downloads with their hashes.

    With `reinstall` only those packages are linked, installed ones again. Packages of the prefix stay unless the request
    or `replaced` names them.
    """
    from rattler import MatchSpec, PackageCache, PrefixRecord, ValidationMode, install

    prefix, packages = Path(request["prefix"]), request["packages"]
    again, replaced = set(request.get("reinstall") or ()), set(request.get("replaced") or ())
    to_link = [p for p in packages if not again or p["name"] in again]
    _check_local_files(to_link)
    config = channel_access.config(request["rc"])
    secrets = channel_access.secrets(request, config)
    records = [_record(p, secrets) for p in packages]
    mode = ValidationMode.full() if request["distrust"] else ValidationMode.fast()
    pool = _choose_cache(request, packages)
    cache = PackageCache.new_layered([pool], validation_mode=mode)
    cached = await cache.index()
    pairs = zip(packages, records, strict=True)
    absent = [p for p, r in pairs if p in to_link and not cached.contains_record(r)]
    refused = _refuse_offline(request, absent) or _refuse_full_disk(request, to_link, absent, pool)
    if refused:
        return {"error": refused}
    _announce_downloads(absent)
    installed = {PrefixRecord.from_path(p).name.normalized for p in path_guard.check_records(prefix)}
    others = installed - {p["name"] for p in packages} - replaced
    await install(
        records,
        prefix,
        reinstall_packages=again or None,
        ignored_packages=others or None,
        package_cache=cache,
        client=channel_access.client(config, request),
        show_progress=False,
        reporter=_Reporter(request, len(to_link), path_guard.PathGuard(pool, records)),
        requested_specs=[MatchSpec(s)._match_spec for s in request["specs"]],  # noqa: SLF001  # the only accepted form
        execute_link_scripts=False,
    )
    _complete_records(prefix, {p["url"]: p for p in to_link})
    return {"installed": len(to_link)}


def _announce_downloads(absent: list[dict[str, Any]]) -> None:
    """Report the number and size in bytes of the packages to download."""
    fetched = [p for p in absent if not p["url"].startswith("file:")]
    if fetched:
        total = sum(p["size"] or 0 for p in fetched)
        progress_and_timeouts.tell("fetching", packages=len(fetched), total=total)


def _refuse_offline(request: dict[str, Any], absent: list[dict[str, Any]]) -> dict[str, Any] | None:
    names = [p["name"] for p in absent if not p["url"].startswith("file:")]
    return {"kind": "Offline", "text": " ".join(names)} if request["offline"] and names else None


def _choose_cache(request: dict[str, Any], packages: list[dict[str, Any]]) -> Path:
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


def _refuse_full_disk(
    request: dict[str, Any], to_link: list[dict[str, Any]], absent: list[dict[str, Any]], pool: Path
) -> dict[str, Any] | None:
    """Return the error for a disk with too little space, or None.

    The cache needs space for downloads and unpacked packages. A prefix on another disk needs space for copies.
    """
    cache, prefix = _existing(pool), _existing(Path(request["prefix"]))
    needs = {cache: sum(p["size"] or 0 for p in absent) * (1 + request["unpacked"])}
    if cache.stat().st_dev != prefix.stat().st_dev:
        needs[prefix] = sum(p["size"] or 0 for p in to_link) * request["unpacked"]
    for place, need in needs.items():
        free = shutil.disk_usage(place).free
        if free < need:
            return {"kind": "Disk", "text": str(place), "free": free, "need": need}
    return None


def _existing(path: Path) -> Path:
    while not path.exists():
        path = path.parent
    return path


def _check_local_files(packages: list[dict[str, Any]]) -> None:
    """Compare the files of file:// channels with their hashes, which the engine does only for downloads."""
    for package in packages:
        if not package["url"].startswith("file:"):
            continue
        name = "sha256" if package["sha256"] else "md5"
        with Path(unquote(urlsplit(package["url"]).path)).open("rb") as file:
            actual = _digest(file, name)
        if actual != package[name]:
            raise ValueError(
                f"hash mismatch for {package['url']}: expected {name} {package[name]}, found {actual}"
            )


def _digest(file: Any, name: str) -> str:
    state = hashlib.new(name)
    while chunk := file.read(1 << 20):
        state.update(chunk)
    return state.hexdigest()


def _record(package: dict[str, Any], secrets: dict[str, str]) -> Any:
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
        record, unquote(file), channel_access.insert_credentials(package["url"], secrets), channel + "/"
    )


def _complete_records(prefix: Path, packages: dict[str, Any]) -> None:
    """Complete the records in conda-meta for conda and mamba, and remove credentials from them.

    A lock lacks dependencies, constraints and noarch. The packages have them.
    """
    for path in (prefix / "conda-meta").glob("*.json"):
        data = json.loads(path.read_text(encoding="utf-8"))
        plain = strip_url(data.get("url") or "")
        if plain not in packages:
            continue
        index = Path(data.get("extracted_package_dir") or "") / "info" / "index.json"
        metadata = json.loads(index.read_text(encoding="utf-8")) if index.is_file() else {}
        kept = {k: metadata[k] for k in ("depends", "constrains", "noarch", "license", "build_number",
                                     "timestamp", "track_features") if k in metadata}  # fmt: skip
        # The lock's dependencies have priority: channels correct them after a build.
        if packages[plain]["depends"]:
            kept["depends"] = packages[plain]["depends"]
        path.write_text(json.dumps(data | kept | {"url": plain}, indent=2) + "\n", encoding="utf-8")


class _Reporter:
    """Reports the engine's progress, and checks each package before the engine links it."""

    def __init__(self, request: dict[str, Any], total: int, packages: path_guard.PathGuard) -> None:
        self.request, self.total, self.packages, self.linked = request, total, packages, 0
        self.downloads: dict[int, int] = {}
        self.caching: dict[int, str] = {}

    def on_populate_cache_start(self, operation: int, package_name: str) -> int:
        self.caching[operation] = package_name
        return operation

    def on_download_start(self, cache_entry: int) -> int:
        progress_and_timeouts.awaited.add(self.caching.get(cache_entry, ""))
        return cache_entry

    def on_download_completed(self, download_idx: int) -> None:
        progress_and_timeouts.awaited.discard(self.caching.get(download_idx, ""))

    def on_download_progress(self, download_idx: int, progress: int, total: int | None) -> None:
        before = self.downloads.get(download_idx, 0)
        if progress - before > 1 << 20 or progress == total:  # one line per MiB
            self.downloads[download_idx] = progress
            progress_and_timeouts.tell(
                "download", name=self.caching.get(download_idx, ""), done=progress, total=total
            )

    def on_link_start(self, operation: int, package_name: str) -> int:
        try:
            self.packages.check(package_name)
        except Exception as error:  # noqa: BLE001  # the engine ignores exceptions of a callback
            kind = type(error).__name__
            text = str(error) if kind == "UnsafeError" else f"{package_name} cannot be read: {kind}: {error}"
            progress_and_timeouts.end_with(self.request, {"error": {"kind": kind, "text": text}})
        return operation

    def on_link_complete(self, index: int) -> None:
        del index
        self.linked += 1
        progress_and_timeouts.tell("link", done=self.linked, total=self.total)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("on_"):
            return lambda *_args: 0
        raise AttributeError(name)
