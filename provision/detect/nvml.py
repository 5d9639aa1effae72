"""The driver and the GPUs through NVML: in this process, because NVML starts no CUDA."""

from __future__ import annotations

from typing import Any

from ..model import Gpu
from .answers import Answer, Trouble
from .driver_files import cuda_version


def ask_nvml() -> Answer:
    """Ask libnvidia-ml through nvidia-ml-py. A GPU that cannot be read is a trouble of its own."""
    import pynvml

    try:
        pynvml.nvmlInitWithFlags(0)
    except pynvml.NVMLError as error:
        loaded = error.value != pynvml.NVML_ERROR_LIBRARY_NOT_FOUND
        return Answer(source="nvml", code=error.value if loaded else None, error=f"NVML: {error}")
    try:
        return _read(pynvml)
    except pynvml.NVMLError as error:
        return Answer(source="nvml", code=error.value, error=f"NVML: {error}")
    finally:
        pynvml.nvmlShutdown()


def _read(nvml: Any) -> Answer:
    gpus, troubles = [], []
    for index in range(nvml.nvmlDeviceGetCount()):
        try:
            gpus.append(_gpu(nvml, index))
        except nvml.NVMLError as error:
            troubles.append(Trouble(index=index, code=error.value, text=str(error)))
    number = _or_none(nvml, nvml.nvmlSystemGetCudaDriverVersion_v2)
    return Answer(
        source="nvml",
        code=0,
        driver=nvml.nvmlSystemGetDriverVersion(),
        cuda=cuda_version(number or 0),
        gpus=tuple(gpus),
        troubles=tuple(troubles),
    )


def _gpu(nvml: Any, index: int) -> Gpu:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    capability = _or_none(nvml, nvml.nvmlDeviceGetCudaComputeCapability, handle)
    memory = _or_none(nvml, nvml.nvmlDeviceGetMemoryInfo, handle)
    return Gpu(
        index=index,
        name=_or_none(nvml, nvml.nvmlDeviceGetName, handle),
        capability="{}.{}".format(*capability) if capability else None,
        uuid=_or_none(nvml, nvml.nvmlDeviceGetUUID, handle),
        memory_mib=memory.total // 2**20 if memory else None,
        mig=_mig(nvml, handle),
    )


def _mig(nvml: Any, handle: Any) -> tuple[str, ...]:
    """The UUIDs of the MIG devices, in NVML's order; positions may be empty."""
    mode = _or_none(nvml, nvml.nvmlDeviceGetMigMode, handle)
    if not mode or mode[0] != nvml.NVML_DEVICE_MIG_ENABLE:
        return ()
    uuids = []
    for index in range(_or_none(nvml, nvml.nvmlDeviceGetMaxMigDeviceCount, handle) or 0):
        part = _or_none(nvml, nvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, index)
        uuid = _or_none(nvml, nvml.nvmlDeviceGetUUID, part) if part else None
        if uuid:
            uuids.append(uuid)
    return tuple(uuids)


def _or_none(nvml: Any, function: Any, *arguments: Any) -> Any:
    """A value that a board or an old driver may not have: None where NVML refuses it."""
    try:
        return function(*arguments)
    except nvml.NVMLError:
        return None
