"""Write the file that the user named for output: a file, a pipe or a device."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

from .safe_write import write_file

_DESCRIPTORS = re.compile(r"/(?:dev|proc/self)/fd/(\d+)")
_NAMED = {"/dev/stdout": 1, "/dev/stderr": 2}


def write_output(path: Path, content: str | bytes, *, durable: bool = False) -> None:
    """Write the file that the user named for output, which may be a pipe or a device. Raises OSError."""
    number = _stream(path)
    if number is None:
        write_file(path, content, durable=durable)
        return
    with os.fdopen(number, "wb") as file:
        file.write(content.encode() if isinstance(content, str) else content)


def is_stream(path: Path) -> bool:
    """Return whether a path is a pipe, a terminal or another device, in which nothing can be replaced."""
    text = os.path.abspath(path)  # noqa: PTH100  # no link may be followed
    if text in _NAMED or _DESCRIPTORS.fullmatch(text):
        return True
    try:
        found = path.stat() if text.startswith("/dev/") else path.lstat()
    except OSError:
        return False
    return stat.S_ISFIFO(found.st_mode) or stat.S_ISCHR(found.st_mode)


def is_stdout(path: Path) -> bool:
    """Return whether what is written to a path arrives on standard output."""
    try:
        return is_stream(path) and os.path.samestat(path.stat(), os.fstat(1))
    except OSError:
        return False


def _stream(path: Path) -> int | None:
    """Open a pipe or a device for writing; None for a file. Descriptors of this process are shared, not
    opened again: that would write at the beginning of the file that the shell redirected them to."""
    if not is_stream(path):
        return None
    text = os.path.abspath(path)  # noqa: PTH100  # no link may be followed
    found = _DESCRIPTORS.fullmatch(text)
    if text in _NAMED or found:
        return os.dup(int(found[1]) if found else _NAMED[text])
    # A pipe that a project has in the file's place would be waited for until something reads it.
    number = os.open(path, os.O_WRONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
    os.set_blocking(number, True)
    return number
