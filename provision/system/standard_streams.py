"""Standard input, output and error that are closed, full or no longer read.

A command does its work whatever becomes of its output. A result that could not be written is an error at the end;
a reader that went away (`| head -1`) is none, and neither is a line of progress that nobody can see.
"""

from __future__ import annotations

import errno
import io
import os
import sys
from typing import Any, TextIO, cast

UNWRITTEN = 7
"""The exit code of a run whose result could not be written, as for every full disk."""


class _Stream(io.FileIO):
    """A descriptor that takes every write, and keeps the first failure."""

    failure: OSError | None = None

    def write(self, data: Any, /) -> int:
        try:
            while (written := super().write(data)) is None:  # another program made it non-blocking
                _wait_until_writable(self.fileno())
        except OSError as error:
            self.failure = self.failure or error
            return len(memoryview(data))
        return written


def _wait_until_writable(number: int) -> None:
    import select

    select.select([], [number], [])


def guard() -> None:
    """Replace `sys.stdout` and `sys.stderr` by streams whose writes never raise; open what is closed as the null
    device, so that no other file gets its number."""
    if os.name != "posix":
        return
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free number, which is this one
    if sys.stdin is None:
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115  # lives as long as the process
    if sys.stdout is sys.__stdout__:  # not a stream that a program which calls `main` put there
        sys.stdout = _replacement(sys.stdout, 1)
    if sys.stderr is sys.__stderr__:
        sys.stderr = _replacement(sys.stderr, 2)


def _replacement(stream: TextIO | None, number: int) -> io.TextIOWrapper:
    if stream is not None:
        stream.flush()
    return io.TextIOWrapper(
        io.BufferedWriter(cast("io.RawIOBase", _Stream(number, "wb", closefd=False))),
        encoding=getattr(stream, "encoding", "utf-8"),
        errors=getattr(stream, "errors", "backslashreplace"),
        line_buffering=getattr(stream, "line_buffering", False),
        write_through=getattr(stream, "write_through", False),
    )


def finish(code: int) -> int:
    """Return the exit code of a run, after its last words: UNWRITTEN where it succeeded and its result is lost."""
    sys.stdout.flush()
    raw = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
    failure = getattr(raw, "failure", None)
    if failure is None or failure.errno == errno.EPIPE:
        return code
    sys.stderr.write(
        f"error: the result could not be written to standard output: {failure.strerror}\n"
        "hint: repeat the command with its output to a file or disk that has room\n"
    )
    return code or UNWRITTEN
