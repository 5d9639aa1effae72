"""Reads what the dynamic loader reads: ELF files (required libraries, search paths, symbol versions), and its cache.

It reads 64-bit little-endian files (ELF gABI, "Dynamic Section"; LSB, "Symbol Versioning"). Headers are untrusted, so
every count and length is bounded, and an invalid file raises ElfError. The cache has glibc's format; no program is run.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import struct
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from ..model.values import Value

Read = Callable[[int, int], bytes]
"""Returns a number of bytes from an offset, fewer only at the end of the file."""

MACHINES = {62: "x86_64", 183: "aarch64"}
_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_ENTRY = struct.Struct("<qQ")
_VERSION_NEED = struct.Struct("<HHIII")
_VERSION_AUX = struct.Struct("<IHHII")
_VERSION_DEFINED = struct.Struct("<HHHHIII")
_SYMBOL = struct.Struct("<IBBHQQ")
_LOAD, _DYNAMIC, _INTERPRETER = 1, 2, 3
_NEEDED, _STRINGS, _SYMBOLS, _STRINGS_SIZE, _SONAME, _RPATH, _RUNPATH = 1, 5, 6, 10, 14, 15, 29
_FLAGS_1, _DEFINED, _DEFINED_COUNT, _NEED, _NEED_COUNT = (
    0x6FFFFFFB, 0x6FFFFFFC, 0x6FFFFFFD, 0x6FFFFFFE, 0x6FFFFFFF,
)  # fmt: skip
_GNU_HASH = 0x6FFFFEF5
_NO_DEFAULT_FOLDERS = 0x800
_WEAK, _BASE, _GLOBAL = 2, 1, 1
# Bounds. The files of real packages have less than a tenth of each.
_MOST_SEGMENTS, _MOST_ENTRIES, _MOST_VERSIONS, _MOST_CHAIN = 512, 1 << 14, 1 << 14, 1 << 16
_MOST_SYMBOLS, _MOST_NAMES = 1 << 22, 1 << 28
_LONGEST = 1 << 14
_AHEAD = 1 << 13  # bytes read at once: the headers, and in small files all tables


class ElfError(Exception):
    """A file that is not a loadable ELF file, with the reason.

    `foreign` is set for another word size or byte order. The loader skips such files in its search.
    """

    def __init__(self, reason: str, *, foreign: bool = False) -> None:
        super().__init__(reason)
        self.foreign = foreign


class Version(Value, kw_only=False):
    """A symbol version that a file requires from a library: ("libc.so.6", "GLIBC_2.34")."""

    library: str
    name: str


class Elf(Value):
    """The dynamic section of a file.

    `rpath` and `runpath` are as written. `requires` are the versions that the loader insists on, `defines` the versions
    that the file defines. `exports` is whether the file defines the requested symbol.
    """

    machine: int
    soname: str | None = None
    needed: tuple[str, ...] = ()
    rpath: str | None = None
    runpath: str | None = None
    interpreter: str | None = None
    default_folders: bool = True
    requires: tuple[Version, ...] = ()
    defines: frozenset[str] = frozenset()
    exports: bool = False


def read_elf(path: str | Path, symbol: str | None = None) -> Elf:
    """Read a file's dynamic section, and whether it exports `symbol`. Raises ElfError."""
    with open_elf(path) as (read, size):
        return ElfFile(read, size).elf(symbol)


@contextlib.contextmanager
def open_elf(path: str | Path) -> Iterator[tuple[Read, int]]:
    """Open a regular file to be read in pieces. Yield a function that reads it, and its size. Raises ElfError."""
    try:
        number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        raise ElfError(getattr(error, "strerror", None) or str(error)) from error
    try:
        status = os.fstat(number)
        if not stat.S_ISREG(status.st_mode):
            raise ElfError("is not a regular file")
        yield lambda start, size: os.pread(number, size, start), status.st_size
    except OSError as error:
        raise ElfError(error.strerror or str(error)) from error
    finally:
        os.close(number)


