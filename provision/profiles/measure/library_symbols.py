"""What needs and symbols of libraries mean: the CUDA major, cuDNN, and how a framework's code is called."""

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
    """The CUDA majors of these library names."""
    majors = set()
    for name in libraries:
        found = NVIDIA.fullmatch(name)
        if not found or not found["version"]:
            continue
        first = found["version"].split(".")[0]
        if _OF_CUDA.fullmatch(found["stem"]):
            majors.add(first)
        elif found["stem"] == "cufft" and first in _FFT:
            majors.add(_FFT[first])
    return majors


def cudnn_majors(libraries: Iterable[str]) -> set[str]:
    """The cuDNN majors of these library names."""
    matches = [m for name in libraries if (m := NVIDIA.fullmatch(name)) and m["version"]]
    return {m["version"].split(".")[0] for m in matches if m["stem"].startswith("cudnn")}


def named_cuda(package: str) -> str | None:
    """The CUDA major that a package's name states: cupy-cuda12x, nvidia-dali-cuda120, cudf-cu13."""
    found = re.search(r"-cu(?:da)?(\d\d)(?:\d?|x)$", package)
    return found[1] if found else None


def is_of_torch(symbol: str) -> bool:
    """Whether a symbol is one of torch's: a C function, C++ or a Python object."""
    return any(pattern.fullmatch(symbol) for pattern in (_TORCH_C, _TORCH_CPP, _TORCH_PYTHON))


def framework_called(symbols: Iterable[str]) -> str | None:
    """The framework that has these undefined symbols. Raises ValueError where several have."""
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
    """How a framework is called: "exact" through C++ or Python objects, which change with each release; "stable"
    through torch's C functions only; None where it is not called."""
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
    """The C++ string ABI of calls to a framework: "1", "0", None without strings. Raises ValueError for both."""
    cpp = [s for s in symbols if _TORCH_CPP.fullmatch(s)]
    new = any(_NEW_STRING.search(s) for s in cpp)
    old = any(_OLD_STRING.search(s) for s in cpp)
    if new and old:
        raise ValueError("its libraries call torch with both C++ string ABIs")
    return "1" if new else "0" if old else None
