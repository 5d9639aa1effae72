"""Read the compiled libraries of a wheel: what they need, open and call, and the CUDA and framework that this means.

Each library is unpacked once, to a temporary file that is removed before the next one.
"""

from __future__ import annotations

import functools
import os
import re
import tempfile
from typing import IO, TYPE_CHECKING, Any

from ...index.archives import DAMAGED
from ...system.elf import Elf, ElfError, ElfFile
from ...system.kernels import read_fatbins
from ...system.versions import major, numbers

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
    """Return what each library of a wheel says, by member name, and the wheel's size. Raises ValueError."""
    names = [i.filename for i in wheel.infolist() if LIBRARY.fullmatch(i.filename) and i.file_size]
    libraries = measure_files((name, functools.partial(wheel.open, name)) for name in names)
    assert wheel.fp is not None
    return {"libraries": libraries, "size": wheel.fp.seek(0, os.SEEK_END)}


def measure_files(files: Iterable[tuple[str, Callable[[], IO[bytes]]]]) -> dict[str, Any]:
    """Return what each library says, by its name. `files` are names, and what opens them. Raises ValueError."""
    return {name: library for name, opened in files if (library := _read(name, opened))}


def _read(name: str, opened: Callable[[], IO[bytes]]) -> dict[str, Any] | None:
    """Return the facts of one library, or None for a linker script or other text with a library's name."""
    try:
        with tempfile.TemporaryFile() as target, opened() as source:
            copy: Any = _Copy(source, target)
            kernels = read_fatbins(copy, enough=1 << 30, budget=MOST + 1).kinds  # to the end
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
        file = ElfFile(read, copy.size)
        elf, symbols = file.elf(), set(filter(FRAMEWORK_SYMBOL.fullmatch, file.undefined()))
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
    return max(versions, key=numbers, default=None)


NVIDIA = re.compile(
    r"lib(?P<stem>cuda|cudart|cublas|cublasLt|cudnn\w*|cufft\w*|curand|cusolver\w*|cusparse\w*|nvrtc(?:-builtins)?\w*"
    r"|nvJitLink|nvjitlink|nccl|cupti|nvToolsExt|nvjpeg\w*|npp\w+|cufile\w*|nvshmem\w*|nvinfer\w*|nvonnxparser"
    r"|cudss\w*|cutensor\w*|nvcomp\w*|nvfatbin|nvvm|nvcuvid|nvidia-(?:ml|encode)|nvperf_\w+|checkpoint|pcsamplingutil)"
    r"(?P<renamed>[-.][0-9a-f]{8})?\.so(?:\.(?P<version>\d+(?:\.\d+)*))?"
)
"""A library of NVIDIA's, `renamed` where a wheel brings a copy under a name of its own."""

OTHER_GPU = re.compile(r"lib(?:sycl|amdhip64|hip\w*|roc\w*|ze_loader|svml|intlc)\.so.*")
"""A library of AMD's or Intel's GPU software."""

_OF_CUDA = re.compile(r"cudart|cublas(Lt)?|nvrtc|nvJitLink|nvjitlink|cupti|nvjpeg|npp\w+")
"""The libraries whose soname begins with the CUDA major."""
_FFT = {"10": "11", "11": "12", "12": "13"}
"""cuFFT's soname -> CUDA major."""

_TORCH_C = re.compile(r"(?:aoti_)?torch_\w+")
_TORCH_CPP = re.compile(r"_Z(?:T[VIS]|GV|TH|TW)?N[KVrRO]*(?:2at|3c10|5torch(?!6stable|10headeronly))\d?\w*")
_TORCH_PYTHON = re.compile(r"THP\w+")
_TENSORFLOW = re.compile(r"_Z(?:T[VIS]|GV)?N[KVrRO]*(?:10tensorflow|3tsl)\w*|TF_\w+")


def cuda_majors(libraries: Iterable[str]) -> set[str]:
    """Return the CUDA major versions in library names."""
    majors = set()
    for name in libraries:
        match = NVIDIA.fullmatch(name)
        if not match or not match["version"]:
            continue
        first = major(match["version"])
        if _OF_CUDA.fullmatch(match["stem"]):
            majors.add(first)
        elif match["stem"] == "cufft" and first in _FFT:
            majors.add(_FFT[first])
    return majors


def cudnn_majors(libraries: Iterable[str]) -> set[str]:
    """Return the cuDNN major versions in library names."""
    matches = [m for name in libraries if (m := NVIDIA.fullmatch(name)) and m["version"]]
    return {major(m["version"]) for m in matches if m["stem"].startswith("cudnn")}


def parse_cuda_name(package: str) -> str | None:
    """Return the CUDA major version in a package's name: cupy-cuda12x, nvidia-dali-cuda120, cudf-cu13."""
    match = re.search(r"-cu(?:da)?(\d\d)(?:\d?|x)$", package)
    return match[1] if match else None


def is_of_torch(symbol: str) -> bool:
    """Return whether a symbol belongs to torch: a C function, C++ or a Python object."""
    return any(pattern.fullmatch(symbol) for pattern in (_TORCH_C, _TORCH_CPP, _TORCH_PYTHON))


def find_framework(symbols: Iterable[str]) -> str | None:
    """Return the framework that defines these undefined symbols. Raise ValueError if several do."""
    called = set()
    for symbol in symbols:
        if is_of_torch(symbol):
            called.add("torch")
        elif _TENSORFLOW.fullmatch(symbol):
            called.add("tensorflow")
    if len(called) > 1:
        raise ValueError("its libraries call torch and tensorflow")
    return next(iter(called), None)


def abi_of(symbols: Iterable[str]) -> str | None:
    """Return how a framework is called: "exact", "stable", or None for no calls.

    "exact" is through C++ or Python objects, which change with each release. "stable" is only through torch's C
    functions.
    """
    stable = False
    for symbol in symbols:
        of_tensorflow = _TENSORFLOW.fullmatch(symbol) and not symbol.startswith("TF_")
        if of_tensorflow or _TORCH_CPP.fullmatch(symbol) or _TORCH_PYTHON.fullmatch(symbol):
            return "exact"
        stable = stable or bool(_TORCH_C.fullmatch(symbol))
    return "stable" if stable else None
