"""Handles standard streams that are closed, full or without a reader.

A command finishes its work even if its output fails. A result that cannot be written is an error at the end. A closed
reader (`| head -1`) and a lost line of progress are not errors.
"""

from __future__ import annotations

import errno
import io
import os
import sys
from typing import Any, TextIO, cast

UNWRITTEN = 7
"""The exit code of a run whose result could not be written, the same as for a full disk."""


class _SafeStream(io.FileIO):
    """A stream whose writes never raise, and that records the first failure."""

    failure: OSError | None = None

    def write(self, data: Any, /) -> int:
        try:
            while (
                written := super().write(data)
            ) is None:  # another program made the descriptor non-blocking
                _wait_until_writable(self.fileno())
        except OSError as error:
            self.failure = self.failure or error
            return len(memoryview(data))
        return written


def _wait_until_writable(number: int) -> None:
    import select

    select.select([], [number], [])


def guard() -> None:
    """Replace `sys.stdout` and `sys.stderr` with streams whose writes never raise.

    Closed descriptors are opened as the null device, so that no other file gets their numbers.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # open uses the lowest free number, which is this one
    if sys.stdin is None:
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115  # open until the process ends
    if sys.stdout is sys.__stdout__:  # keep the stream of a program that calls `main`
        sys.stdout = _replacement(sys.stdout, 1)
    if sys.stderr is sys.__stderr__:
        sys.stderr = _replacement(sys.stderr, 2)


def _replacement(stream: TextIO | None, number: int) -> io.TextIOWrapper:
    if stream is not None:
        stream.flush()
    return io.TextIOWrapper(
        io.BufferedWriter(cast("io.RawIOBase", _SafeStream(number, "wb", closefd=False))),
        encoding=getattr(stream, "encoding", "utf-8"),
        errors=getattr(stream, "errors", "backslashreplace"),
        line_buffering=getattr(stream, "line_buffering", False),
        write_through=getattr(stream, "write_through", False),
    )


def finish(code: int) -> int:
    """Write the last error and return the exit code of a run: UNWRITTEN if only its output failed."""
    sys.stdout.flush()
    raw = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
    failure = getattr(raw, "failure", None)
    if failure is None or failure.errno == errno.EPIPE:
        return code
    sys.stderr.write(
        f"error: the result could not be written to standard output: {failure.strerror}\n"
        "hint: run the command again with its output on a disk with free space\n"
    )
    return code or UNWRITTEN
