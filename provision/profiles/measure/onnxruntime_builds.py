"""Measures ONNX Runtime on the default index: onnxruntime-gpu, and onnxruntime for the CPU."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Sequence
from typing import Any

from packaging.version import Version

from provision.index.bounded_archive import read_member
from provision.index.read_architectures_from_stream import FatBinaries, from_binaries
from provision.index.remote_wheels import member

from . import evaluate_wheel_requirements as rq, interpret_library_symbols
from .cached_wheel_facts import Documents, Reader, WheelFile, nothing_more, pythons, representative, row_of
from .wheel_libraries import measure_libraries

GPU_PACKAGE = "onnxruntime-gpu"
EXTRAS = ("cuda", "cudnn")
OLDEST = "1.16"
"""The first release with code for compute capability 9.0."""
_CUDA = re.compile(r"^cuda_version ?= ?['\"](\d+\.\d+)", re.MULTILINE)


def measure(wheel: zipfile.ZipFile) -> dict[str, Any]:
    """Return CUDA release, CUDA and cuDNN majors and kernels of a GPU wheel. Up to 1.20 none states its CUDA release."""
    info = member(wheel, r"onnxruntime/capi/build_and_package_info\.py")
    match = _CUDA.search(read_member(wheel, info, "the wheel").decode()) if info else None
    libraries = measure_libraries(wheel)["libraries"].values()
    kinds = frozenset((kind, arch) for library in libraries for kind, arch in library["kernels"])
    names = {n for library in libraries for n in (*library["needed"], *library["opened"])}
    return {
        "cuda": match[1] if match else None,
        "majors": sorted(interpret_library_symbols.cuda_majors(names)),
        "cudnn": sorted(interpret_library_symbols.cudnn_majors(names)),
        "kernels": from_binaries(FatBinaries(kinds, 0, 0)),
    }


def onnxruntime_rows(reader: Reader, documents: Documents) -> list[dict[str, Any]]:
    """Return one row for each release, platform and device. Windows has no row with CUDA: its libraries have no ELF
    headers to measure."""
    gpu = [b for b in reader.builds(GPU_PACKAGE, OLDEST) if b[1].startswith("linux")]
    cpu = reader.builds("onnxruntime", OLDEST)
    built = reader.all_facts((representative(wheels) for _, _, wheels in gpu), "onnxruntime", measure)
    listed = reader.all_facts((representative(wheels) for _, _, wheels in cpu), "metadata", nothing_more)
    rows = [
        row
        for build in gpu
        if (fact := built[representative(build[2])])
        and (row := _make_gpu_row(reader, build, fact, documents))
    ]
    rows += [
        row_of(version, platform, wheels, fact)
        for version, platform, wheels in cpu
        if (fact := listed[representative(wheels)])
    ]
    return sorted(rows, key=lambda row: (Version(row["version"]), "cuda" in row), reverse=True)


def _find_documented(version: Version, fact: dict[str, Any], documents: Documents) -> dict[str, str]:
    """Return the row of the table `tested` for a release with the CUDA of its wheel, or no values.

    The CUDA is the release that the wheel states, else the major version of its libraries.
    """
    for row in documents.get("tested", ()):
        cuda = row["cuda"]
        same = cuda == fact["cuda"] if fact["cuda"] else [cuda.split(".")[0]] == fact["majors"]
        if same and f"{version}.".startswith(f"{row['version']}."):
            return row
    return {}


def _make_gpu_row(
    reader: Reader,
    build: tuple[Version, str, Sequence[WheelFile]],
    fact: dict[str, Any],
    documents: Documents,
) -> dict[str, Any] | None:
    """Return the row of a GPU wheel, or None if nothing states its CUDA release."""
    version, platform, wheels = build
    documented = _find_documented(version, fact, documents)
    cuda = fact["cuda"] or documented.get("cuda")
    if cuda is None:
        reader.problem(f"{GPU_PACKAGE} {version}: neither the wheel nor a document states its CUDA release")
        return None
    minors = pythons(wheels)
    row = row_of(version, platform, wheels, fact)
    row |= {"package": GPU_PACKAGE, "cuda": cuda, "kernels": fact["kernels"]}
    required = rq.required(fact["requires"], platform, minors, EXTRAS)
    requires = sorted(rq.written(r, where, minors) for r, where in required if rq.GPU_NAMES.fullmatch(r.name))
    if requires:
        row["requires"] = requires
    if cudnn := rq.cudnn_specifier(requires):
        row["cudnn"] = cudnn
    elif documented:
        row["cudnn"] = documented["cudnn"]
    elif len(fact["cudnn"]) == 1:
        row["cudnn"] = f"=={fact['cudnn'][0]}.*"
    else:
        reader.problem(f"{GPU_PACKAGE} {version}: neither a requirement nor a library states its cuDNN")
    if missing := rq.unresolvable(reader, fact["requires"], platform, minors, EXTRAS):
        row["unresolvable"] = missing
    return row