class ElfFile:
    """A file of `size` bytes with its segments, and its tables by address. Every method raises ElfError."""

    def __init__(self, read: Read, size: int) -> None:
        self._read, self._size = read, size
        self._head = read(0, min(size, _AHEAD))
        self._window, self._near = b"", 0
        self._texts: dict[int, str] = {}
        self.machine, table, count = self._header()
        data = self.bytes(table, count * _SEGMENT.size)
        self._segments = list(_SEGMENT.iter_unpack(data))
        self._loads = self._find(_LOAD)
        if any(start + length > size for _, length, start in self._loads):
            raise ElfError("is truncated: its segments are incomplete")
        self._dynamic = self._entries()
        self._strings = self.offset(self._first(_STRINGS)) if _STRINGS in self._dynamic else None

    def _header(self) -> tuple[int, int, int]:
        if self._head[:4] != b"\x7fELF":
            raise ElfError("is not an ELF file" if self._head else "is empty")
        if self._head[4:6] != b"\x02\x01":
            raise ElfError("is not a 64-bit little-endian ELF file", foreign=True)
        fields = _HEADER.unpack(self.bytes(0, _HEADER.size))
        if fields[9] != _SEGMENT.size or not 0 < fields[10] <= _MOST_SEGMENTS:
            raise ElfError("has no valid program headers")
        return fields[2], fields[5], fields[10]

    def _find(self, kind: int) -> list[tuple[int, int, int]]:
        """Return the segments of a kind: address, and size and offset in the file."""
        return [(s[3], s[5], s[2]) for s in self._segments if s[0] == kind]

    def bytes(self, start: int, size: int) -> bytes:
        """Return bytes of the file. Raises ElfError beyond its end."""
        if not 0 <= start <= start + size <= self._size:
            raise ElfError("is truncated: its tables are incomplete")
        end = start + size
        if end <= len(self._head):
            return self._head[start:end]
        near = start - self._near
        if near < 0 or near + size > len(self._window):
            near, self._near = 0, start
            self._window = self._read(start, max(size, _AHEAD))
            if len(self._window) < size:
                raise ElfError("is truncated: its tables are incomplete")
        return self._window[near : near + size]

    def offset(self, address: int) -> int:
        """Return the file offset of an address. Raises ElfError."""
        for start, length, offset in self._loads:
            if start <= address < start + length:
                return int(offset + address - start)
        raise ElfError(f"has a table at {address:#x}, outside its segments")

    def _entries(self) -> dict[int, list[int]]:
        entries: dict[int, list[int]] = {}
        found = self._find(_DYNAMIC)
        if not found:
            return entries
        _, size, start = found[0]
        size = min(size, _MOST_ENTRIES * _ENTRY.size)
        data = self.bytes(start, size - size % _ENTRY.size)
        for tag, value in _ENTRY.iter_unpack(data):
            if tag == 0:
                break
            entries.setdefault(tag, []).append(value)
        return entries

    def _first(self, tag: int) -> int:
        return self._dynamic.get(tag, [0])[0]

    def _text(self, index: int) -> str:
        """Return a string of the dynamic string table."""
        if index not in self._texts:
            if self._strings is None or index >= max(self._first(_STRINGS_SIZE), 1):
                raise ElfError("names a string outside its string table")
            self._texts[index] = self._string(self._strings + index)
        return self._texts[index]

    def _string(self, start: int) -> str:
        length = 128
        while True:
            data = self.bytes(start, min(length, self._size - start))
            end = data.find(b"\0")
            if end >= 0:
                return data[:end].decode("utf-8", "backslashreplace")
            if length >= _LONGEST or len(data) < length:
                raise ElfError("has an unterminated string")
            length *= 4

    def elf(self, symbol: str | None = None) -> Elf:
        """Return the dynamic section, and whether the file exports `symbol`."""
        path = self._find(_INTERPRETER)
        return Elf(
            machine=self.machine,
            soname=self._maybe(_SONAME),
            needed=tuple(dict.fromkeys(self._text(i) for i in self._dynamic.get(_NEEDED, ()))),
            rpath=self._maybe(_RPATH),
            runpath=self._maybe(_RUNPATH),
            interpreter=self._string(path[0][2]) if path else None,
            default_folders=not self._first(_FLAGS_1) & _NO_DEFAULT_FOLDERS,
            requires=tuple(dict.fromkeys(self._required())),
            defines=frozenset(self._defined()),
            exports=symbol is not None and self.exports(symbol),
        )

    def _maybe(self, tag: int) -> str | None:
        return self._text(self._dynamic[tag][0]) if tag in self._dynamic else None

    def _required(self) -> list[Version]:
        versions: list[Version] = []
        if _NEED not in self._dynamic:
            return versions
        position = self.offset(self._first(_NEED))
        for _ in range(min(self._first(_NEED_COUNT), _MOST_VERSIONS)):
            _, count, file, first, following = _VERSION_NEED.unpack(self.bytes(position, _VERSION_NEED.size))
            library, near = self._text(file), position + first
            for _ in range(count):
                _, flags, _, name, step = _VERSION_AUX.unpack(self.bytes(near, _VERSION_AUX.size))
                if not flags & _WEAK:
                    versions.append(Version(library, self._text(name)))
                near += step
                if not step or len(versions) > _MOST_VERSIONS:
                    break
            position += following
            if not following:
                break
        return versions

    def _defined(self) -> list[str]:
        names: list[str] = []
        if _DEFINED not in self._dynamic:
            return names
        position = self.offset(self._first(_DEFINED))
        for _ in range(min(self._first(_DEFINED_COUNT), _MOST_VERSIONS)):
            _, flags, _, count, _, first, following = _VERSION_DEFINED.unpack(
                self.bytes(position, _VERSION_DEFINED.size)
            )
            if count and not flags & _BASE:
                name, _ = struct.unpack("<II", self.bytes(position + first, 8))
                names.append(self._text(name))
            position += following
            if not following:
                break
        return names

    def _is(self, number: int, symbol: str) -> bool:
        position = self.offset(self._first(_SYMBOLS)) + number * _SYMBOL.size
        name, _, _, section, _, _ = _SYMBOL.unpack(self.bytes(position, _SYMBOL.size))
        return section != 0 and self._text(name) == symbol

    def _word(self, position: int) -> int:
        return int.from_bytes(self.bytes(position, 4), "little")

    def exports(self, symbol: str) -> bool:
        """Return whether the GNU hash table has a symbol. Of 8,000 libraries of wheels and Debian one has no such table."""
        if _SYMBOLS not in self._dynamic or _GNU_HASH not in self._dynamic:
            return False
        wanted = 5381
        for byte in symbol.encode():
            wanted = (wanted * 33 + byte) & 0xFFFFFFFF
        table = self.offset(self._first(_GNU_HASH))
        buckets, first, bloom = struct.unpack("<III", self.bytes(table, 12))
        if not buckets:
            return False
        starts = table + 16 + bloom * 8
        number = self._word(starts + wanted % buckets * 4)
        for _ in range(_MOST_CHAIN if number >= first else 0):
            chain = self._word(starts + (buckets + number - first) * 4)
            if chain | 1 == wanted | 1 and self._is(number, symbol):
                return True
            if chain & 1:
                break
            number += 1
        return False

    def undefined(self) -> Iterator[str]:
        """Yield the symbols that the file requires, without weak ones. They stand before those of the GNU hash table."""
        if _SYMBOLS not in self._dynamic or _GNU_HASH not in self._dynamic or self._strings is None:
            return
        end = self._word(self.offset(self._first(_GNU_HASH)) + 4)
        data = self.bytes(self.offset(self._first(_SYMBOLS)), min(end, _MOST_SYMBOLS) * _SYMBOL.size)
        names = self.bytes(self._strings, min(self._first(_STRINGS_SIZE), _MOST_NAMES))
        for name, info, _, section, _, _ in _SYMBOL.iter_unpack(data):
            stop = names.find(b"\0", name)
            if stop > name and section == 0 and info >> 4 == _GLOBAL:
                yield names[name:stop].decode("utf-8", "backslashreplace")


