"""Measures TensorFlow on the default index: build_info.py, and the requirements of and-cuda."""

from __future__ import annotations

import ast
import re
import zipfile
from collections.abc import Sequence
from typing import Any

from packaging.version import Version

from provision.index.bounded_archive import read_member
from provision.index.read_architectures_from_stream import (
    ELF,
    PTX,
    capability,
    kernels,
    read_fatbins,
    read_nvidia_folders,
)
from provision.index.remote_wheels import member

from . import evaluate_wheel_requirements as rq
from .cached_wheel_facts import Documents, Reader, WheelFile, pythons, representative, row_of

OLDEST = "2.4"
LIBRARY = r"tensorflow/(libtensorflow_cc\.so\.2|python/_pywrap_tensorflow_internal\.(so|pyd))"
DEEP = 1024 << 20


def measure(wheel: zipfile.ZipFile) -> dict[str, Any]:
    """Return CUDA, cuDNN major version and kernels from build_info.py. A wheel without it is a CPU shim.

    Raise ValueError if build_info is incomplete, or does not match the library.
    """
    name = member(wheel, r"tensorflow/python/platform/build_info\.py")
    if not name:
        return {"cuda": None, "cudnn": None, "kernels": ""}
    match = re.search(r"OrderedDict\((\[.*\])\)", read_member(wheel, name, "the wheel").decode())
    if not match:
        raise ValueError(f"{name} has no build_info")
    info = dict(ast.literal_eval(match[1]))
    if not info["is_cuda_build"]:
        return {"cuda": None, "cudnn": None, "kernels": ""}
    if "cuda_version" not in info or "cuda_compute_capabilities" not in info:
        raise ValueError("build_info describes a CUDA build, but does not state its CUDA version and GPUs")
    _confirm(wheel, info["cuda_compute_capabilities"])
    return {
        "cuda": _parse_cuda(info["cuda_version"]),
        "cudnn": info["cudnn_version"].rpartition("_")[2],
        "kernels": _list_kernels(info["cuda_compute_capabilities"]),
    }


def _confirm(wheel: zipfile.ZipFile, words: list[str]) -> None:
    """Raise ValueError unless TensorFlow's library contains all architectures that build_info names.

    It must have machine code for each sm_XY and PTX for each compute_XY. It is read until all were found.
    """
    wanted = frozenset((PTX if w.startswith("compute_") else ELF, int(w.partition("_")[2])) for w in words)
    name = member(wheel, LIBRARY)
    if not name:
        raise ValueError(
            "the wheel is marked as a CUDA build, but its CUDA library is not at the expected path"
        )
    with wheel.open(name) as file:
        seen = read_fatbins(file, enough=1 << 20, budget=DEEP, until=wanted).kinds
    if not wanted <= seen:
        missing = " ".join(
            f"{'PTX' if kind == PTX else 'code'} {arch}" for kind, arch in sorted(wanted - seen)
        )
        raise ValueError(
            f"build_info names architectures that are not in the first {DEEP >> 20} MiB of {name}: {missing}"
        )


def _parse_cuda(text: str) -> str:
    """Return the CUDA minor version: "12.5.1" is 12.5, and "64_112" of Windows is 11.2."""
    digits = text.rpartition("_")[2]
    if "." not in digits:
        return f"{digits[:-1]}.{digits[-1]}"
    return ".".join(digits.split(".")[:2])


def _list_kernels(words: list[str]) -> str:
    """Return the kernels of a build: machine code and PTX for compute_XY, machine code for sm_XY."""
    ptx = {capability(w.partition("_")[2]) for w in words if w.startswith("compute_")}
    return kernels(ptx | {capability(w.partition("_")[2]) for w in words}, ptx)


def searched(wheel: zipfile.ZipFile) -> dict[str, Any]:
    """Return the folders of the NVIDIA wheels that TensorFlow's loader searches.

    They are the RUNPATH of the library that opens CUDA's libraries by name.
    """
    name = member(wheel, r"tensorflow/libtensorflow_framework\.so\.2")
    if not name:
        return {"searched": []}
    with wheel.open(name) as file:
        return {"searched": sorted(read_nvidia_folders(file))}


def tensorflow_rows(reader: Reader, documents: Documents) -> list[dict[str, Any]]:
    """Return one row per TensorFlow release and platform of the default index.

    A release without the and-cuda extra has its cuDNN from the table `tested`.
    """
    tested = documents.get("tested", ())
    builds = reader.builds("tensorflow", OLDEST)
    facts = reader.all_facts((representative(m) for _, _, m in builds), "tensorflow", measure)
    cuda = (w for w, fact in facts.items() if fact and fact["cuda"] and w.platform.startswith("linux"))
    paths = reader.all_facts(cuda, "tensorflow-searched", searched)
    return [
        _make_row(reader, build, fact, paths.get(representative(build[2])), tested)
        for build in builds
        if (fact := facts[representative(build[2])])
    ]


def _make_row(
    reader: Reader,
    build: tuple[Version, str, list[WheelFile]],
    fact: dict[str, Any],
    paths: dict[str, Any] | None,
    tested: Sequence[dict[str, Any]],
) -> dict[str, Any]:
    version, platform, wheels = build
    minors = pythons(wheels)
    row = row_of(version, platform, wheels, fact)
    if fact["cuda"]:
        row |= {"cuda": fact["cuda"], "kernels": fact["kernels"]}
        required = rq.required(fact["requires"], platform, minors, ("and-cuda",))
        requires = sorted(rq.written(r, w, minors) for r, w in required if rq.GPU_NAMES.fullmatch(r.name))
        if requires:
            row["requires"] = requires
        if cudnn := rq.cudnn_specifier(requires) or rq.documented(
            tested, version, fact["cuda"], fact["cudnn"]
        ):
            row["cudnn"] = cudnn
        else:
            reader.problem(f"tensorflow {version}: neither a pin nor a document states its cuDNN version")
        if missing := rq.unresolvable(reader, fact["requires"], platform, minors, ("and-cuda",)):
            row["unresolvable"] = missing
    if paths and paths["searched"]:
        row["searched"] = " ".join(paths["searched"])
    return row
