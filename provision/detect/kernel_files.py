"""Small files of /proc, /sys, /dev and /etc under a root, and parsers of what the driver writes there.

Absent and unreadable mean unknown. The CSV that nvidia-smi prints is read here too."""

from __future__ import annotations

import csv
import os
import re
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from ..model import Gpu
from ..system import untrusted_files


def under(root: Path, path: str) -> Path:
    """An absolute path of the machine under `root` (a made tree in tests, else "/")."""
    return root / path.lstrip("/")


def read_text(path: Path) -> str | None:
    """The stripped text of a file, or None where it is absent or may not be read."""
    try:
        return untrusted_files.read_text(path).strip("\0\n ")
    except OSError:
        return None


def entries(folder: Path) -> tuple[Path, ...]:
    """What a directory holds, sorted by name; empty where it is absent or may not be read."""
    try:
        return tuple(sorted(folder.iterdir()))
    except OSError:
        return ()


def is_there(path: Path) -> bool:
    """Whether a path exists, a directory on the way that may not be searched meaning no."""
    try:
        return path.exists()
    except OSError:
        return False


def anybody_may_write(*paths: Path) -> bool:
    """Whether one of these, or what it links to, may be written by every user of the machine."""
    try:
        return any(path.stat().st_mode & stat.S_IWOTH for path in paths)
    except OSError:
        return True


def absolute_entries(value: str | None) -> Iterable[Path]:
    """The absolute directories of a PATH-like value; relative and empty ones are left out,
    because they mean something else in every working directory."""
    return (Path(entry) for entry in (value or "").split(os.pathsep) if Path(entry).is_absolute())


SMI_FIELDS = ("index", "name", "compute_cap", "uuid", "memory.total", "driver_version")


@dataclass(frozen=True, kw_only=True, slots=True)
class Node:
    """A device file of the driver, and whether this process may read and write it."""

    path: str
    allowed: bool
    mode: str


def proc_version(text: str) -> str | None:
    """The kernel module's version in /proc/driver/nvidia/version.

    Two forms are in the field: "NVIDIA UNIX x86_64 Kernel Module  535.129.03  Thu ..." and, for
    the open modules, "NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build ...".
    """
    found = re.search(r"Kernel Module\s+(?:for\s+\S+\s+)?(\d+(?:\.\d+)+)", text)
    return found[1] if found else None


def kernel_module(root: Path) -> tuple[str | None, str | None]:
    """(version, source) of the loaded kernel module; the source is proc or sys."""
    version = proc_version(read_text(under(root, "/proc/driver/nvidia/version")) or "")
    if version:
        return version, "proc"
    version = read_text(under(root, "/sys/module/nvidia/version"))
    return (version, "sys") if version else (None, None)


def device_nodes(root: Path) -> tuple[Node, ...]:
    """/dev/nvidia0, /dev/nvidiactl, ... and WSL's /dev/dxg."""
    nodes = []
    for path in entries(under(root, "/dev")):
        if not re.fullmatch(r"nvidia(\d+|ctl|-uvm)|dxg", path.name):
            continue
        try:
            mode = f"{path.stat().st_mode & 0o7777:04o}"
        except OSError:
            mode = "unknown"
        nodes.append(Node(path=f"/dev/{path.name}", allowed=os.access(path, os.R_OK | os.W_OK), mode=mode))
    return tuple(nodes)


def library_version(path: str | None) -> str | None:
    """The driver version in the file name of its libraries: "libcuda.so.580.159.04"."""
    found = re.search(r"\.so\.(\d{3,}(?:\.\d+)+)$", path or "")
    return found[1] if found else None


def cuda_version(number: int) -> str | None:
    """CUDA's number as people write it: 13000 is "13.0"; 0 (no answer) is None."""
    return f"{number // 1000}.{number % 1000 // 10}" if number > 0 else None


def smi_rows(text: str, fields: tuple[str, ...] = SMI_FIELDS) -> tuple[tuple[Gpu, ...], str | None]:
    """(GPUs, driver version) from `nvidia-smi --query-gpu=... --format=csv,noheader,nounits`.

    Lines that are not such rows (warnings are printed among them) are passed over. What
    nvidia-smi writes in brackets ("[N/A]", "[Not Supported]") is unknown.
    """
    gpus, driver = [], None
    for row in csv.reader(text.replace("\0", "").splitlines(), skipinitialspace=True, quoting=csv.QUOTE_NONE):
        if len(row) != len(fields) or not row[0].strip().isdecimal():
            continue
        cells = {k: v.strip() for k, v in zip(fields, row, strict=True)}
        known = {k: v for k, v in cells.items() if v and not v.startswith("[") and v != "N/A"}
        memory = known.get("memory.total", "")
        gpus.append(
            Gpu(
                index=int(cells["index"]),
                name=known.get("name"),
                capability=known.get("compute_cap"),
                uuid=known.get("uuid"),
                memory_mib=int(memory) if memory.isdecimal() else None,
            )
        )
        driver = known.get("driver_version", driver)
    return tuple(gpus), driver
