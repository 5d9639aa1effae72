"""Converts untrusted names into paths.

The names come from locks, index pages, addresses, archives, records and manifests. Such a name becomes a path
only through these functions. They reject names that lead to another folder, plain or percent-encoded. They
also reject names that a file system cannot store or treats specially.
"""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urlsplit

from ..errors import LockError
from .redaction import clean_line

MOST = 240
"""The most bytes of a name. File systems allow 255, and the draft of a file needs up to 12 more."""
_DEVICES = re.compile(r"(con|prn|aux|nul|com[0-9¹²³]|lpt[0-9¹²³])(\..*)?", re.IGNORECASE)
"""Device names on Windows, with any suffix."""
_SHOWN = 80


class UnsafeNameError(LockError, ValueError):
    """An untrusted name that cannot be a file name."""


def check_file_name(text: str, *, hidden: bool = False) -> str:
    """Return a name that is one path component. Raises UnsafeNameError.

    Names with a leading dot are for drafts and configuration, and require `hidden`.
    """
    if problem := _find_problem(text, hidden=hidden):
        raise UnsafeNameError(
            f"{clean_line(text, _SHOWN)!r} cannot be a file name: {problem}",
            hint="use another index or lock. This name is damaged, or is an attempt to write to another folder",
        )
    return text


def _find_problem(text: str, *, hidden: bool) -> str | None:
    """Return why a text cannot be a file name, or None. Every level of percent-encoding is checked."""
    while True:
        if problem := _find_plain_problem(text, hidden=hidden):
            return problem
        decoded = unquote(text)
        if decoded == text:
            return None
        text = decoded


def _find_plain_problem(text: str, *, hidden: bool) -> str | None:
    if not text:
        return "it is empty"
    if text in (".", ".."):
        return "it names a folder"
    if "/" in text or "\\" in text:
        return "it has a separator and leads to another folder"
    if not text.isprintable():
        return "it has an unprintable character"
    if ":" in text or text[-1] in ". " or _DEVICES.fullmatch(text):
        return "it is a device name on Windows"
    if text[0] == "." and not hidden:
        return "it starts with a dot"
    if len(text.encode("utf-8", "surrogatepass")) > MOST:
        return f"it is longer than {MOST} bytes"
    return None


def file_name_of_url(url: str) -> str:
    """Return the decoded file name at the end of an address. Raises UnsafeNameError, ValueError."""
    return last_segments(url, 1)[0]


def last_segments(url: str, count: int, *, hidden: bool = False) -> list[str]:
    """Return up to `count` decoded segments at the end of an address. Raises UnsafeNameError, ValueError.

    `hidden` allows folders with a leading dot.
    """
    *folders, file = urlsplit(url).path.split("/")
    kept = [part for part in folders if part][-(count - 1) :] if count > 1 else []
    return [*(check_file_name(unquote(p), hidden=hidden) for p in kept), check_file_name(unquote(file))]


def check_relative(text: str) -> PurePosixPath:
    """Return a path inside a folder, written with "/". Raises UnsafeNameError."""
    parts = text.split("/")
    for part in parts:
        if problem := _find_problem(part, hidden=True):
            raise UnsafeNameError(
                f"{clean_line(text, _SHOWN)!r} is not a path inside the folder: {clean_line(part, _SHOWN)!r}: {problem}",
                hint="create or copy it again. This path is damaged, or is an attempt to reach another folder",
            )
    return PurePosixPath(*parts)


def join(folder: Path, text: str) -> Path:
    """Return the path of a file inside a folder. Raises UnsafeNameError."""
    return folder.joinpath(check_relative(text))
