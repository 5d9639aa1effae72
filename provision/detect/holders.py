"""Who holds GPU memory at this moment: by NVML; where it names no one, as in a container, the processes that
have a GPU's device file open."""

from __future__ import annotations

import glob
import os
import re
from pathlib import Path
from typing import Any

from ..model import Holder


def read_holders(root: Path = Path("/")) -> tuple[Holder, ...]:
    """The processes, those that hold most first; empty without a driver. This process holds none."""
    found = _nvml() or [(None, pid, None) for pid in _openers(root)]
    rows = [
        Holder(pid=pid, gpu=gpu, memory_mib=mib, name=_name(root, pid), framework=_framework(root, pid))
        for gpu, pid, mib in found
        if pid != os.getpid()
    ]
    return tuple(sorted(rows, key=lambda h: -(h.memory_mib or 0)))


def _nvml() -> list[tuple[int | None, int, int | None]]:
    """(GPU, process, MiB), the memory None where the driver does not tell it (Windows, WSL)."""
    import pynvml

    try:
        pynvml.nvmlInitWithFlags(0)
    except pynvml.NVMLError:
        return []
    try:
        return [
            (index, int(p.pid), None if p.usedGpuMemory is None else int(p.usedGpuMemory) >> 20)
            for index in range(pynvml.nvmlDeviceGetCount())
            for p in _running(pynvml, index)
        ]
    except pynvml.NVMLError:
        return []
    finally:
        pynvml.nvmlShutdown()


def _running(nvml: Any, index: int) -> list[Any]:
    try:
        return list(nvml.nvmlDeviceGetComputeRunningProcesses(nvml.nvmlDeviceGetHandleByIndex(index)))
    except nvml.NVMLError:  # one GPU may refuse, and the others tell
        return []


def _openers(root: Path) -> list[int]:
    """The processes of this user (root: of all) that have a GPU's device file open."""
    found = set()
    # not Path.glob, which raises where a process ends meanwhile
    for link in map(Path, glob.glob(f"{root}/proc/[0-9]*/fd/*")):  # noqa: PTH207
        try:
            if re.fullmatch(r"/dev/nvidia\d+", str(link.readlink())):
                found.add(int(link.parts[-3]))
        except OSError:
            continue
    return sorted(found)


def _name(root: Path, pid: int) -> str | None:
    try:
        return (root / f"proc/{pid}/comm").read_text(errors="replace").strip()
    except OSError:
        return None


def _framework(root: Path, pid: int) -> str | None:
    """The framework that a process runs, where it is one that reserves nearly the whole GPU."""
    try:
        mapped = (root / f"proc/{pid}/maps").read_bytes()
    except OSError:
        return None
    if b"/xla_cuda_plugin.so" in mapped or b"/jaxlib/" in mapped:
        return "jax"
    return "tensorflow" if b"libtensorflow_framework.so" in mapped else None
