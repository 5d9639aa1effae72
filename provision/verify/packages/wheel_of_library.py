"""Finds the NVIDIA wheel with a CUDA library, by profiles/toolkits.yaml."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ...model import ToolkitRelease
from ..explain_unopened_nvidia_libraries import name_nvidia_wheel

_LIBRARY = re.compile(r"lib([A-Za-z0-9_-]+?)\.so(?:\.(\d+))?")


def find_wheel(library: str, toolkits: Sequence[ToolkitRelease], cuda: str | None) -> str | None:
    """Return the requirement of the wheel with a library, by its soname, or None if NVIDIA has no such wheel.

    For libcudart.so.13 it is "nvidia-cuda-runtime==13.*". `cuda` is the CUDA major version that decides if
    wheels of several have the soname.
    """
    match = _LIBRARY.match(library)
    if not match:
        return None
    stem, major = match[1].lower(), match[2]
    same: dict[str, str] = {}
    others: dict[str, str] = {}
    for release in toolkits:
        toolkit = release.version.partition(".")[0]
        for part in release.parts:
            name, number = _find_part(part, stem)
            if name and (major is None or number == major):
                same.setdefault(toolkit, f"{name}=={number}.*")
            elif name:
                others.setdefault(toolkit, name)
    if same:
        return same.get(cuda or "") or same[max(same, key=int)]
    if others:  # its soname does not count with its wheel: libcufile.so.0
        return others.get(cuda or "") or others[max(others, key=int)]
    return _name_other_wheel(
        library, cuda or max((r.version.partition(".")[0] for r in toolkits), default=None)
    )


def _find_part(part: str, stem: str) -> tuple[str | None, str | None]:
    """Return the wheel of a part of the toolkit, and its major version, if the part has the library."""
    extra, *requirements = part.split(" ")
    if not stem.startswith(extra) or stem.startswith("cusparselt"):
        return None, None
    row = next((r for r in requirements if extra in _get_name(r)), requirements[0])
    number = re.search(r"(?:==|>=)(\d+)", row)
    return _get_name(row), number[1] if number else None


def _get_name(requirement: str) -> str:
    return re.split(r"[<>=!~]", requirement, maxsplit=1)[0]


def _name_other_wheel(library: str, cuda: str | None) -> str | None:
    """Return the wheel of cuDNN, NCCL and others, which have the CUDA major version in their names."""
    wheel = name_nvidia_wheel(library)
    if wheel is None or re.search(r"-cu\d+$", wheel) or cuda is None:
        return wheel
    return f"{wheel}-cu{cuda}"


def find_cuda_major(libraries: Sequence[str] | frozenset[str]) -> str | None:
    """Return the CUDA major version in the sonames of libraries, or None if they show none or several."""
    known = re.compile(r"lib(?:cudart|cublas|cublasLt|nvrtc|nvJitLink|cupti)\.so\.(\d+)")
    majors = {m[1] for n in libraries if (m := known.match(n))}
    return majors.pop() if len(majors) == 1 else None
