"""What a library's bytes say, read as a stream, so that little of a wheel at an index has to be fetched.

Which GPUs its code is for: a CUDA fat binary begins with the magic 0xBA55ED50, a version (1), its header's length
and the length of what follows: entries, each with a kind (1 PTX, 2 ELF), its own header's length, its payload's
length and, at byte 28, the architecture number (90 for sm_90).

Which folders of the NVIDIA wheels it tells the loader to search: a RUNPATH is one string of the dynamic string table,
which linkers put near a library's start; no other string there begins with $ORIGIN (ELF gABI, "Dynamic Section";
ld.so(8))."""

from __future__ import annotations

import re
import struct
from typing import IO, NamedTuple

MAGIC = struct.pack("<I", 0xBA55ED50)
PTX, ELF = 1, 2
CHUNK = 1 << 18


class Found(NamedTuple):
    """What was read: `kinds` are (kind, architecture number), `fatbins` how many were seen whole."""

    kinds: frozenset[tuple[int, int]]
    fatbins: int
    read: int


class _Stream:
    """A forward-only buffer over a file that cannot seek cheaply."""

    def __init__(self, file: IO[bytes], budget: int) -> None:
        self._file, self._budget = file, budget
        self._buffer = b""
        self.read = 0

    def _more(self) -> bool:
        chunk = self._file.read(CHUNK) if self.read < self._budget else b""
        self.read += len(chunk)
        self._buffer += chunk
        return bool(chunk)

    def take(self, count: int) -> bytes | None:
        while len(self._buffer) < count:
            if not self._more():
                return None
        taken, self._buffer = self._buffer[:count], self._buffer[count:]
        return taken

    def skip(self, count: int) -> bool:
        while len(self._buffer) < count:
            count -= len(self._buffer)
            self._buffer = b""
            if not self._more():
                return False
        self._buffer = self._buffer[count:]
        return True

    def seek_magic(self) -> bool:
        """Go on to just behind the next magic."""
        while True:
            at = self._buffer.find(MAGIC)
            if at >= 0:
                self._buffer = self._buffer[at + len(MAGIC) :]
                return True
            self._buffer = self._buffer[-3:]
            if not self._more():
                return False


def read_fatbins(
    file: IO[bytes], *, enough: int, budget: int, until: frozenset[tuple[int, int]] = frozenset()
) -> Found:
    """The kernels of the first `enough` fat binaries of a library, or of its first `budget` bytes.

    With `until`, reading ends as soon as all of these (kind, architecture) were seen.
    """
    stream = _Stream(file, budget)
    kinds: set[tuple[int, int]] = set()
    whole = 0
    while whole < enough and stream.seek_magic():
        header = stream.take(12)
        if header is None:
            break
        version, length, size = struct.unpack("<HHQ", header)
        if version != 1 or length != 16:
            continue  # the magic's bytes, but no fat binary
        left, seen = size, set()
        while left >= 64:
            entry = stream.take(64)
            if entry is None:
                break
            kind, _, own, payload = struct.unpack_from("<HHIQ", entry)
            if kind not in (PTX, ELF) or own < 64:
                break
            seen.add((kind, struct.unpack_from("<I", entry, 28)[0]))
            if not stream.skip(own - 64 + payload):
                break
            left -= own + payload
        kinds |= seen
        whole += bool(seen)
        if until and until <= kinds:
            break
    return Found(frozenset(kinds), whole, stream.read)


def capability(arch: int | str) -> str:
    """Capability of an architecture number: "9.0" for 90, "12.0" for 120, "9.0a" for "90a"."""
    digits = re.match(r"\d+", str(arch))
    assert digits, arch
    number = digits[0]
    return f"{number[:-1]}.{number[-1]}{str(arch)[len(number) :]}"


def _sort_key(word: str) -> tuple[int, int, str]:
    major, minor = re.findall(r"\d+", word)[:2]
    return int(major), int(minor), word


def kernels(sass: set[str], ptx: set[str]) -> str:
    """Capabilities with machine code and with PTX as TORCH_CUDA_ARCH_LIST writes them.

    That list cannot say "PTX without machine code"; such PTX ("7.0" alone) is written "7.0+PTX"
    too only where machine code of the same number is there, else it is left out.
    """
    return " ".join(f"{c}+PTX" if c in ptx else c for c in sorted(sass, key=_sort_key))


def from_found(found: Found) -> str:
    """The kernels of fat binaries."""
    sass = {capability(a) for k, a in found.kinds if k == ELF}
    ptx = {capability(a) for k, a in found.kinds if k == PTX}
    return kernels(sass, ptx)


def machine_code(words: list[str]) -> frozenset[tuple[int, int]]:
    """What fat binaries must hold for a list like torch's: an ELF entry for each sm_XY."""
    numbers = (re.match(r"sm_(\d+)", w) for w in words)
    return frozenset((ELF, int(m[1])) for m in numbers if m)


def from_words(words: list[str]) -> str:
    """The kernels of a list like torch's ("sm_90", "compute_90")."""
    sass = {capability(w[3:]) for w in words if w.startswith("sm_")}
    ptx = {capability(w[8:]) for w in words if w.startswith("compute_")}
    return kernels(sass, ptx)


_RUNPATH = re.compile(rb"\0\$ORIGIN([^\0]*)\0")
_FOLDER = re.compile(rb"nvidia/([a-z0-9_]+)/lib")
_PIECE = 1 << 20
_LONGEST = 1 << 16


def nvidia_folders(library: IO[bytes]) -> frozenset[str]:
    """The folders of nvidia/ in a library's RUNPATH ("cublas", "cudnn"); empty where it names none."""
    kept = b""
    while piece := library.read(_PIECE):
        text = kept + piece
        if found := _RUNPATH.search(text):
            return frozenset(m.decode() for m in _FOLDER.findall(found[1]))
        kept = text[-_LONGEST:]
    return frozenset()
