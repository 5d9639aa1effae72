"""Interprets the needs and symbols of libraries: CUDA major, cuDNN, and calls to a framework."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

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
_NEW_STRING = re.compile(r"7__cxx1112basic_string|B5cxx11")
_OLD_STRING = re.compile(r"(?:RK|_ES|E|O)Ss(?:$|[SRPNE])")


def cuda_majors(libraries: Iterable[str]) -> set[str]:
    """Return the CUDA major versions in library names."""
    majors = set()
    for name in libraries:
        match = NVIDIA.fullmatch(name)
        if not match or not match["version"]:
            continue
        first = match["version"].split(".")[0]
        if _OF_CUDA.fullmatch(match["stem"]):
            majors.add(first)
        elif match["stem"] == "cufft" and first in _FFT:
            majors.add(_FFT[first])
    return majors


def cudnn_majors(libraries: Iterable[str]) -> set[str]:
    """Return the cuDNN major versions in library names."""
    matches = [m for name in libraries if (m := NVIDIA.fullmatch(name)) and m["version"]]
    return {m["version"].split(".")[0] for m in matches if m["stem"].startswith("cudnn")}


def named_cuda(package: str) -> str | None:
    """Return the CUDA major version in a package's name: cupy-cuda12x, nvidia-dali-cuda120, cudf-cu13."""
    match = re.search(r"-cu(?:da)?(\d\d)(?:\d?|x)$", package)
    return match[1] if match else None


def is_of_torch(symbol: str) -> bool:
    """Return whether a symbol belongs to torch: a C function, C++ or a Python object."""
    return any(pattern.fullmatch(symbol) for pattern in (_TORCH_C, _TORCH_CPP, _TORCH_PYTHON))


def framework_called(symbols: Iterable[str]) -> str | None:
    """Return the framework that defines these undefined symbols. Raise ValueError if several do."""
    called = set()
    for symbol in symbols:
        if is_of_torch(symbol):
            called.add("torch")
        elif _TENSORFLOW.fullmatch(symbol):
            called.add("tensorflow")
    if len(called) > 1:
        raise ValueError("its libraries call torch and tensorflow")
    return called.pop() if called else None


def abi_of(symbols: Iterable[str]) -> str | None:
    """Return how a framework is called: "exact", "stable", or None for no calls.

    "exact" is through C++ or Python objects, which change with each release. "stable" is only through torch's C
    functions.
    """
    kinds = set()
    for symbol in symbols:
        if (
            _TORCH_CPP.fullmatch(symbol)
            or _TORCH_PYTHON.fullmatch(symbol)
            or (_TENSORFLOW.fullmatch(symbol) and not symbol.startswith("TF_"))
        ):
            return "exact"
        if _TORCH_C.fullmatch(symbol):
            kinds.add("stable")
    return kinds.pop() if kinds else None


def cxx11_of(symbols: Iterable[str]) -> str | None:
    """Return the C++ string ABI of calls to a framework: "1", "0", or None without strings. Raise ValueError
    for both."""
    cpp = [s for s in symbols if _TORCH_CPP.fullmatch(s)]
    new = any(_NEW_STRING.search(s) for s in cpp)
    old = any(_OLD_STRING.search(s) for s in cpp)
    if new and old:
        raise ValueError("its libraries call torch with both C++ string ABIs")
    return "1" if new else "0" if old else None
