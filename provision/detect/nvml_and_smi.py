"""Asks NVML and nvidia-smi for the driver and the GPUs, and lists processes that use GPU memory.

NVML runs in this process, because it starts no CUDA. nvidia-smi is used last, and only with --query-gpu: its
header changed in driver 610. If NVML names no process, as in a container, the processes with an open device
file of a GPU are listed.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..model import Gpu, GpuMemoryHolder
from ..system import process, trust
from ..system.redaction import clean
from .kernel_files import (
    SMI_FIELDS,
    format_cuda_version,
    is_there,
    parse_smi_rows,
    under,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Trouble:
    """A GPU that could not be read: its index, the NVML code, and its text."""

    index: int
    code: int
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class DriverAnswer:
    """The answer of one source.

    `code` is the return code of the library call that failed: 0 if none failed, None if the library or program
    did not run. `error` describes the failure. `hung` is the call that did not return.
    """

    source: str
    driver: str | None = None
    cuda: str | None = None
    gpus: tuple[Gpu, ...] = ()
    code: int | None = None
    error: str | None = None
    hung: str | None = None
    path: str | None = None
    troubles: tuple[Trouble, ...] = ()

    @property
    def ok(self) -> bool:
        return self.code == 0


def ask_nvml() -> DriverAnswer:
    """Ask libnvidia-ml through nvidia-ml-py. A GPU that cannot be read becomes a Trouble."""
    import pynvml

    try:
        pynvml.nvmlInitWithFlags(0)
    except pynvml.NVMLError as error:
        loaded = error.value != pynvml.NVML_ERROR_LIBRARY_NOT_FOUND
        return DriverAnswer(source="nvml", code=error.value if loaded else None, error=f"NVML: {error}")
    try:
        return _read(pynvml)
    except pynvml.NVMLError as error:
        return DriverAnswer(source="nvml", code=error.value, error=f"NVML: {error}")
    finally:
        pynvml.nvmlShutdown()


def _read(nvml: Any) -> DriverAnswer:
    gpus, troubles = [], []
    for index in range(nvml.nvmlDeviceGetCount()):
        try:
            gpus.append(_read_gpu(nvml, index))
        except nvml.NVMLError as error:
            troubles.append(Trouble(index=index, code=error.value, text=str(error)))
    number = _read_or_none(nvml, nvml.nvmlSystemGetCudaDriverVersion_v2)
    return DriverAnswer(
        source="nvml",
        code=0,
        driver=nvml.nvmlSystemGetDriverVersion(),
        cuda=format_cuda_version(number or 0),
        gpus=tuple(gpus),
        troubles=tuple(troubles),
    )


def _read_gpu(nvml: Any, index: int) -> Gpu:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    capability = _read_or_none(nvml, nvml.nvmlDeviceGetCudaComputeCapability, handle)
    memory = _read_or_none(nvml, nvml.nvmlDeviceGetMemoryInfo, handle)
    return Gpu(
        index=index,
        name=_read_or_none(nvml, nvml.nvmlDeviceGetName, handle),
        capability="{}.{}".format(*capability) if capability else None,
        uuid=_read_or_none(nvml, nvml.nvmlDeviceGetUUID, handle),
        memory_mib=memory.total // 2**20 if memory else None,
        mig=_read_mig(nvml, handle),
    )


def _read_mig(nvml: Any, handle: Any) -> tuple[str, ...]:
    """Return the UUIDs of the MIG devices, in NVML's order. Positions may be empty."""
    mode = _read_or_none(nvml, nvml.nvmlDeviceGetMigMode, handle)
    if not mode or mode[0] != nvml.NVML_DEVICE_MIG_ENABLE:
        return ()
    uuids = []
    for index in range(_read_or_none(nvml, nvml.nvmlDeviceGetMaxMigDeviceCount, handle) or 0):
        part = _read_or_none(nvml, nvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, index)
        uuid = _read_or_none(nvml, nvml.nvmlDeviceGetUUID, part) if part else None
        if uuid:
            uuids.append(uuid)
    return tuple(uuids)


def _read_or_none(nvml: Any, function: Any, *arguments: Any) -> Any:
    """Return a value that a board or an old driver may not have, or None if NVML refuses it."""
    try:
        return function(*arguments)
    except nvml.NVMLError:
        return None


