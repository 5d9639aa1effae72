"""TensorFlow on the default index: build_info.py says what it was built with, and-cuda what it takes."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Any

from provision import model
from provision.index.kernels import capability, kernels
from provision.index.wheels import member

from . import requirements as rq
from .reader import Reader, WheelFile, number, pythons, releases, representative, yanked

if TYPE_CHECKING:
    import zipfile

    from packaging.version import Version

OLDEST = "2.4"


def measure(wheel: zipfile.ZipFile) -> dict[str, Any]:
    """CUDA, cuDNN major and kernels from build_info.py; a wheel without one is a CPU shim."""
    name = member(wheel, r"tensorflow/python/platform/build_info\.py")
    if not name:
        return {"cuda": None, "cudnn": None, "kernels": ""}
    found = re.search(r"OrderedDict\((\[.*\])\)", wheel.read(name).decode())
    if not found:
        raise ValueError(f"{name} has no build_info")
    info = dict(ast.literal_eval(found[1]))
    if not info["is_cuda_build"]:
        return {"cuda": None, "cudnn": None, "kernels": ""}
    if "cuda_version" not in info or "cuda_compute_capabilities" not in info:
        raise ValueError("build_info says a CUDA build, but not of which CUDA and for which GPUs")
    return {
        "cuda": _cuda(info["cuda_version"]),
        "cudnn": info["cudnn_version"].rpartition("_")[2],
        "kernels": _kernels(info["cuda_compute_capabilities"]),
    }


def _cuda(text: str) -> str:
    """ "12.5.1" is 12.5, and Windows' "64_112" is 11.2."""
    digits = text.rpartition("_")[2]
    if "." not in digits:
        return f"{digits[:-1]}.{digits[-1]}"
    return ".".join(digits.split(".")[:2])


def _kernels(words: list[str]) -> str:
    """TensorFlow's build rule makes machine code and PTX for a compute_XY, machine code for sm_XY."""
    ptx = {capability(w.partition("_")[2]) for w in words if w.startswith("compute_")}
    return kernels(ptx | {capability(w.partition("_")[2]) for w in words}, ptx)


def tensorflow_rows(reader: Reader) -> list[dict[str, Any]]:
    """One row per TensorFlow release and platform of the default index."""
    builds = [
        (version, platform, mine)
        for version, wheels in releases(reader.wheels("tensorflow"), OLDEST).items()
        for platform in model.PLATFORMS
        if (mine := [w for w in wheels if w.platform == platform])
    ]
    facts = reader.all_facts((representative(m) for _, _, m in builds), "tensorflow", measure)
    return [
        _row(reader, version, platform, mine, fact)
        for version, platform, mine in builds
        if (fact := facts[representative(mine)])
    ]


def _row(
    reader: Reader, version: Version, platform: str, wheels: list[WheelFile], fact: dict[str, Any]
) -> dict[str, Any]:
    minors = pythons(wheels)
    row: dict[str, Any] = {
        "version": str(version),
        "platform": platform,
        "index": "pypi",
        "python": " ".join(minors),
        "sha256": fact["sha256"],
        "bytes": str(fact["bytes"]),
    }
    if tags := [w.glibc for w in wheels if w.glibc]:
        row["glibc"] = max(tags, key=number)
    if fact["cuda"]:
        row |= {"cuda": fact["cuda"], "kernels": fact["kernels"]}
        held = rq.required(fact["requires"], platform, minors, ("and-cuda",))
        requires = sorted(rq.written(r, w, minors) for r, w in held if rq.GPU_NAMES.fullmatch(r.name))
        if requires:
            row["requires"] = requires
        major = int(fact["cudnn"])
        row["cudnn"] = rq.cudnn_specifier(requires) or f">={major},<{major + 1}"
        if missing := unresolvable(reader, held, platform, minors):
            row["unresolvable"] = missing
    if yanked(tuple(wheels)):
        row["yanked"] = "yes"
    return row


def unresolvable(reader: Reader, held: list[Any], platform: str, minors: tuple[str, ...]) -> list[str]:
    """The Pythons for which a pinned GPU requirement has no wheel on the index, and which it is."""
    out = []
    for python in minors:
        for requirement, where in held:
            if python not in where or not rq.GPU_NAMES.fullmatch(requirement.name):
                continue
            fitting = [
                w
                for w in reader.wheels(requirement.name)
                if w.platform in (platform, "any")
                and w.python in (None, python)
                and rq.allows(requirement.specifier, str(w.version))
            ]
            if not fitting:
                out.append(f"{python}: {requirement.name}{requirement.specifier} has no wheel for it")
                break
    return out
