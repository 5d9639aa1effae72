"""The wheel of NVIDIA's that brings a library of CUDA, by the rows of profiles/toolkits.yaml."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ...model import ToolkitRelease
from ..missing_libraries import name_nvidia_wheel

_LIBRARY = re.compile(r"lib([A-Za-z0-9_-]+?)\.so(?:\.(\d+))?")


def wheel_of(library: str, toolkits: Sequence[ToolkitRelease], cuda: str | None) -> str | None:
    """The requirement of the wheel that brings a library, by its soname: "nvidia-cuda-runtime==13.*" for
    libcudart.so.13. `cuda` is the CUDA major that decides where wheels of several have the soname. None where NVIDIA has
    no wheel with it."""
    match = _LIBRARY.match(library)
    if not match:
        return None
    stem, major = match[1].lower(), match[2]
    same: dict[str, str] = {}
    others: dict[str, str] = {}
    for release in toolkits:
        toolkit = release.version.partition(".")[0]
        for part in release.parts:
            name, number = _own(part, stem)
            if name and (major is None or number == major):
                same.setdefault(toolkit, f"{name}=={number}.*")
            elif name:
                others.setdefault(toolkit, name)
    if same:
        return same.get(cuda or "") or same[max(same, key=int)]
    if others:  # its soname does not count with its wheel: libcufile.so.0
        return others.get(cuda or "") or others[max(others, key=int)]
    return _of_no_toolkit(library, cuda or max((r.version.partition(".")[0] for r in toolkits), default=None))


def _own(part: str, stem: str) -> tuple[str | None, str | None]:
    """The wheel of a part of the toolkit and the major of its version, where the part has the library."""
    extra, *requirements = part.split(" ")
    if not stem.startswith(extra) or stem.startswith("cusparselt"):
        return None, None
    row = next((r for r in requirements if extra in _name(r)), requirements[0])
    number = re.search(r"(?:==|>=)(\d+)", row)
    return _name(row), number[1] if number else None


def _name(requirement: str) -> str:
    return re.split(r"[<>=!~]", requirement, maxsplit=1)[0]


def _of_no_toolkit(library: str, cuda: str | None) -> str | None:
    """cuDNN, NCCL and others, whose wheels carry the CUDA major in their names."""
    wheel = name_nvidia_wheel(library)
    if wheel is None or re.search(r"-cu\d+$", wheel) or cuda is None:
        return wheel
    return f"{wheel}-cu{cuda}"


def cuda_of(libraries: Sequence[str] | frozenset[str]) -> str | None:
    """The CUDA major of libraries by their sonames; None where they have none, or several."""
    known = re.compile(r"lib(?:cudart|cublas|cublasLt|nvrtc|nvJitLink|cupti)\.so\.(\d+)")
    majors = {m[1] for n in libraries if (m := known.match(n))}
    return majors.pop() if len(majors) == 1 else None
