"""cuDNN's wheels: which GPUs each still serves (its ops library), which sublibraries it has. NVIDIA's
`cuda-toolkit` package: which version of each library a CUDA release is made of."""

from __future__ import annotations

import re
import zipfile
from typing import Any

from provision.index.remote_wheels import member
from provision.index.scan_library_stream import from_binaries, read_fatbins

from . import wheel_requirements as rq
from .wheel_reader import Documents, Reader, nothing_more, number, releases, representative, yanked

OLDEST_CUDNN = "8.5"
PACKAGES = {"11": "nvidia-cudnn-cu11", "12": "nvidia-cudnn-cu12", "13": "nvidia-cudnn-cu13"}

_LIBRARY = re.compile(r"nvidia/[^/]+/(?:lib|bin)/(?:x64/|x86_64/)?(libcudnn[^/]*\.so\.\d+|cudnn[^/]*\.dll)")
_OPS = r"nvidia/.*/(libcudnn_ops(_infer)?\.so\.\d+|cudnn_ops(_infer)?64_\d+\.dll)"


def measure(wheel: zipfile.ZipFile) -> dict[str, Any]:
    """The kernels of the first whole fat binary of the ops library, and the libraries' names."""
    libraries = sorted({m[1] for n in wheel.namelist() if (m := _LIBRARY.fullmatch(n))})
    ops = member(wheel, _OPS)
    if not ops:
        if not libraries:
            raise ValueError("the wheel contains no libraries")
        raise ValueError(f"the wheel contains no libcudnn_ops library, only {' '.join(libraries)}")
    with wheel.open(ops) as file:
        found = read_fatbins(file, enough=1, budget=1 << 27)
    if not found.fatbins:
        raise ValueError(f"{ops} has no fat binary")
    return {"kernels": from_binaries(found), "libraries": libraries}


def cudnn_rows(reader: Reader, documents: Documents) -> list[dict[str, Any]]:
    """One row per cuDNN package, release and platform of the default index; the oldest drivers
    come from the `floors` table."""
    floors = {row["cuda"]: row for row in documents.get("floors", ())}
    builds = [
        (cuda, package, version, platform, mine)
        for cuda, package in PACKAGES.items()
        for version, platform, mine in reader.builds(package, OLDEST_CUDNN, package)
        if not version.is_prerelease
    ]
    facts = reader.all_facts((representative(b[4]) for b in builds), "cudnn", measure)
    rows = []
    for cuda, package, version, platform, mine in builds:
        fact = facts[representative(mine)]
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
        if tags := [w.glibc for w in mine if w.glibc]:
            row["glibc"] = min(tags, key=number)
        if yanked(tuple(mine)):
            row["yanked"] = "yes"
        floor = floors.get(cuda, {})
        row |= {k: floor[k] for k in ("driver_linux", "driver_windows") if k in floor}
        rows.append(row)
    return rows


OLDEST_TOOLKIT = "11.8"
_LINUX = "linux-x86_64"


def toolkit_rows(reader: Reader, _: Documents) -> list[dict[str, Any]]:
    """One row per toolkit release: `parts` are "extra requirement ...", as it pins them on Linux."""
    found = releases(reader.wheels("cuda-toolkit"), OLDEST_TOOLKIT)
    found = {v: w for v, w in found.items() if not v.is_prerelease and reader.takes(v, "any")}
    facts = reader.all_facts((representative(w) for w in found.values()), "metadata", nothing_more)
    rows = []
    for version in sorted(found, key=lambda v: number(str(v)), reverse=True):
        fact = facts[representative(found[version])]
        if fact:
            rows.append({"version": str(version), "parts": _parts(fact["requires"])})
    return rows


def _parts(lines: list[str]) -> list[str]:
    """Every extra but `all`, each with what it brings: a library and the libraries under it."""
    told: dict[str, list[str]] = {}
    for line in lines:
        extra = _extra(line)
        held = rq.required([line], _LINUX, ["3.12"], [extra]) if extra and extra != "all" else []
        told.setdefault(extra, []).extend(str(r) for r, _ in held if r.name.startswith("nvidia-"))
    return [" ".join([extra, *names]) for extra, names in sorted(told.items()) if names]


def _extra(line: str) -> str:
    """The extra that a Requires-Dist line is for, "" for none."""
    _, _, marker = line.partition("extra ==")
    return marker.strip().split()[0].strip("\"')") if marker else ""
