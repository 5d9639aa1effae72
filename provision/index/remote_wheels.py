"""Reads members and metadata of wheels, also by range requests without a download."""

from __future__ import annotations

import io
import re
import zipfile
from pathlib import Path

from ..errors import LockError
from ..system.redaction import redact
from .bounded_archive import read_member
from .http import Http, parse_content_range
from .simple_api import File

TAIL = 1 << 16
STEP = 1 << 16
MOST = 1 << 22
"""`TAIL` bytes at the end of the zip are requested first. Then requests have `STEP` bytes, and twice as many each time
that reading continues, up to `MOST`."""
LONGEST = 1 << 28
"""The most bytes of one read. A directory of a wheel has at most some megabytes."""


class RangeFile(io.RawIOBase):
    """A file at a URL, read by range requests.

    `fetched` counts the bytes received. `step` is the size of every request. It is for files that are read almost
    completely, because one request can take longer than its bytes.
    """

    def __init__(self, http: Http, url: str, step: int | None = None) -> None:
        self._http, self._url, self._fixed = http, url, step
        self._position = 0
        self._step = STEP
        self._spans: list[tuple[int, bytes]] = []
        self.fetched = 0
        self.size = 0
        start, body = self._fetch((-TAIL, 0))
        self._spans.append((start, body))

    def _fetch(self, span: tuple[int, int]) -> tuple[int, bytes]:
        answer = self._http.get(self._url, span=span)
        assert answer is not None
        if answer.status != 206:
            raise self._explain_unusable("its server does not support range requests")
        try:
            first, _, size = parse_content_range(answer.headers.get("content-range"))
        except OSError as error:
            raise self._explain_unusable(str(error)) from error
        start = first if span[0] < 0 else span[0]
        if first != start or size is None or not answer.body or first + len(answer.body) > size:
            raise self._explain_unusable("its server sent a different byte range than the requested one")
        self.fetched += len(answer.body)
        self.size = size
        return first, answer.body

    def _explain_unusable(self, why: str) -> LockError:
        return LockError(
            f"{redact(self._url)} cannot be read in parts: {why}",
            hint="use an index that supports range requests, or download the wheel",
        )

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self.size}[whence]
        self._position = max(0, base + offset)
        return self._position

    def tell(self) -> int:
        return self._position

    def read(self, size: int = -1) -> bytes:
        end = self.size if size is None or size < 0 else min(self.size, self._position + size)
        if end - self._position > LONGEST:
            raise self._explain_unusable(f"{end - self._position} bytes would be read at once")
        parts = []
        while self._position < end:
            part = self._read_part(self._position, end)
            parts.append(part)
            self._position += len(part)
        return b"".join(parts)

    def _read_part(self, start: int, end: int) -> bytes:
        for first, body in self._spans:
            if first <= start < first + len(body):
                return body[start - first : end - first]
        follows = any(first + len(body) == start for first, body in self._spans[1:])
        self._step = self._fixed or (min(MOST, self._step * 2) if follows else STEP)
        length = min(max(end - start, self._step), self._fixed or MOST, self.size - start)
        kept = [] if self._fixed else self._spans[1:][-3:]
        self._spans[1:] = kept
        span = self._fetch((start, length))
        self._spans.append(span)  # the tail has the directory and is kept
        return span[1][: end - start]


def open_wheel(http: Http, url: str, step: int | None = None) -> tuple[zipfile.ZipFile, RangeFile]:
    """Open a wheel at a URL as a zip that range requests (of `step` bytes) read. Return also the file that counts
    them.

    Raises LockError if it cannot be read in parts or is not a zip.
    """
    file = RangeFile(http, url, step)
    try:
        return zipfile.ZipFile(file), file
    except zipfile.BadZipFile as e:
        raise LockError(f"{redact(url)} is not a wheel: {e}", hint="remove it from its index") from e


def member(wheel: zipfile.ZipFile, pattern: str) -> str | None:
    """Return the first member whose complete name matches a regular expression."""
    return next((n for n in wheel.namelist() if re.fullmatch(pattern, n)), None)


def read_metadata(wheel: zipfile.ZipFile, name: str) -> str:
    """Return the METADATA of an open wheel. Raises LockError if it is missing."""
    path = member(wheel, r"[^/]+\.dist-info/METADATA")
    if not path:
        raise LockError(f"{name} has no METADATA", hint="remove it: it is not a wheel")
    return read_member(wheel, path, name).decode("utf-8", "replace")


def metadata(http: Http, file: File) -> str:
    """Return a wheel's METADATA: the file beside it (PEP 658), else from the zip by range requests."""
    beside = http.get(file.url + ".metadata", missing_ok=True)
    if beside and beside.body.startswith((b"Metadata-Version", b"Name")):
        return beside.body.decode("utf-8", "replace")
    wheel, _ = open_wheel(http, file.url)
    return read_metadata(wheel, file.name)


def read_local_metadata(path: Path) -> str:
    """Return the METADATA of a wheel on disk. Raises LockError if it cannot be read."""
    try:
        with zipfile.ZipFile(path) as wheel:
            return read_metadata(wheel, path.name)
    except (OSError, zipfile.BadZipFile) as e:
        raise LockError(f"{path} is not a readable wheel: {e}", hint="copy it again, or remove it") from e
