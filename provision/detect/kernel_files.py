"""Reads small files of /proc, /sys, /dev and /etc under a root, and parses the driver's text in them.

A missing or unreadable file means unknown. The CSV output of nvidia-smi is parsed here too.
"""

from __future__ import annotations

import csv
import os
import re
from dataclasses import dataclass
from pathlib import Path

from ..model import Gpu
from ..system import untrusted


def under(root: Path, path: str) -> Path:
    """Return an absolute path of the machine below `root`, which is "/" except in tests."""
    return root / path.lstrip("/")


def read_text(path: Path) -> str | None:
    """Return the stripped text of a file, or None if it is missing or unreadable."""
    try:
        return untrusted.read_text(path).strip("\0\n ")
    except OSError:
        return None


def list_entries(folder: Path) -> tuple[Path, ...]:
    """Return the paths in a folder, sorted by name; empty if it is missing or unreadable."""
    try:
        return tuple(sorted(folder.iterdir()))
    except OSError:
        return ()


def is_there(path: Path) -> bool:
    """Return whether a path exists. A path below an unreadable folder does not."""
    try:
        return path.exists()
    except OSError:
        return False


SMI_FIELDS = ("index", "name", "compute_cap", "uuid", "memory.total", "driver_version")


@dataclass(frozen=True, kw_only=True, slots=True)
class DeviceFile:
    """A device file of the driver, and whether this process may read and write it."""

    path: str
    allowed: bool
    mode: str


def parse_proc_version(text: str) -> str | None:
    """Return the kernel module's version in /proc/driver/nvidia/version.

    There are two forms: "NVIDIA UNIX x86_64 Kernel Module  535.129.03  Thu ...", and for the open modules
    "NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build ...".
    """
    match = re.search(r"Kernel Module\s+(?:for\s+\S+\s+)?(\d+(?:\.\d+)+)", text)
    return match[1] if match else None


def read_kernel_module(root: Path) -> tuple[str | None, str | None]:
    """Return (version, source) of the loaded kernel module. The source is proc or sys."""
    version = parse_proc_version(read_text(under(root, "/proc/driver/nvidia/version")) or "")
    if version:
        return version, "proc"
    version = read_text(under(root, "/sys/module/nvidia/version"))
    return (version, "sys") if version else (None, None)


def list_device_files(root: Path) -> tuple[DeviceFile, ...]:
    """Return the device files /dev/nvidia0, /dev/nvidiactl, ..., and WSL's /dev/dxg."""
    nodes = []
    for path in list_entries(under(root, "/dev")):
        if not re.fullmatch(r"nvidia(\d+|ctl|-uvm)|dxg", path.name):
            continue
        try:
            mode = f"{path.stat().st_mode & 0o7777:04o}"
        except OSError:
            mode = "unknown"
        nodes.append(
            DeviceFile(path=f"/dev/{path.name}", allowed=os.access(path, os.R_OK | os.W_OK), mode=mode)
        )
    return tuple(nodes)


def parse_library_version(path: str | None) -> str | None:
    """Return the driver version in the file name of its libraries: "libcuda.so.580.159.04"."""
    match = re.search(r"\.so\.(\d{3,}(?:\.\d+)+)$", path or "")
    return match[1] if match else None


def format_cuda_version(number: int) -> str | None:
    """Return CUDA's number as text: 13000 is "13.0", and 0 (no answer) is None."""
    return f"{number // 1000}.{number % 1000 // 10}" if number > 0 else None


def parse_smi_rows(text: str, fields: tuple[str, ...] = SMI_FIELDS) -> tuple[tuple[Gpu, ...], str | None]:
    """Return (GPUs, driver version) from `nvidia-smi --query-gpu=... --format=csv,noheader,nounits`.

    Other lines, as warnings, are skipped. Values in brackets ("[N/A]", "[Not Supported]") are unknown.
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
