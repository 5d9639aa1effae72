"""Reads members of wheels and source archives with bounds, also from an index by range requests."""

from __future__ import annotations

import bz2
import functools
import gzip
import io
import lzma
import re
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from ..errors import LockError
from ..system.redaction import redact

if TYPE_CHECKING:
    from .http import Http
    from .simple_api import File

MOST_TEXT = 8 << 20
"""The most bytes of METADATA, pyproject.toml or PKG-INFO. The largest on the public index have some 500 kB."""
MOST_LIBRARY = 1 << 30
"""The most bytes of a library that is read completely to measure a build. Those of bindings have some 100 MB."""
MOST_UNPACKED = 1 << 30
"""The most bytes of a source archive that are decompressed to find a member."""
_MOST_AT_ONCE = 1 << 24
_MOST_MEMBERS = 100_000
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # the others decompress without a limit
_OPENERS: dict[str, Any] = {".gz": gzip.open, ".tgz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
DAMAGED = (
    OSError, EOFError, ValueError, RecursionError, NotImplementedError, zipfile.BadZipFile, tarfile.TarError,
    zlib.error, lzma.LZMAError,
)  # fmt: skip
"""The exceptions that a damaged archive raises."""


def read_member(archive: zipfile.ZipFile, member: str, name: str, most: int = MOST_TEXT) -> bytes:
    """Read a complete member of a zip. `name` is the name of the archive in errors.

    Raises LockError if it is larger than `most`, cannot be decompressed, or has another size than the archive says.
    """
    info = archive.getinfo(member)
    if info.file_size > most:
        raise _explain_size(name, member, info.file_size, most)
    if info.compress_type not in _METHODS or info.flag_bits & 1:
        raise LockError(
            f"{name}: {member} is encrypted or compressed by method {info.compress_type}, expected deflate",
            hint="do not use this archive",
        )
    try:
        with archive.open(info) as file:
            return file.read(info.file_size)  # without a size everything would be decompressed
    except DAMAGED as error:
        raise LockError(
            f"{name}: {member} cannot be decompressed: {error}", hint="copy the archive again, or remove it"
        ) from error


def list_sdist(path: Path, wanted: Callable[[str], bool]) -> dict[str, bytes | None]:
    """Return the regular files of a source archive, by their path below its top folder.

    The values are the contents of those that are `wanted`, else None. Links and paths that lead out are ignored.
    Raises LockError for a too large archive, and one of DAMAGED.
    """
    contents: dict[str, bytes | None] = {}
    left = MOST_TEXT
    for name, size, read in _iterate_sdist(path):
        file = _strip_top(name)
        if file is None:
            continue
        contents[file] = None
        if wanted(file):
            if size > left:
                raise _explain_size(path.name, name, size, left)
            left -= size
            contents[file] = read()
    return contents


def _iterate_sdist(path: Path) -> Iterator[tuple[str, int, Callable[[], bytes]]]:
    """Yield name, size and reader of each regular file. The reader is valid until the next file.

    Raises LockError for a too large archive, and one of DAMAGED.
    """
    if path.suffix == ".zip":
        with zipfile.ZipFile(path) as archive:
            for info in archive.infolist():
                if not info.is_dir():
                    read = functools.partial(read_member, archive, info.filename, path.name)
                    yield info.filename, info.file_size, read
        return
    opened: Any = _OPENERS.get(path.suffix, Path.open)(path, "rb")
    with opened, tarfile.open(fileobj=_Bounded(opened, path.name), mode="r:") as tar:
        for count, member in enumerate(tar):
            if count > _MOST_MEMBERS:
                raise LockError(f"{path.name} has more than {_MOST_MEMBERS} members", hint=_HINT)
            if stream := tar.extractfile(member) if member.isreg() else None:
                yield member.name, member.size, stream.read


def _strip_top(name: str) -> str | None:
    """Return the path below an archive's top folder, or None for a file beside it or a path that leads out."""
    parts = [part for part in name.split("/") if part != "."]
    if ".." in parts or "" in parts or len(parts) < 2:
        return None
    return "/".join(parts[1:])


_HINT = "do not use this archive"


def _explain_size(name: str, member: str, size: int, most: int) -> LockError:
    return LockError(f"{name}: {member} has {size} bytes unpacked, expected at most {most}", hint=_HINT)


class _Bounded(io.RawIOBase):
    """A decompressed stream that raises an error above a size limit."""

    def __init__(self, stream: IO[bytes], name: str) -> None:
        self._stream, self._name = stream, name

    def tell(self) -> int:
        return self._stream.tell()

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        if whence == io.SEEK_SET and offset > MOST_UNPACKED:
            raise _explain_size(self._name, "its content", offset, MOST_UNPACKED)
        return self._stream.seek(offset, whence)

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= _MOST_AT_ONCE:  # a header that claims gigabytes would be read completely
            raise _explain_size(self._name, "a header", size, _MOST_AT_ONCE)
        if self._stream.tell() > MOST_UNPACKED:
            raise _explain_size(self._name, "its content", self._stream.tell(), MOST_UNPACKED)
        return self._stream.read(size)


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
        from .http import parse_content_range

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
    answer = http.get(file.url + ".metadata", missing_ok=True)
    if answer and answer.body.startswith((b"Metadata-Version", b"Name")):
        return answer.body.decode("utf-8", "replace")
    wheel, _ = open_wheel(http, file.url)
    return read_metadata(wheel, file.name)
