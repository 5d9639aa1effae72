"""GPU kernels: which GPUs a set of them supports, and which a library has.

Rules (CUDA Programming Guide, binary and PTX compatibility): a cubin for X.Y runs on X.Z with Z >= Y of the
same major. Tegra parts and arch-specific (`a`, `f`) targets match only themselves. PTX is compiled for
anything newer, by a driver that supports at least the CUDA that made it.

A library has them in CUDA fat binaries, and its search folders too are read from its bytes as a stream, which needs
only the start of a wheel from an index. A fat binary starts with the magic 0xBA55ED50, a version (1), the
length of its header and the length of its entries. Each entry has a kind (1 PTX, 2 ELF), the lengths of its header
and payload, and at byte 28 the architecture number (90 for sm_90).

The search folders in the NVIDIA wheels are the RUNPATH, one string of the dynamic string table. Linkers put that
table near a library's start. No other string there starts with $ORIGIN (ELF gABI, "Dynamic Section"; ld.so(8)).
"""

from __future__ import annotations

import re
import struct
from functools import cache
from typing import IO, NamedTuple

from .versions import version

# CUDA 13 renamed sm_101 of CUDA 12.8 and 12.9 to sm_110: the same device (CUDA 13.0 release notes).
_RENAMED = {"10.1": "11.0"}
# Cubins for 10.0 and 12.0 run on these GPUs, but CUDA libraries older than 12.9 do not support them.
_NEED_CUDA = {"10.3": "12.9", "12.1": "12.9"}


def same_device(capability: str) -> str:
    return _RENAMED.get(capability, capability)


@cache
def find_run_mode(kernels: tuple[str, ...], capability: str, tegra: frozenset[str]) -> str | None:
    """Return how kernels ("8.0", "9.0a", "9.0+PTX") run on a GPU.

    "cubin" means directly, "ptx" after compilation by the driver, None not at all. `tegra` are the
    capabilities of Tegra parts.
    """
    if any(_runs_cubin(k, capability, tegra) for k in kernels):
        return "cubin"
    return "ptx" if any(_runs_ptx(k, capability) for k in kernels) else None


def _runs_cubin(kernel: str, capability: str, tegra: frozenset[str]) -> bool:
    target = kernel.removesuffix("+PTX")
    plain = same_device(target.rstrip("af"))
    capability = same_device(capability)
    if target[-1] in "af" or plain in tegra or capability in tegra:
        return plain == capability
    have, need = version(capability).release, version(plain).release
    return have[0] == need[0] and have >= need


def _runs_ptx(kernel: str, capability: str) -> bool:
    if not kernel.endswith("+PTX") or kernel[-5] in "af":
        return False
    return version(same_device(capability)) >= version(kernel.removesuffix("+PTX"))


def needs_cuda(capability: str) -> str | None:
    """Return the oldest CUDA whose libraries support a GPU on which older cubins would already run."""
    return _NEED_CUDA.get(capability)


# --- the kernels of a library --------------------------------------------------------------------

MAGIC = struct.pack("<I", 0xBA55ED50)
PTX, ELF = 1, 2
CHUNK = 1 << 18


class FatBinaries(NamedTuple):
    """The fat binaries of a library.

    `kinds` are (kind, architecture number). `fatbins` is the number of complete ones, and `read` the bytes read.
    """

    kinds: frozenset[tuple[int, int]]
    fatbins: int
    read: int


class _ForwardReader:
    """A forward-only buffer over a file with expensive seeks."""

    def __init__(self, file: IO[bytes], budget: int) -> None:
        self._file, self._budget = file, budget
        self._buffer = b""
        self.read = 0

    def _read_more(self) -> bool:
        chunk = self._file.read(CHUNK) if self.read < self._budget else b""
        self.read += len(chunk)
        self._buffer += chunk
        return bool(chunk)

    def take(self, count: int) -> bytes | None:
        while len(self._buffer) < count:
            if not self._read_more():
                return None
        taken, self._buffer = self._buffer[:count], self._buffer[count:]
        return taken

    def skip(self, count: int) -> None:
        while len(self._buffer) < count:
            count -= len(self._buffer)
            self._buffer = b""
            if not self._read_more():
                return
        self._buffer = self._buffer[count:]

    def seek_magic(self) -> bool:
        """Skip to the first byte after the next magic. Return whether there is one."""
        while True:
            at = self._buffer.find(MAGIC)
            if at >= 0:
                self._buffer = self._buffer[at + len(MAGIC) :]
                return True
            self._buffer = self._buffer[-3:]
            if not self._read_more():
                return False


