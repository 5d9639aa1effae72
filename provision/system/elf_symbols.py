"""The symbols that an ELF file requires of other files."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from .elf import ElfError, ElfFile

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .elf import Read

_SYMBOL = struct.Struct("<IBBHQQ")
_HASH, _STRINGS, _SYMBOLS, _STRINGS_SIZE, _GNU_HASH = 4, 5, 6, 10, 0x6FFFFEF5
_GLOBAL = 1
# Bounds; the files of real packages have less than a tenth of each.
_MOST_SYMBOLS, _MOST_NAMES = 1 << 22, 1 << 28


def undefined_symbols(read: Read, size: int) -> tuple[str, ...]:
    """The symbols that a file of `size` bytes requires, weak ones left out. Raises ElfError."""
    try:
        return tuple(dict.fromkeys(_Symbols(read, size).undefined()))
    except (struct.error, OverflowError) as error:
        raise ElfError("ends before its tables do") from error


class _Symbols(ElfFile):
    """A file with its table of dynamic symbols."""

    def undefined(self) -> Iterator[str]:
        """Strong symbols without a definition."""
        if _SYMBOLS not in self._dynamic or self._strings is None:
            return
        table = self.offset(self._first(_SYMBOLS))
        count = min(self._end_of_undefined(), _MOST_SYMBOLS)
        names = self.bytes(self._strings, min(self._first(_STRINGS_SIZE), _MOST_NAMES))
        for name, info, _, section, _, _ in _SYMBOL.iter_unpack(self.bytes(table, count * _SYMBOL.size)):
            end = names.find(b"\0", name)
            if section == 0 and info >> 4 == _GLOBAL and end > name:
                yield names[name:end].decode("utf-8", "backslashreplace")

    def _end_of_undefined(self) -> int:
        """How many symbols from the start of the table hold all undefined ones: a GNU hash table begins after them."""
        if _GNU_HASH in self._dynamic:
            return self._word(self.offset(self._first(_GNU_HASH)) + 4)
        return self._word(self.offset(self._first(_HASH)) + 4) if _HASH in self._dynamic else 0
