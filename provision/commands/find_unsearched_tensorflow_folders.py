"""Find the folders of an environment that its TensorFlow needs and does not search.

TensorFlow opens CUDA's libraries by name when it looks for GPUs. It finds those of the nvidia-* wheels by its
RUNPATH. Releases up to 2.13 name no wheel there, 2.16.1 only the runtime's, 2.21.0 all except cuSOLVER's
(measured: the column `searched` of the profile). Libraries that `gpuenv create` links are not missing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

from ..environment.distributions import find_distribution
from ..model import Profiles
from ..resolve.pip import OPENED_BY_TENSORFLOW

_SONAME = re.compile(r"lib[A-Za-z0-9_]+\.so\.\d+(\.\d+)?")


def find_folders(
    root: Path, environ: Mapping[str, str], known: Callable[[], Profiles]
) -> tuple[str, tuple[Path, ...]]:
    """Return TensorFlow's version, and the folders that LD_LIBRARY_PATH must include.

    There are none without TensorFlow, with the system's libraries, or if TensorFlow finds everything.
    """
    for site in (p for name in ("site", "dist") for p in sorted(root.glob(f"lib/python3*/{name}-packages"))):
        tensorflow = find_distribution([site], "tensorflow")
        wheels = sorted(p for p in (site / "nvidia").glob("*/lib") if p.is_dir())
        if tensorflow is None or not wheels:
            continue
        version = tensorflow.version
        searched = _searched(site, version, known)
        there = {Path(entry).resolve() for entry in environ.get("LD_LIBRARY_PATH", "").split(":") if entry}
        found_libraries = {name for w in wheels if w.parent.name in searched for name in _libraries(w)}
        return version, tuple(
            w for w in wheels
            if w.parent.name not in searched
            and (not searched or w.parent.name in OPENED_BY_TENSORFLOW)
            and _libraries(w) - found_libraries
            and w.resolve() not in there
        )  # fmt: skip
    return "", ()


def _libraries(folder: Path) -> set[str]:
    return {p.name for p in folder.iterdir() if _SONAME.fullmatch(p.name)}


def _searched(site: Path, version: str, known: Callable[[], Profiles]) -> frozenset[str]:
    """Return the folders that the profile lists for this release. An unknown release is read from its
    library."""
    for build in known().builds:
        named = build.framework == "tensorflow" and build.version == version
        if named and build.cuda and build.platform.startswith("linux"):
            return frozenset(build.searched)
    from ..system.fatbins import read_nvidia_folders

    try:
        with (site / "tensorflow" / "libtensorflow_framework.so.2").open("rb") as library:
            return read_nvidia_folders(library)
    except OSError:
        return frozenset(OPENED_BY_TENSORFLOW)  # without this library it is not the wheel of the index
