"""cuDNN's wheels: which GPUs each still serves (its ops library), which sublibraries it has."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from provision import model
from provision.index.kernels import from_found, read_fatbins
from provision.index.wheels import member

from .reader import Documents, Reader, number, releases, representative, yanked

if TYPE_CHECKING:
    import zipfile

OLDEST = "8.5"
PACKAGES = {"11": "nvidia-cudnn-cu11", "12": "nvidia-cudnn-cu12", "13": "nvidia-cudnn-cu13"}

_LIBRARY = re.compile(r"nvidia/[^/]+/(?:lib|bin)/(?:x64/|x86_64/)?(libcudnn[^/]*\.so\.\d+|cudnn[^/]*\.dll)")
_OPS = r"nvidia/.*/(libcudnn_ops(_infer)?\.so\.\d+|cudnn_ops(_infer)?64_\d+\.dll)"


def measure(wheel: zipfile.ZipFile) -> dict[str, Any]:
    """The kernels of the first whole fat binary of the ops library, and the libraries' names."""
    libraries = sorted({m[1] for n in wheel.namelist() if (m := _LIBRARY.fullmatch(n))})
    ops = member(wheel, _OPS)
    if not ops:
        raise ValueError(f"no ops library among {' '.join(libraries) or 'no libraries'}")
    with wheel.open(ops) as file:
        found = read_fatbins(file, enough=1, budget=1 << 27)
    if not found.fatbins:
        raise ValueError(f"{ops} has no fat binary")
    return {"kernels": from_found(found), "libraries": libraries}


def cudnn_rows(reader: Reader, documents: Documents) -> list[dict[str, Any]]:
    """One row per cuDNN package, release and platform of the default index; the oldest drivers
    come from the `floors` table."""
    floors = {row["cuda"]: row for row in documents.get("floors", ())}
    builds = [
        (cuda, package, version, platform, mine)
        for cuda, package in PACKAGES.items()
        for version, wheels in releases(reader.wheels(package), OLDEST).items()
        if not version.is_prerelease
        for platform in model.PLATFORMS
        if reader.takes(version, platform) and (mine := [w for w in wheels if w.platform == platform])
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
