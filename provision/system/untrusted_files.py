"""Reads files of untrusted folders: only regular files, up to a size limit.

A pipe in place of a RECORD would block its reader forever, and a device may be endless.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Collection
from pathlib import Path
from typing import IO

MOST = 64 << 20
"""The most bytes. The largest RECORDs of frameworks have two million, conda-meta files ten."""


_CHUNK = 1 << 20
_HANDED_ON = ("/dev/fd/", "/dev/stdin", "/proc/self/fd/")


def read_bytes(path: Path, most: int = MOST, owners: Collection[int] = ()) -> bytes:
    """Return the bytes of a regular file, or of a descriptor of the user (`--target <(ssh host ...)`).

    Raises OSError, also for other file types and files above the limit. With `owners`, user ids, the file must belong
    to one of them and not be writable for everyone.
    """
    if str(path).startswith(_HANDED_ON):
        with path.open("rb") as file:
            return _bounded(file, path, most)
    # Without O_NONBLOCK, opening a pipe would wait for a writer.
    number = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
    with os.fdopen(number, "rb") as file:
        if not stat.S_ISREG(os.fstat(number).st_mode):
            raise OSError(errno.EINVAL, "is not a regular file", str(path))
        if owners:
            _check_owner(os.fstat(number), path, owners)
        return _bounded(file, path, most)


def _check_owner(status: os.stat_result, path: Path, owners: Collection[int]) -> None:
    if status.st_uid not in owners:
        raise OSError(errno.EPERM, f"belongs to another user (uid {status.st_uid})", str(path))
    if status.st_mode & stat.S_IWOTH:
        raise OSError(errno.EPERM, "is writable for everyone", str(path))


def _bounded(file: IO[bytes], path: Path, most: int) -> bytes:
    data = bytearray()  # `file.read(most + 1)` would allocate all of it, which may exceed a memory limit
    while chunk := file.read(_CHUNK):
        data += chunk
        if len(data) > most:
            raise OSError(errno.EFBIG, f"is larger than {most >> 20} MiB", str(path))
    return bytes(data)


def refuse_endless(path: Path) -> None:
    """Raise OSError for an endless device. Pipes and terminals have an end."""
    if stat.S_ISCHR(path.stat().st_mode) and not str(path).startswith((*_HANDED_ON, "/dev/tty", "/dev/null")):
        raise OSError(errno.EINVAL, "is a device", str(path))


def read_text(path: Path, most: int = MOST) -> str:
    """Return the text of a file. Invalid bytes become replacement characters."""
    return read_bytes(path, most).decode("utf-8", "replace")


def read_strictly(path: Path, most: int = MOST) -> str:
    """Return the text of a file. Raises UnicodeDecodeError, a ValueError, for invalid bytes."""
    return read_bytes(path, most).decode("utf-8")
