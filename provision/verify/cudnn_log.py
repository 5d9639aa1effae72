"""Reads cuDNN's API log while cuDNN writes it.

One JAX process writes about 400 MB of log. A pipe takes it, so it needs no disk space. Only two kinds of lines
are kept: calls that compute, and cuDNN's messages on its errors.
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
    """The kept lines of a log. `environ` holds cuDNN's switches: LOGLEVEL for cuDNN 9 (3 logs every call),
    LOGINFO for cuDNN 8."""

    def __init__(self, path: Path) -> None:
        self.environ = {
            "CUDNN_LOGLEVEL_DBG": "3",
            "CUDNN_LOGINFO_DBG": "1",
            "CUDNN_LOGDEST_DBG": str(path),
        }
        self._first, self._lines, self._size, self._rest = b"", list[bytes](), 0, b""

    def add(self, chunk: bytes) -> None:
        """Add the next bytes of the log."""
        self._first = self._first or chunk.lstrip()[:200]
        text = self._rest + chunk
        whole = text.rfind(b"\n") + 1
        self._rest = text[whole:][-_CHUNK:]  # a line without an end does not belong to a log
        for line in _TELLING.findall(text, 0, whole):
            if self._size < _KEPT:
                self._lines.append(line)
                self._size += len(line)

    @property
    def text(self) -> str:
        """The kept lines, else the first characters of the log, else ""."""
        return (b"".join(self._lines) or self._first).decode("utf-8", "replace")


@contextlib.contextmanager
def collected(folder: Path) -> Iterator[Log]:
    """Collect the log of the processes that run within the block.

    All of it is read at the end of the block. If the system has no pipes, a file in `folder` takes the log.
    """
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
        # A writing end of gpuenv's own keeps the pipe open before cuDNN opens it, and after cuDNN closes it
        stack.callback(os.close, os.open(path, os.O_WRONLY))
        stopping, stop = os.pipe()
        stack.callback(os.close, stopping)
        reader = threading.Thread(
            target=_drain, args=(reading, stopping, log, _widen_pipe(reading)), daemon=True
        )
        reader.start()
        try:
            yield log
        finally:
            os.close(stop)
            reader.join()


def _widen_pipe(pipe: int) -> bool:
    """Return whether the pipe now holds a whole chunk. Otherwise it holds 64 KiB."""
    import fcntl

    try:
        return fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _CHUNK) == _CHUNK
    except (AttributeError, OSError):  # not Linux; a user who has too many pipes
        return False


def _drain(reading: int, stopping: int, log: Log, wide: bool) -> None:
    """Read the pipe until `stopping` is closed, then what is left in it.

    cuDNN writes line by line, and each read slows the framework. So a `wide` pipe collects lines between two
    reads.
    """
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
