"""Reads the compiled libraries in a wheel: needs, kernels, framework symbols, names of libraries to open.

Each library is unpacked once, to a temporary file that is removed before the next one.
"""

from __future__ import annotations

import functools
import os
import re
import tempfile
from typing import IO, TYPE_CHECKING, Any

from provision.index.bounded_archive import DAMAGED
from provision.index.read_architectures_from_stream import read_fatbins
from provision.system.elf import Elf, ElfError, parse
from provision.system.elf_symbols import read_undefined_symbols

if TYPE_CHECKING:
    import zipfile
    from collections.abc import Callable, Iterable

MOST = 3 << 30
"""Bytes of one library unpacked. The largest on the public index have 1.5 GB."""
LIBRARY = re.compile(r".*\.so(?:\.\d+)*")
FRAMEWORK_SYMBOL = re.compile(
    r"(?:aoti_)?torch_\w+|THP\w+|_Z.*(?:2at|3c10|5torch|10tensorflow|3tsl)\w*|TF_\w+"
)
"""Symbols of torch (C functions, Python objects, C++ namespaces) and of TensorFlow."""

_OPENED = re.compile(
    rb"\0(lib(?:cuda|cudart|cublas(?:Lt)?|cudnn\w*|cufft|curand|cusolver|cusparse(?:Lt)?|nvrtc|nvJitLink|nccl"
    rb"|cutensor|nvinfer|nvjpeg|nvcomp|cufile)\.so(?:\.\d+)+)(?=\0)"
)
_LONGEST_NAME = 64
_GLIBC = re.compile(r"GLIBC_(\d+\.\d+)(?:\.\d+)?")


class _Copy:
    """A stream that keeps what is read from it in a file, and the names of CUDA libraries in it."""

    def __init__(self, source: IO[bytes], target: IO[bytes]) -> None:
        self._source, self._target = source, target
        self._end = b""
        self.size = 0
        self.opened: set[str] = set()

    def read(self, count: int = -1) -> bytes:
        data = self._source.read(count)
        self._target.write(data)
        self.size += len(data)
        if self.size > MOST:
            raise ValueError(f"a library has more than {MOST} bytes")
        self.opened |= {name.decode() for name in _OPENED.findall(self._end + data)}
        self._end = data[-_LONGEST_NAME:]
        return data


def measure_libraries(wheel: zipfile.ZipFile) -> dict[str, Any]:
    """Return what each library of a wheel says, by member name, and all library names. Raises ValueError."""
    names = [i.filename for i in wheel.infolist() if LIBRARY.fullmatch(i.filename) and i.file_size]
    files = ((name, functools.partial(wheel.open, name)) for name in names)
    return {"libraries": measure_files(files), "size": _read_size(wheel)}


def measure_files(files: Iterable[tuple[str, Callable[[], IO[bytes]]]]) -> dict[str, Any]:
    """Return what each library says, by its name. `files` are names, and what opens them. Raises ValueError."""
    return {name: library for name, opened in files if (library := _read(name, opened))}


def _read_size(wheel: zipfile.ZipFile) -> int:
    assert wheel.fp is not None
    return wheel.fp.seek(0, os.SEEK_END)


def _read(name: str, opened: Callable[[], IO[bytes]]) -> dict[str, Any] | None:
    """Return the facts of one library, or None for a linker script or other text with a library's name."""
    try:
        with tempfile.TemporaryFile() as target, opened() as source:
            copy: Any = _Copy(source, target)
            kernels = read_fatbins(copy, enough=1 << 30, budget=MOST).kinds
            while copy.read(1 << 18):
                pass
            target.flush()
            return _collect_facts(target.fileno(), copy, sorted(kernels))
    except DAMAGED as error:
        raise ValueError(f"{name}: {error}") from error


def _collect_facts(number: int, copy: _Copy, kernels: list[tuple[int, int]]) -> dict[str, Any] | None:
    if os.pread(number, 4, 0) != b"\x7fELF":
        return None

    def read(start: int, size: int) -> bytes:
        return os.pread(number, size, start)

    try:
        elf = parse(read, copy.size)
        symbols = [s for s in read_undefined_symbols(read, copy.size) if FRAMEWORK_SYMBOL.fullmatch(s)]
    except ElfError as error:
        raise ValueError(str(error)) from error
    return {
        "size": copy.size,
        "machine": elf.machine,
        "soname": elf.soname,
        "needed": list(elf.needed),
        "glibc": _find_glibc(elf),
        "versions": sorted({v.name for v in elf.requires}),
        "kernels": kernels,
        "opened": sorted(copy.opened - {*elf.needed, elf.soname}),
        "symbols": sorted(symbols),
    }


def _find_glibc(elf: Elf) -> str | None:
    """Return the newest glibc whose symbols a library requires."""
    versions = [m[1] for v in elf.requires if (m := _GLIBC.fullmatch(v.name))]
    return max(versions, key=lambda text: tuple(map(int, text.split("."))), default=None)