def list_unexported(path: str, providers: Iterable[str], pattern: re.Pattern[str]) -> tuple[str, ...]:
    """Return the symbols with a pattern that a file requires and none of the providers exports. Raises ElfError."""
    with contextlib.ExitStack() as stack:
        files = [ElfFile(*stack.enter_context(open_elf(p))) for p in (path, *providers)]
        required = [name for name in files[0].undefined() if pattern.match(name)]
        return tuple(name for name in required if not any(f.exports(name) for f in files))


# --- the loader's cache --------------------------------------------------------------------------

# The flags of each machine's 64-bit libraries in the cache (glibc's ldconfig.h: FLAG_ELF_LIBC6 and the required ABI)
_CACHE_FLAGS = {"x86_64": 0x0303, "aarch64": 0x0A03}
_CACHE_MAGIC = b"glibc-ld.so.cache1.1"
_CACHE_HEAD, _CACHE_ENTRY = struct.Struct("=20sII20x"), struct.Struct("=iIIIQ")
_MOST_CACHE = 1 << 26  # bytes; real caches have some hundred thousand


def loader_cache(root: Path, machine: str) -> tuple[tuple[str, str], ...]:
    """Return (soname, path) for each library of a machine in /etc/ld.so.cache, in its order."""
    try:
        data = (root / "etc" / "ld.so.cache").read_bytes()[:_MOST_CACHE]
        return parse_loader_cache(data, _CACHE_FLAGS.get(machine))
    except OSError:
        return ()


def parse_loader_cache(data: bytes, flags: int | None) -> tuple[tuple[str, str], ...]:
    """Return (soname, path) of the libraries with these flags, or of all libraries for None.

    Another format, such as that of glibc before 2.2 or of another libc, has none.
    """
    start = data.find(_CACHE_MAGIC)
    if start < 0 or len(data) < start + _CACHE_HEAD.size:
        return ()
    data = data[start:]  # an older table may precede it; string offsets count from here
    count = _CACHE_HEAD.unpack_from(data)[1]
    end = _CACHE_HEAD.size + count * _CACHE_ENTRY.size
    if end > len(data):
        return ()
    entries = _CACHE_ENTRY.iter_unpack(data[_CACHE_HEAD.size : end])
    return tuple(
        (_read_text(data, key), _read_text(data, value))
        for kind, key, value, *_ in entries
        if flags in (None, kind)
    )


def _read_text(data: bytes, start: int) -> str:
    end = data.find(b"\0", start)
    return data[start : end if end >= 0 else len(data)].decode("utf-8", "surrogateescape")
