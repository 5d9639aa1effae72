"""Names from outside that become paths: of locks, index pages, addresses, archives, records and manifests.

Such a name becomes a path only through the functions here. They refuse what leads to another folder, written
out or percent-encoded, and names that a file system cannot hold or gives a meaning of its own.
"""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urlsplit

from ..errors import LockError

MOST = 240
"""Bytes of a name. File systems take 255, and a draft of the file has up to 12 more than its name."""
_DEVICES = re.compile(r"(con|prn|aux|nul|com[0-9¹²³]|lpt[0-9¹²³])(\..*)?", re.IGNORECASE)
"""Names of devices on Windows, with any suffix."""
_SHOWN = 80


class UnsafeNameError(LockError, ValueError):
    """A name from outside that cannot be the name of a file."""


def check_file_name(text: str, *, hidden: bool = False) -> str:
    """Return a name that is one component of a path. Names with a leading dot are for drafts and
    configuration, and pass with `hidden` alone. Raises UnsafeNameError."""
    if problem := _problem(text, hidden=hidden):
        shown = text if len(text) <= _SHOWN else text[:_SHOWN] + "..."
        raise UnsafeNameError(
            f"{shown!r} cannot be a file name: {problem}",
            hint="take the file from another index or lock: this name was made to write elsewhere, or is damaged",
        )
    return text


def _problem(text: str, *, hidden: bool) -> str | None:
    """Return why a text cannot be a file name. Each level of percent-encoding is looked at."""
    while True:
        if found := _plain_problem(text, hidden=hidden):
            return found
        decoded = unquote(text)
        if decoded == text:
            return None
        text = decoded


def _plain_problem(text: str, *, hidden: bool) -> str | None:
    if not text:
        return "it is empty"
    if text in (".", ".."):
        return "it is a folder's"
    if "/" in text or "\\" in text:
        return "it has a separator and leads to another folder"
    if not text.isprintable():
        return "it has a character that cannot be printed"
    if ":" in text or text[-1] in ". " or _DEVICES.fullmatch(text):
        return "Windows gives this name a meaning of its own"
    if text[0] == "." and not hidden:
        return "it begins with a dot"
    if len(text.encode("utf-8", "surrogatepass")) > MOST:
        return f"it is longer than {MOST} bytes"
    return None


def file_name_of_url(url: str) -> str:
    """Return the file name that an address ends in, decoded. Raises UnsafeNameError, ValueError for no address."""
    return last_segments(url, 1)[0]


def last_segments(url: str, count: int, *, hidden: bool = False) -> list[str]:
    """Return the last segments of an address's path, decoded; fewer where it has fewer. `hidden` is for the
    folders among them. Raises UnsafeNameError, ValueError for no address."""
    *folders, file = urlsplit(url).path.split("/")
    kept = [part for part in folders if part][-(count - 1) :] if count > 1 else []
    return [*(check_file_name(unquote(p), hidden=hidden) for p in kept), check_file_name(unquote(file))]


def check_relative(text: str) -> PurePosixPath:
    """Return a path inside a folder, written with "/". Raises UnsafeNameError."""
    parts = text.split("/")
    for part in parts:
        if problem := _problem(part, hidden=True):
            raise UnsafeNameError(
                f"{text[:_SHOWN]!r} is not a path inside the folder: {part[:_SHOWN]!r}: {problem}",
                hint="make or copy it again: this path was made to lead elsewhere, or is damaged",
            )
    return PurePosixPath(*parts)


def join(folder: Path, text: str) -> Path:
    """Return the path of a file inside a folder. Raises UnsafeNameError."""
    return folder.joinpath(check_relative(text))
