"""Explains failures of network, index, file or disk in a log of uv."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from ..model import normalize_name
from ..system.redaction import redact
from .refusals import (
    PACKAGE_INDEX,
    STATUS_OF_URL,
    UNREADABLE_HINT,
    Refusal,
    explain_status,
    find_refusal,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class UvFailure:
    """A failure of uv with its cause. `address` is the requested URL, or None if uv does not name it.

    `index_unavailable` is True if other requests to the same index would fail too.
    """

    message: str
    hint: str
    address: str | None = None
    index_unavailable: bool = False


_ADDRESS = re.compile(r"https?://[^\s`'\")]+")
_DENIED = re.compile(
    r"An index (?:URL )?\((\S+)\) (?:returned an? |could not be queried .{0,80}?\()(\d{3}) ([A-Za-z ]+?)(?: error|\))"
)
_NAMES = (
    r"Failed to (?:download|fetch|read|prepare|install)(?: distribution)?[: ]+`([A-Za-z0-9._-]+)[=@ `]",
    r"Because (?:only )?([A-Za-z0-9][A-Za-z0-9._-]*)(?:[=<>~!]\S+)? has invalid metadata",
    r"Failed to extract archive: ([A-Za-z0-9._]+)-\d",
)
_BROKEN = re.compile(
    r"has invalid metadata|Failed to extract archive|Invalid zip file|Metadata field \w+ not found|"
    r"could not be parsed|Bad (?:un)?compressed size|Bad CRC"
)
_STORAGE = re.compile(
    r"(No space left on device|Disk quota exceeded|Read-only file system|Permission denied) \(os error \d+\)"
)
SPACE_HINT = "free space, or put ENV, the caches (--cache-dir DIR) or TMPDIR on another disk"
_FOLDER_HINT = "correct the folder's owner and permissions, or name other folders: ENV, --cache-dir DIR (or UV_CACHE_DIR), TMPDIR"


def find_storage_failure(log: str) -> UvFailure | None:
    """Return the failure of a disk or a folder that a log of uv reports, or None."""
    match = _STORAGE.search(log)
    if match is None:
        return None
    paths = re.findall(r"[`'\"](/[^`'\"\n]+)[`'\"]", log[: match.start()])
    path = paths[-1] if paths else None
    if match[1].startswith(("No space", "Disk quota")):
        disk = f"the disk of {path}" if path else "the disk"
        return UvFailure(message=f"{disk} is full: {match[1]}", hint=SPACE_HINT)
    return UvFailure(message=f"{path or 'a folder'} is not writable: {match[1]}", hint=_FOLDER_HINT)


def find_failure(
    log: str, indexes: Mapping[str, str | None] | None = None, *, configured: str | None = None
) -> UvFailure | None:
    """Return the failure of the network, an index or a wheel that a log of uv reports, or None.

    `indexes` are the indexes that a lock names by package. `configured` names the indexes of all others. The log must
    be without credentials.
    """
    match = _ADDRESS.search(log)
    address = redact(match[0].rstrip(".,:")) if match else None
    package = _find_package(log, address)
    index = (indexes or {}).get(package or "") or (_index_of(address) if address else configured)
    server = f"{PACKAGE_INDEX.name} {index}" if index else PACKAGE_INDEX.name
    if denied := _DENIED.search(log):
        # uv reports this status for a missing package. The address before it is of another request.
        url, package = denied[1], find_absent_package(log)
        refusal = explain_status(int(denied[2]), denied[3], package or url)
        return _describe(f"{PACKAGE_INDEX.name} {url}", refusal, url, package)
    if _BROKEN.search(log) and not STATUS_OF_URL.search(log):
        source = f" of {server}" if index else ""
        message = f"{package or 'a package'}{source} is not a readable wheel"
        return UvFailure(message=message, hint=UNREADABLE_HINT, address=address)
    found_refusal = find_refusal(log, package or address or "a package")
    return _describe(server, found_refusal, address, package) if found_refusal else None


def _describe(server: str, refusal: Refusal, address: str | None, package: str | None) -> UvFailure:
    item = package if package and package not in refusal.words else None
    return UvFailure(
        message=f"{server} {refusal.words}" + (f" ({item})" if item else ""),
        hint=refusal.hint,
        address=address,
        index_unavailable=refusal.cause not in ("proxy", "content"),
    )


def _find_package(log: str, address: str | None) -> str | None:
    for pattern in _NAMES:
        if match := re.search(pattern, log):
            return normalize_name(match[1])
    if not address:
        return None
    *_, before, last = ["", *(unquote(p) for p in urlsplit(address).path.split("/") if p)]
    name = re.match(r"([A-Za-z0-9._]+)-\d", last) if ".whl" in last or ".tar" in last else None
    return normalize_name(name[1] if name else last) if before or name else None


def _index_of(address: str) -> str:
    """Return the index of an address: the parent of a project's page, or the host of a file."""
    parts = urlsplit(address)
    return (
        address.rstrip("/").rpartition("/")[0]
        if parts.path.endswith("/")
        else f"{parts.scheme}://{parts.netloc}"
    )


_ABSENT = re.compile(
    r"Because (?:only )?([A-Za-z0-9][A-Za-z0-9._-]*) was not found|"
    r"there (?:is|are) no versions? of ([A-Za-z0-9._-]+)"
)


def find_absent_package(log: str) -> str | None:
    """Return the package that no index has in a requested version, or None if the log of uv names none."""
    match = _ABSENT.search(" ".join(log.split()))
    return normalize_name(match[1] or match[2]) if match else None
