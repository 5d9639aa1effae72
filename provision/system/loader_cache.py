"""Reads the loader's cache in glibc's format, without running a program."""

from __future__ import annotations

import struct
from pathlib import Path

# The flags of each machine's 64-bit libraries in the cache (glibc's ldconfig.h: FLAG_ELF_LIBC6 and the required ABI)
_FLAGS = {"x86_64": 0x0303, "aarch64": 0x0A03}
_MAGIC = b"glibc-ld.so.cache1.1"
_HEAD, _ENTRY = struct.Struct("=20sII20x"), struct.Struct("=iIIIQ")
_MOST = 1 << 26  # bytes; real caches have some hundred thousand


def loader_cache(root: Path, machine: str) -> tuple[tuple[str, str], ...]:
    """Return (soname, path) for each library of a machine in /etc/ld.so.cache, in its order."""
    try:
        data = (root / "etc" / "ld.so.cache").read_bytes()[:_MOST]
        return parse_loader_cache(data, _FLAGS.get(machine))
    except OSError:
        return ()


def parse_loader_cache(data: bytes, flags: int | None) -> tuple[tuple[str, str], ...]:
    """Return (soname, path) of the libraries with these flags, or of all libraries for None.

    Another format, such as that of glibc before 2.2 or of another libc, has none.
    """
    start = data.find(_MAGIC)
    if start < 0 or len(data) < start + _HEAD.size:
        return ()
    data = data[start:]  # an older table may precede it; string offsets count from here
    count = _HEAD.unpack_from(data)[1]
    end = _HEAD.size + count * _ENTRY.size
    if end > len(data):
        return ()
    entries = _ENTRY.iter_unpack(data[_HEAD.size : end])
    return tuple(
        (_text(data, key), _text(data, value)) for kind, key, value, *_ in entries if flags in (None, kind)
    )


def _text(data: bytes, start: int) -> str:
    end = data.find(b"\0", start)
    return data[start : end if end >= 0 else len(data)].decode("utf-8", "surrogateescape")


def is_there(path: Path) -> bool:
    """Return whether a path exists. A folder without search permission means no."""
    try:
        return path.exists()
    except OSError:
        return False