def read_fatbins(
    file: IO[bytes], *, enough: int, budget: int, until: frozenset[tuple[int, int]] = frozenset()
) -> FatBinaries:
    """Read the first `enough` fat binaries of a library, in its first `budget` bytes.

    With `until`, reading ends after all of these (kind, architecture).
    """
    stream = _ForwardReader(file, budget)
    kinds: set[tuple[int, int]] = set()
    whole = 0
    while whole < enough and stream.seek_magic():
        header = stream.take(12)
        if header is None:
            break
        version, length, size = struct.unpack("<HHQ", header)
        if version != 1 or length != 16:
            continue  # the bytes of the magic, but no fat binary
        left, seen = size, set()
        while left >= 64:
            entry = stream.take(64)
            if entry is None:
                break
            kind, _, header_size, payload = struct.unpack_from("<HHIQ", entry)
            if kind not in (PTX, ELF) or header_size < 64:
                break
            seen.add((kind, struct.unpack_from("<I", entry, 28)[0]))
            stream.skip(header_size - 64 + payload)
            left -= header_size + payload
        kinds |= seen
        whole += bool(seen)
        if until and until <= kinds:
            break
    return FatBinaries(frozenset(kinds), whole, stream.read)


def capability(arch: int | str) -> str:
    """Return the capability of an architecture number: "9.0" for 90, "12.0" for 120, "9.0a" for "90a"."""
    digits = re.match(r"\d+", str(arch))
    assert digits, arch
    number = digits[0]
    return f"{number[:-1]}.{number[-1]}{str(arch)[len(number) :]}"


def _sort_key(word: str) -> tuple[int, int, str]:
    major, minor = re.findall(r"\d+", word)[:2]
    return int(major), int(minor), word


def kernels(sass: set[str], ptx: set[str]) -> str:
    """Return capabilities with machine code and with PTX in the form of TORCH_CUDA_ARCH_LIST.

    That form has no "PTX without machine code". PTX ("7.0" alone) is written as "7.0+PTX" if machine code of the same
    number exists, and is otherwise omitted.
    """
    return " ".join(f"{c}+PTX" if c in ptx else c for c in sorted(sass, key=_sort_key))


def from_binaries(binaries: FatBinaries) -> str:
    """Return the kernels of fat binaries."""
    sass = {capability(a) for k, a in binaries.kinds if k == ELF}
    ptx = {capability(a) for k, a in binaries.kinds if k == PTX}
    return kernels(sass, ptx)


def machine_code(words: list[str]) -> frozenset[tuple[int, int]]:
    """Return the entries that fat binaries need for a list like torch's: an ELF entry for each sm_XY."""
    numbers = (re.match(r"sm_(\d+)", w) for w in words)
    return frozenset((ELF, int(m[1])) for m in numbers if m)


def parse_arch_list(words: list[str]) -> str:
    """Return the kernels of a list like torch's ("sm_90", "compute_90")."""
    sass = {capability(w[3:]) for w in words if w.startswith("sm_")}
    ptx = {capability(w[8:]) for w in words if w.startswith("compute_")}
    return kernels(sass, ptx)


_RUNPATH = re.compile(rb"\0\$ORIGIN([^\0]*)\0")
_FOLDER = re.compile(rb"nvidia/([a-z0-9_]+)/lib")
_PIECE = 1 << 20
_LONGEST = 1 << 16


def read_nvidia_folders(library: IO[bytes]) -> frozenset[str]:
    """Return the folders of nvidia/ in a library's RUNPATH ("cublas", "cudnn")."""
    kept = b""
    while piece := library.read(_PIECE):
        text = kept + piece
        if runpath := _RUNPATH.search(text):
            return frozenset(m.decode() for m in _FOLDER.findall(runpath[1]))
        kept = text[-_LONGEST:]
    return frozenset()
