"""TensorFlow's libraries where its loader looks for them.

TensorFlow opens CUDA libraries by name and finds those of the nvidia-* wheels through the RUNPATH of
libtensorflow_framework.so. Some releases leave folders out of it (2.21.0: cuSOLVER's) and then say
"Cannot dlopen some GPU libraries" though all are installed. A link beside a library that is found
makes the others found too, for every program that uses the environment; the documented remedy of
TensorFlow's install page is of the same kind. The folders are as deep as each other, so that a
library's own $ORIGIN paths hold behind the link.
"""

from __future__ import annotations

import re
from pathlib import Path

from ..index.runpath import nvidia_folders

_SONAME = re.compile(r"lib[A-Za-z0-9_]+\.so\.\d+")


def link_unfound(site_packages: Path) -> tuple[str, ...]:
    """Link every NVIDIA library that TensorFlow's RUNPATH leaves out into a folder that it names;
    the names that were linked. Nothing is done without TensorFlow, without NVIDIA wheels, or where
    all folders are named. Raises OSError."""
    framework = site_packages / "tensorflow" / "libtensorflow_framework.so.2"
    if not framework.exists():
        return ()
    with framework.open("rb") as stream:
        found = nvidia_folders(stream)
    wheels = sorted(p for p in (site_packages / "nvidia").glob("*/lib") if p.is_dir())
    beside = next((p for p in wheels if p.parent.name in found), None)
    if beside is None:
        return ()
    linked = []
    for folder in wheels:
        for library in sorted(folder.iterdir()) if folder.parent.name not in found else ():
            link = beside / library.name
            if _SONAME.fullmatch(library.name) and not link.exists():
                link.symlink_to(Path("../..") / folder.parent.name / "lib" / library.name)
                linked.append(library.name)
    return tuple(linked)
