"""What the loader's cache knows, read as glibc wrote it: no program is started for it."""

from __future__ import annotations

import re
import struct
from pathlib import Path

from . import process

# How `ldconfig -p` names the libraries that a 64-bit process of each machine may load, and the flags that they
# have in the cache (glibc's ldconfig.h: FLAG_ELF_LIBC6 and the required ABI).
FLAVOURS = {"x86_64": "x86-64", "aarch64": "AArch64"}
_FLAGS = {"x86_64": 0x0303, "aarch64": 0x0A03}
_MAGIC = b"glibc-ld.so.cache1.1"
_HEAD, _ENTRY = struct.Struct("=20sII20x"), struct.Struct("=iIIIQ")
_MOST = 1 << 26  # bytes; the caches of real systems have some hundred thousand


def loader_cache(root: Path, machine: str) -> tuple[tuple[str, str], ...]:
    """(soname, path) of what /etc/ld.so.cache has for a machine, in its order; empty where there is none."""
    cache = root / "etc" / "ld.so.cache"
    if not _is_there(cache):
        return ()
    try:
        rows = cache_rows(cache.read_bytes()[:_MOST], _FLAGS.get(machine))
    except OSError:
        rows = None
    return _by_ldconfig(cache, machine) if rows is None else rows


def cache_rows(data: bytes, flags: int | None) -> tuple[tuple[str, str], ...] | None:
    """(soname, path) of the libraries with these flags (None: of all); None for a file of another kind, as
    glibc before 2.2 or another libc has it."""
    start = data.find(_MAGIC)
    if start < 0 or len(data) < start + _HEAD.size:
        return None
    data = data[start:]  # an older table may stand before; strings are counted from here
    count = _HEAD.unpack_from(data)[1]
    if _HEAD.size + count * _ENTRY.size > len(data):
        return None
    rows = []
    for number in range(count):
        kind, key, value, *_ = _ENTRY.unpack_from(data, _HEAD.size + number * _ENTRY.size)
        if flags is None or kind == flags:
            rows.append((_text(data, key), _text(data, value)))
    return tuple(rows)


def _text(data: bytes, start: int) -> str:
    end = data.find(b"\0", start)
    return data[start : end if end >= 0 else len(data)].decode("utf-8", "surrogateescape")


def ldconfig_rows(text: str, flavour: str | None) -> tuple[tuple[str, str], ...]:
    r"""(soname, path) from `ldconfig -p`, in its order; other machines' libraries are left out.

    A line is "\tlibcuda.so.1 (libc6,x86-64) => /usr/lib/x86_64-linux-gnu/libcuda.so.1".
    """
    rows = re.findall(r"^[ \t]+(\S+) \(([^)\n]*)\) => (/.*)$", text, re.MULTILINE)
    return tuple((soname, path) for soname, kind, path in rows if not flavour or flavour in kind)


def _by_ldconfig(cache: Path, machine: str) -> tuple[tuple[str, str], ...]:
    for program in ("/sbin/ldconfig", "/usr/sbin/ldconfig"):
        if _is_there(Path(program)):
            try:
                ended = process.run([program, "-p", "-C", str(cache)], timeout=20)
            except OSError:
                continue
            return ldconfig_rows(ended.stdout, FLAVOURS.get(machine))
    return ()


def _is_there(path: Path) -> bool:
    """Whether a path exists, a directory on the way that may not be searched meaning no."""
    try:
        return path.exists()
    except OSError:
        return False
