"""Asks NVML, libcuda and nvidia-smi for the driver and the GPUs, and lists processes that use GPU memory.

NVML runs in this process, because it starts no CUDA. CUDA is started only in a child process with a deadline: cuInit can
hang, crash, and makes fork unsafe. nvidia-smi is used last, and only with --query-gpu: its header changed in driver 610.
"""

from __future__ import annotations

import ctypes
import os
import runpy
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..model import Gpu, GpuMemoryHolder, format_cuda
from ..model.values import Value
from ..system import process, trust
from ..system.probes import Record, join_sources, parse_records
from ..system.redaction import clean
from .files import (
    SMI_FIELDS,
    exists,
    join_root,
    parse_library_version,
    parse_smi_rows,
)

_PROBE = Path(__file__).resolve().parents[1] / "probes" / "gpu.py"


class Trouble(Value):
    """A GPU that could not be read: its index, the NVML code, and its text."""

    index: int
    code: int
    text: str


class DriverAnswer(Value):
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
    if sys.platform == "linux":
        try:
            ctypes.CDLL(
                "libnvidia-ml.so.1"
            )  # opened once more below; without it the module has nothing to do
        except OSError:
            return DriverAnswer(source="nvml", error="NVML: NVML Shared Library Not Found")
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
        cuda=format_cuda(number or 0),
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
    usual = [join_root(root, folder) / "nvidia-smi" for folder in TRUSTED]
    program = next(filter(exists, usual), None) or trust.find_program("nvidia-smi", environ.get("PATH"))
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


def read_holders() -> tuple[GpuMemoryHolder, ...]:
    """Return the processes that use GPU memory, the largest first; empty without a driver.

    The probe that verify starts in an environment lists them, here in this process.
    """
    holders = runpy.run_path(str(_PROBE), {"os": os})["holders"]
    return tuple(sorted((GpuMemoryHolder(**row) for row in holders()), key=lambda h: -(h.memory_mib or 0)))


PROBES = ("report", "devices", "gpu")
_STUB = 34
# Names of codes that cuGetErrorName of an old or a stub library does not know; from cuda.h (CUresult).
NAMES = {
    _STUB: "CUDA_ERROR_STUB_LIBRARY",
    46: "CUDA_ERROR_DEVICE_UNAVAILABLE",
    100: "CUDA_ERROR_NO_DEVICE",
    101: "CUDA_ERROR_INVALID_DEVICE",
    304: "CUDA_ERROR_OPERATING_SYSTEM",
    802: "CUDA_ERROR_SYSTEM_NOT_READY",
    803: "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
    804: "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE",
    999: "CUDA_ERROR_UNKNOWN",
}
_DEVICE = ("index", "name", "capability", "uuid", "memory_mib")
# Variables that hide or reorder GPUs: what the machine has does not depend on them.
HIDING = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER")

# The answer of the child if the loader finds no libcuda. Without NVML's library, a kernel module and a device file,
# the child is not started.
NOT_THERE = DriverAnswer(
    source="libcuda",
    error="libcuda: libcuda.so.1: cannot open shared object file: No such file or directory",
)


def ask_libcuda(environ: Mapping[str, str], seconds: float) -> DriverAnswer:
    """Ask libcuda in a child that is killed after `seconds`."""
    env = {k: v for k, v in environ.items() if k not in HIDING}
    env["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"  # NVML's order
    try:
        ended = process.run(
            [sys.executable, "-I", "-S", "-c", join_sources(*PROBES)], env=env, timeout=seconds,
            report="GPUENV_REPORT",
        )  # fmt: skip
    except OSError as error:
        return DriverAnswer(source="libcuda", error=f"{sys.executable} could not be started: {error}")
    end = f"did not return within {seconds:g} s" if ended.timed_out else None
    if not end and ended.returncode:
        end = (
            f"was killed by {ended.signal}"
            if ended.signal
            else f"failed: {clean(ended.stderr.strip())[-300:]}"
        )
    return parse_answer(ended.report, end, hung=ended.timed_out)


def parse_answer(report: bytes, end: str | None = None, *, hung: bool = False) -> DriverAnswer:
    """Return the answer in the report of the probe that verify runs too. `end` says how it ended, if it ended badly.

    What it knew before cuInit is in the record of that step. A failed call on a device leaves one value unknown.
    """
    records = parse_records(report)
    values: Record = next((r["values"] for r in reversed(records) if "values" in r), {})
    failed = next((r["failed"] for r in records if r["kind"] == "stage"), None)
    code, path = failed and failed["code"], values.get("libcuda")
    answer = DriverAnswer(
        source="libcuda", path=path, driver=None if code == _STUB else parse_library_version(path),
        cuda=values.get("cuda"), code=code,
        gpus=tuple(Gpu(**{k: d[k] for k in _DEVICE}) for d in values.get("devices", ())),
    )  # fmt: skip
    if failed and not answer.gpus:
        name = failed["name"] or NAMES.get(failed["code"], "unknown error")
        words = failed["text"] or f"{failed['call']} returned {code} ({name})"
        return replace(answer, error=f"libcuda: {words}")
    if end:
        begun = next((str(r["doing"]) for r in reversed(records) if r["kind"] == "begin"), "Python")
        call = begun.removeprefix("calling ")
        return replace(answer, error=f"libcuda: {call} {end}", hung=call if hung else None)
    return replace(answer, code=0)
