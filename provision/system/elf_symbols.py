"""Reads the symbols that an ELF file requires and defines."""

from __future__ import annotations

import contextlib
import re
import struct
from collections.abc import Iterable
from typing import TYPE_CHECKING

from .elf import ElfError, ElfFile, open_elf

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .elf import Read

_SYMBOL = struct.Struct("<IBBHQQ")
_HASH, _STRINGS, _SYMBOLS, _STRINGS_SIZE, _GNU_HASH = 4, 5, 6, 10, 0x6FFFFEF5
_LOCAL, _GLOBAL = 0, 1
# Bounds. The files of real packages have less than a tenth of each.
_MOST_SYMBOLS, _MOST_NAMES, _MOST_CHAIN = 1 << 22, 1 << 28, 1 << 16


def read_undefined_symbols(read: Read, size: int) -> tuple[str, ...]:
    """Return the symbols that a file of `size` bytes requires, without weak ones. Raises ElfError."""
    try:
        return tuple(dict.fromkeys(_Symbols(read, size).undefined()))
    except (struct.error, OverflowError) as error:
        raise ElfError("is truncated: its tables are incomplete") from error


def read_defined_symbols(read: Read, size: int) -> tuple[str, ...]:
    """Return the symbols that a file of `size` bytes exports. Raises ElfError."""
    try:
        return tuple(dict.fromkeys(_Symbols(read, size).defined()))
    except (struct.error, OverflowError) as error:
        raise ElfError("is truncated: its tables are incomplete") from error


def list_unexported(path: str, providers: Iterable[str], pattern: re.Pattern[str]) -> tuple[str, ...]:
    """Return the symbols with a pattern that a file requires and none of the providers exports. Raises ElfError."""
    with contextlib.ExitStack() as stack:
        files = [_Symbols(*stack.enter_context(open_elf(p))) for p in (path, *providers)]
        try:
            required = [name for name in files[0].undefined() if pattern.match(name)]
            return tuple(name for name in required if not any(f.exports(name) for f in files))
        except (struct.error, OverflowError) as error:
            raise ElfError("is truncated: its tables are incomplete") from error


class _Symbols(ElfFile):
    """A file with its table of dynamic symbols."""

    def undefined(self) -> Iterator[str]:
        """Yield strong symbols without a definition."""
        for name, binding, section in self._named(0, self._end_of_undefined()):
            if section == 0 and binding == _GLOBAL:
                yield name

    def exports(self, symbol: str) -> bool:
        """Return whether the file exports a symbol. Its hash table is used."""
        return self._exports(symbol)

    def defined(self) -> Iterator[str]:
        """Yield symbols with a definition. A GNU hash table lists only these."""
        start = self._end_of_undefined() if _GNU_HASH in self._dynamic else 0
        for name, binding, section in self._named(start, self._end()):
            if section != 0 and binding != _LOCAL:
                yield name

    def _named(self, start: int, end: int) -> Iterator[tuple[str, int, int]]:
        """Yield name, binding and section of the symbols from `start` to `end`."""
        if _SYMBOLS not in self._dynamic or self._strings is None or end <= start:
            return
        table = self.offset(self._first(_SYMBOLS)) + start * _SYMBOL.size
        data = self.bytes(table, min(end - start, _MOST_SYMBOLS) * _SYMBOL.size)
        names = self.bytes(self._strings, min(self._first(_STRINGS_SIZE), _MOST_NAMES))
        for name, info, _, section, _, _ in _SYMBOL.iter_unpack(data):
            stop = names.find(b"\0", name)
            if stop > name:
                yield names[name:stop].decode("utf-8", "backslashreplace"), info >> 4, section

    def _end(self) -> int:
        """Return the number of symbols in the table."""
        if _GNU_HASH not in self._dynamic:
            return self._end_of_undefined()
        table = self.offset(self._first(_GNU_HASH))
        buckets, first, bloom = struct.unpack("<III", self.bytes(table, 12))
        starts = table + 16 + bloom * 8
        data = self.bytes(starts, min(buckets, _MOST_SYMBOLS) * 4)
        last = max(struct.unpack(f"<{len(data) // 4}I", data), default=0)
        if last < first:
            return int(first)
        for number in range(last, last + _MOST_CHAIN):
            if self._word(starts + (buckets + number - first) * 4) & 1:
                return number + 1
        raise ElfError("has an unterminated hash table")

    def _end_of_undefined(self) -> int:
        """Return the number of symbols before the GNU hash table, which include all undefined ones."""
        if _GNU_HASH in self._dynamic:
            return self._word(self.offset(self._first(_GNU_HASH)) + 4)
        return self._word(self.offset(self._first(_HASH)) + 4) if _HASH in self._dynamic else 0
