"""Measures the GPUs and sublibraries of cuDNN's wheels, and the library versions of each CUDA toolkit.

The ops library of cuDNN shows the GPUs. NVIDIA's `cuda-toolkit` package names the versions.
"""

from __future__ import annotations

import re
import zipfile
from typing import Any

from provision.index.read_architectures_from_stream import from_binaries, read_fatbins
from provision.index.remote_wheels import member

from . import evaluate_wheel_requirements as rq
from .cached_wheel_facts import Documents, Reader, nothing_more, number, releases, representative, yanked

OLDEST_CUDNN = "8.5"
PACKAGES = {"11": "nvidia-cudnn-cu11", "12": "nvidia-cudnn-cu12", "13": "nvidia-cudnn-cu13"}

_LIBRARY = re.compile(r"nvidia/[^/]+/(?:lib|bin)/(?:x64/|x86_64/)?(libcudnn[^/]*\.so\.\d+|cudnn[^/]*\.dll)")
_OPS = r"nvidia/.*/(libcudnn_ops(_infer)?\.so\.\d+|cudnn_ops(_infer)?64_\d+\.dll)"


def measure(wheel: zipfile.ZipFile) -> dict[str, Any]:
    """Return the kernels of the first complete fat binary of libcudnn_ops, and the names of the libraries.

    Raise ValueError for a wheel without it.
    """
    libraries = sorted({m[1] for n in wheel.namelist() if (m := _LIBRARY.fullmatch(n))})
    ops = member(wheel, _OPS)
    if not ops:
        if not libraries:
            raise ValueError("the wheel contains no libraries")
        raise ValueError(f"the wheel contains no libcudnn_ops library, only {' '.join(libraries)}")
    with wheel.open(ops) as file:
        binaries = read_fatbins(file, enough=1, budget=1 << 27)
    if not binaries.fatbins:
        raise ValueError(f"{ops} has no fat binary")
    return {"kernels": from_binaries(binaries), "libraries": libraries}


def cudnn_rows(reader: Reader, documents: Documents) -> list[dict[str, Any]]:
    """Return one row per cuDNN package, release and platform. The oldest drivers come from the table `floors`."""
    floors = {row["cuda"]: row for row in documents.get("floors", ())}
    builds = [
        (cuda, package, version, platform, wheels)
        for cuda, package in PACKAGES.items()
        for version, platform, wheels in reader.builds(package, OLDEST_CUDNN, package)
        if not version.is_prerelease
    ]
    facts = reader.all_facts((representative(b[4]) for b in builds), "cudnn", measure)
    rows = []
    for cuda, package, version, platform, wheels in builds:
        fact = facts[representative(wheels)]
        if not fact:
            continue
        row = {
            "package": package,
            "version": str(version),
            "cuda": cuda,
            "platform": platform,
            "kernels": fact["kernels"],
            "libraries": fact["libraries"],
            "sha256": fact["sha256"],
            "bytes": str(fact["bytes"]),
        }
        if tags := [w.glibc for w in wheels if w.glibc]:
            row["glibc"] = min(tags, key=number)
        if yanked(tuple(wheels)):
            row["yanked"] = "yes"
        floor = floors.get(cuda, {})
        row |= {k: floor[k] for k in ("driver_linux", "driver_windows") if k in floor}
        rows.append(row)
    return rows


OLDEST_TOOLKIT = "11.8"
_LINUX = "linux-x86_64"


def toolkit_rows(reader: Reader, _: Documents) -> list[dict[str, Any]]:
    """Return one row per toolkit release: `parts` are "extra requirement ...", with its pins on Linux."""
    wheels = releases(reader.wheels("cuda-toolkit"), OLDEST_TOOLKIT)
    wheels = {v: w for v, w in wheels.items() if not v.is_prerelease and reader.takes(v, "any")}
    facts = reader.all_facts((representative(w) for w in wheels.values()), "metadata", nothing_more)
    rows = []
    for version in sorted(wheels, key=lambda v: number(str(v)), reverse=True):
        fact = facts[representative(wheels[version])]
        if fact:
            rows.append({"version": str(version), "parts": _list_parts(fact["requires"])})
    return rows


def _list_parts(lines: list[str]) -> list[str]:
    """Return every extra except `all`, each with its requirements: a library, and the libraries that it needs."""
    by_extra: dict[str, list[str]] = {}
    for line in lines:
        extra = _parse_extra(line)
        required = rq.required([line], _LINUX, ["3.12"], [extra]) if extra and extra != "all" else []
        by_extra.setdefault(extra, []).extend(str(r) for r, _ in required if r.name.startswith("nvidia-"))
    return [" ".join([extra, *names]) for extra, names in sorted(by_extra.items()) if names]


def _parse_extra(line: str) -> str:
    """Return the extra of a Requires-Dist line, or ""."""
    _, _, marker = line.partition("extra ==")
    return marker.strip().split()[0].strip("\"')") if marker else ""
