"""Files in folders that anybody may have made: plain ones only, and no more of them than is sane.

A pipe in the place of a RECORD would hold its reader for ever, and a device has no end.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Collection
from pathlib import Path
from typing import IO

MOST = 64 << 20
"""Bytes. The largest RECORDs of frameworks have two million, and conda-meta files ten."""


_CHUNK = 1 << 20
_HANDED_ON = ("/dev/fd/", "/dev/stdin", "/proc/self/fd/")


def read_bytes(path: Path, most: int = MOST, owners: Collection[int] = ()) -> bytes:
    """The whole of a plain file, or of a descriptor that the user hands on (`--target <(ssh host ...)`).
    Raises OSError, also for what is no plain file and for one that is larger than any that has a reason to be
    there. With `owners`, users by number, the file must be theirs, and not writable for everybody."""
    if str(path).startswith(_HANDED_ON):
        with path.open("rb") as file:
            return _bounded(file, path, most)
    # Without O_NONBLOCK, opening a pipe would wait for somebody to write into it.
    number = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
    with os.fdopen(number, "rb") as file:
        if not stat.S_ISREG(os.fstat(number).st_mode):
            raise OSError(errno.EINVAL, "is no plain file", str(path))
        if owners:
            _check_owner(os.fstat(number), path, owners)
        return _bounded(file, path, most)


def _check_owner(found: os.stat_result, path: Path, owners: Collection[int]) -> None:
    if found.st_uid not in owners:
        raise OSError(errno.EPERM, f"belongs to another user (uid {found.st_uid})", str(path))
    if found.st_mode & stat.S_IWOTH:
        raise OSError(errno.EPERM, "can be written by everybody", str(path))


def _bounded(file: IO[bytes], path: Path, most: int) -> bytes:
    data = bytearray()  # `file.read(most + 1)` would reserve all of it, which a limit on memory refuses
    while chunk := file.read(_CHUNK):
        data += chunk
        if len(data) > most:
            raise OSError(errno.EFBIG, f"is larger than {most >> 20} MiB", str(path))
    return bytes(data)


def refuse_endless(path: Path) -> None:
    """Raise OSError for a device that no reader comes to the end of; a pipe and a terminal end."""
    if stat.S_ISCHR(path.stat().st_mode) and not str(path).startswith((*_HANDED_ON, "/dev/tty", "/dev/null")):
        raise OSError(errno.EINVAL, "is a device", str(path))


def read_text(path: Path, most: int = MOST) -> str:
    """The same as text; bytes that are none become question marks."""
    return read_bytes(path, most).decode("utf-8", "replace")


def read_strictly(path: Path, most: int = MOST) -> str:
    """The same as text; raises UnicodeDecodeError, a ValueError, for bytes that are none."""
    return read_bytes(path, most).decode("utf-8")
