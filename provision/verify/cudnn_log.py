"""cuDNN's API log, read while it is written.

One JAX process writes some 400 MB of it. It goes through a pipe, so that no disk has to hold that, and only the lines
stay that tell something: each call, from the first to the last, and cuDNN's own words on its errors.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import threading
import time
from collections.abc import Iterator
from pathlib import Path

_CHUNK = 1 << 20
_KEPT = 1 << 25  # bytes of lines; some 500,000 calls
# Calls that compute: the graph API of 8 and 9, the older one. Errors as cuDNN 9 writes them.
_TELLING = re.compile(
    rb"^I! CuDNN [^\n]* function cudnn(?:BackendExecute|Convolution\w+)\(\) called[^\n]*\n"
    rb"|^e!\s+Error: [^\n]*\n",
    re.MULTILINE,
)


class Log:
    """What is kept of a log. `environ` holds cuDNN's own switches for it: LOGLEVEL for 9 (3 is every call),
    LOGINFO for 8."""

    def __init__(self, path: Path) -> None:
        self.environ = {
            "CUDNN_LOGLEVEL_DBG": "3",
            "CUDNN_LOGINFO_DBG": "1",
            "CUDNN_LOGDEST_DBG": str(path),
        }
        self._first, self._lines, self._size, self._rest = b"", list[bytes](), 0, b""

    def add(self, chunk: bytes) -> None:
        """The next bytes of the log."""
        self._first = self._first or chunk.lstrip()[:200]
        text = self._rest + chunk
        whole = text.rfind(b"\n") + 1
        self._rest = text[whole:][-_CHUNK:]  # a line without an end is no log's
        for line in _TELLING.findall(text, 0, whole):
            if self._size < _KEPT:
                self._lines.append(line)
                self._size += len(line)

    @property
    def text(self) -> str:
        """The lines that tell something; the log's beginning where none does, "" where there was no log."""
        return (b"".join(self._lines) or self._first).decode("utf-8", "replace")


@contextlib.contextmanager
def collected(folder: Path) -> Iterator[Log]:
    """A log for the processes that run within the block; at its end all is read. A file in `folder` stands in
    where there can be no pipe."""
    path = folder / "cudnn.log"
    log = Log(path)
    try:
        os.mkfifo(path)
    except (AttributeError, OSError):  # another system, or a disk without pipes
        yield log
        with contextlib.suppress(FileNotFoundError), path.open("rb") as file:
            while chunk := file.read(_CHUNK):
                log.add(chunk)
        return
    with contextlib.ExitStack() as stack:
        reading = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        stack.callback(os.close, reading)
        # our own end for writing: while cuDNN has not opened its, or has closed it, the pipe has no end yet
        stack.callback(os.close, os.open(path, os.O_WRONLY))
        stopping, stop = os.pipe()
        stack.callback(os.close, stopping)
        reader = threading.Thread(
            target=_drain, args=(reading, stopping, log, _widened(reading)), daemon=True
        )
        reader.start()
        try:
            yield log
        finally:
            os.close(stop)
            reader.join()


def _widened(pipe: int) -> bool:
    """Whether the pipe holds a whole chunk now; else it holds 64 KiB."""
    import fcntl

    try:
        return fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _CHUNK) == _CHUNK
    except (AttributeError, OSError):  # not Linux; a user who has too many pipes
        return False


def _drain(reading: int, stopping: int, log: Log, wide: bool) -> None:
    """Read until there is to be no more: what is in the pipe then is all, and one read takes it. cuDNN writes
    line by line; where the pipe is `wide`, lines gather before they are read, as each look costs the framework time."""
    poll = select.poll()
    poll.register(reading, select.POLLIN)
    poll.register(stopping, select.POLLIN)
    ready: list[int] = []
    while stopping not in ready:
        ready = [descriptor for descriptor, _ in poll.poll()]
        if reading in ready:
            log.add(os.read(reading, _CHUNK))
            if wide and stopping not in ready:
                time.sleep(0.002)
