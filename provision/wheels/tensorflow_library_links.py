"""Links NVIDIA libraries into a folder in which TensorFlow finds them.

TensorFlow opens CUDA libraries by name. It finds those of the nvidia-* wheels through the RUNPATH of
libtensorflow_framework.so. The RUNPATH of some releases lacks folders (2.21.0: that of cuSOLVER). TensorFlow then reports
"Cannot dlopen some GPU libraries", although all are installed. A link beside a library that it finds solves this for every
program in the environment. TensorFlow's install page documents a similar remedy. All folders have the same depth, so that
$ORIGIN paths of a library remain valid behind the link.
"""

from __future__ import annotations

import re
from pathlib import Path

from ..index.read_architectures_from_stream import read_nvidia_folders

_SONAME = re.compile(r"lib[A-Za-z0-9_]+\.so\.\d+")


def link_unfound(site_packages: Path) -> tuple[str, ...]:
    """Link NVIDIA libraries of folders that TensorFlow's RUNPATH lacks into a folder that it has. Raises OSError.

    Returns the names of the links. There are none without TensorFlow or NVIDIA wheels, or if the RUNPATH has all
    folders.
    """
    framework = site_packages / "tensorflow" / "libtensorflow_framework.so.2"
    if not framework.exists():
        return ()
    with framework.open("rb") as stream:
        named = read_nvidia_folders(stream)
    wheels = sorted(p for p in (site_packages / "nvidia").glob("*/lib") if p.is_dir())
    beside = next((p for p in wheels if p.parent.name in named), None)
    if beside is None:
        return ()
    linked = []
    for folder in wheels:
        for library in sorted(folder.iterdir()) if folder.parent.name not in named else ():
            link = beside / library.name
            if _SONAME.fullmatch(library.name) and not link.exists():
                link.symlink_to(Path("../..") / folder.parent.name / "lib" / library.name)
                linked.append(library.name)
    return tuple(linked)
