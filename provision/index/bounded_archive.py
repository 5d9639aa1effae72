"""Reads one member of an untrusted archive, with bounds on its size."""

from __future__ import annotations

import bz2
import functools
import gzip
import io
import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from ..errors import LockError

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


def read_of_sdist(path: Path, file: str, most: int = MOST_TEXT) -> bytes:
    """Read NAME-VERSION/`file` of a source archive.

    Raises KeyError if it is missing, LockError if it is too large, and one of DAMAGED.
    """
    for name, size, read in _iterate_sdist(path):
        if name.count("/") == 1 and name.endswith(f"/{file}"):
            if size > most:
                raise _explain_size(path.name, name, size, most)
            return read()
    raise KeyError(file)


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

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

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