TRUSTED = ("/usr/bin", "/usr/lib/wsl/lib", "/usr/local/nvidia/bin")


def ask_smi(root: Path, environ: Mapping[str, str], seconds: float) -> DriverAnswer | None:
    """Ask the first nvidia-smi found. Return None if there is none."""
    if os.name == "nt":
        return None  # the same driver package contains NVML, which was read already
    usual = [under(root, folder) / "nvidia-smi" for folder in TRUSTED]
    program = next(filter(is_there, usual), None) or trust.find_program("nvidia-smi", environ.get("PATH"))
    if program is None:
        return None
    # nvidia-smi of old drivers does not know compute_cap, and then prints no value at all.
    for fields in (SMI_FIELDS, tuple(f for f in SMI_FIELDS if f != "compute_cap")):
        argv = [str(program), f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"]
        try:
            ended = process.run(argv, env=environ, timeout=seconds)
        except OSError as error:
            return DriverAnswer(source="nvidia-smi", path=str(program), error=f"nvidia-smi: {error}")
        gpus, driver = parse_smi_rows(ended.stdout, fields)
        if ended.ok and gpus:
            return DriverAnswer(source="nvidia-smi", code=0, path=str(program), gpus=gpus, driver=driver)
        if "compute_cap" not in ended.stdout + ended.stderr:
            break
    words = "did not return" if ended.timed_out else clean((ended.stdout + ended.stderr).strip())[-300:]
    return DriverAnswer(
        source="nvidia-smi", path=str(program), code=ended.returncode or None, error=f"nvidia-smi: {words}"
    )


def read_holders(root: Path = Path("/")) -> tuple[GpuMemoryHolder, ...]:
    """Return the processes that use GPU memory, the largest first; empty without a driver."""
    processes = _read_nvml_holders() or [(None, pid, None) for pid in _list_openers(root)]
    rows = [
        GpuMemoryHolder(
            pid=pid, gpu=gpu, memory_mib=mib, name=_name(root, pid), framework=_find_framework(root, pid)
        )
        for gpu, pid, mib in processes
        if pid != os.getpid()
    ]
    return tuple(sorted(rows, key=lambda h: -(h.memory_mib or 0)))


def _read_nvml_holders() -> list[tuple[int | None, int, int | None]]:
    """Return (GPU, process, MiB). The memory is None if the driver does not report it (Windows, WSL)."""
    import pynvml

    try:
        pynvml.nvmlInitWithFlags(0)
    except pynvml.NVMLError:
        return []
    try:
        return [
            (index, int(p.pid), None if p.usedGpuMemory is None else int(p.usedGpuMemory) >> 20)
            for index in range(pynvml.nvmlDeviceGetCount())
            for p in _read_running(pynvml, index)
        ]
    except pynvml.NVMLError:
        return []
    finally:
        pynvml.nvmlShutdown()


def _read_running(nvml: Any, index: int) -> list[Any]:
    try:
        return list(nvml.nvmlDeviceGetComputeRunningProcesses(nvml.nvmlDeviceGetHandleByIndex(index)))
    except nvml.NVMLError:  # one GPU may refuse while others answer
        return []


def _list_openers(root: Path) -> list[int]:
    """Return the processes of this user (for root: of all users) with an open device file of a GPU."""
    pids = set()
    # not Path.glob, which raises where a process ends meanwhile
    for link in map(Path, glob.glob(f"{root}/proc/[0-9]*/fd/*")):  # noqa: PTH207
        try:
            if re.fullmatch(r"/dev/nvidia\d+", str(link.readlink())):
                pids.add(int(link.parts[-3]))
        except OSError:
            continue
    return sorted(pids)


def _name(root: Path, pid: int) -> str | None:
    try:
        return (root / f"proc/{pid}/comm").read_text(errors="replace").strip()
    except OSError:
        return None


def _find_framework(root: Path, pid: int) -> str | None:
    """Return the framework that a process runs, if it is one that reserves nearly the whole GPU."""
    try:
        mapped = (root / f"proc/{pid}/maps").read_bytes()
    except OSError:
        return None
    if b"/xla_cuda_plugin.so" in mapped or b"/jaxlib/" in mapped:
        return "jax"
    return "tensorflow" if b"libtensorflow_framework.so" in mapped else None
