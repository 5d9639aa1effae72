"""Reads files of untrusted folders: only regular files, up to a size limit.

A pipe in place of a RECORD would block its reader forever, and a device may be endless.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from pathlib import Path
from typing import IO

MOST = 64 << 20
"""The most bytes. The largest RECORDs of frameworks have two million, conda-meta files ten."""


_CHUNK = 1 << 20
_CONFLICT = re.compile(rb"^(?:<{7}|>{7}) ", re.MULTILINE)
_HANDED_ON = re.compile(r"/dev/stdin|(/dev|/proc/self)/fd/\d+")


def read_bytes(path: Path, most: int = MOST) -> bytes:
    """Return the bytes of a regular file, or of a descriptor of the user (`--target <(ssh host ...)`).

    Raises OSError, also for other file types and files above the limit. `trust` reads files that decide something.
    """
    with open_regular(path) as file:
        return read_open(file, path, most)


def is_handed_on(path: Path) -> bool:
    """Return whether a path is a descriptor that the user opened for gpuenv."""
    return _HANDED_ON.fullmatch(str(path)) is not None


def open_regular(path: Path) -> IO[bytes]:
    """Open a regular file, or a descriptor of the user. Raises OSError, also for other file types."""
    if is_handed_on(path):
        return path.open("rb")
    # Without O_NONBLOCK, opening a pipe would wait for a writer.
    number = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
    if not stat.S_ISREG(os.fstat(number).st_mode):
        os.close(number)
        raise OSError(errno.EINVAL, "is not a regular file", str(path))
    return os.fdopen(number, "rb")


def read_open(file: IO[bytes], path: Path, most: int) -> bytes:
    """Return the bytes of an open file. Raises OSError above the limit."""
    data = bytearray()  # `file.read(most + 1)` would allocate all of it, which may exceed a memory limit
    while chunk := file.read(_CHUNK):
        data += chunk
        if len(data) > most:
            raise OSError(errno.EFBIG, f"is larger than {most >> 20} MiB", str(path))
    return bytes(data)


def refuse_endless(path: Path) -> None:
    """Raise OSError for an endless device. Pipes and terminals have an end."""
    if stat.S_ISCHR(path.stat().st_mode) and not (
        is_handed_on(path) or str(path).startswith(("/dev/tty", "/dev/null"))
    ):
        raise OSError(errno.EINVAL, "is a device", str(path))


def find_conflict(data: bytes) -> int | None:
    """Return the line of the first merge conflict marker of git, or None."""
    marker = _CONFLICT.search(data)
    return data.count(b"\n", 0, marker.start()) + 1 if marker else None


def read_text(path: Path, most: int = MOST) -> str:
    """Return the text of a file. Invalid bytes become replacement characters."""
    return read_bytes(path, most).decode("utf-8", "replace")


def read_strictly(path: Path, most: int = MOST) -> str:
    """Return the text of a file. Raises UnicodeDecodeError, a ValueError, for invalid bytes."""
    return read_bytes(path, most).decode("utf-8")
