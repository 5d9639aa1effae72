"""Every call that gpuenv makes to libcuda and libnvidia-ml, with its return code and answer, as JSON.

    python compare.py > calls.json          # on a machine with a driver: what the real libraries say
    python compare.py --spec calls.json     # the spec that makes the stub answer the same

The loader decides which libraries are asked, so the same program asks the stub (LD_LIBRARY_PATH) and
the real ones; tests/unit/test_driver_stub.py compares the stub with answers recorded on a real GPU. Wrong
arguments and calls before the start are made too: their codes are part of the ABI.
"""

from __future__ import annotations

import ctypes
import json
import sys
from ctypes import POINTER, byref, c_char_p, c_int, c_size_t, c_uint, c_ulonglong, c_void_p
from pathlib import Path

CALLS: list[dict[str, object]] = []
# Calls made with wrong arguments: their codes are compared, not told from.
WRONG = "wrong"


class Memory(ctypes.Structure):
    """nvmlMemory_t of nvml.h, in bytes."""

    _fields_ = (("total", c_ulonglong), ("free", c_ulonglong), ("used", c_ulonglong))


def told(call: str, code: int | None, answer: object = None, **about: object) -> int | None:
    """Keep a call; the answer counts only where the code is success."""
    CALLS.append({"call": call, **about, "code": code, "answer": answer if code == 0 else None})
    return code


def path_of(name: str) -> str | None:
    """The file that was mapped for a library."""
    maps = Path("/proc/self/maps").read_text()
    return next((line.split(None, 5)[5] for line in maps.splitlines() if f"/{name}" in line), None)


def text(library: ctypes.CDLL, name: str, code: int) -> str | None:
    """cuGetErrorName and cuGetErrorString."""
    words = c_char_p()
    if getattr(library, name)(code, byref(words)):
        return None
    return words.value.decode() if words.value else None


def ask_cuda() -> str | None:
    """libcuda: before cuInit, after it, and per device."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        told("load libcuda.so.1", None, str(error))
        return None
    number = c_int()
    told("cuDeviceGetCount", cuda.cuDeviceGetCount(byref(number)), about="before cuInit")
    told("cuDriverGetVersion", cuda.cuDriverGetVersion(byref(number)), number.value)
    for code in (0, 1, 2, 3, 34, 46, 100, 101, 201, 304, 500, 802, 803, 804, 999, 12345):
        words = [text(cuda, "cuGetErrorName", code), text(cuda, "cuGetErrorString", code)]
        told("cuGetErrorName, cuGetErrorString", 0, words, about=code)
    told("cuInit", cuda.cuInit(1), about=f"{WRONG}: flags 1")
    if told("cuInit", cuda.cuInit(0)):
        return path_of("libcuda.so")
    told("cuDeviceGetCount", cuda.cuDeviceGetCount(byref(number)), number.value)
    count, device = number.value, c_int()
    told("cuDeviceGet", cuda.cuDeviceGet(byref(device), count), about=f"{WRONG}: one past the last")
    for index in range(count):
        ask_cuda_device(cuda, index)
    ask_cuda_context(cuda)
    return path_of("libcuda.so")


def ask_cuda_device(cuda: ctypes.CDLL, index: int) -> None:
    """Name, capability, UUID, memory."""
    device, number, memory = c_int(), c_int(), c_size_t()
    name, uuid = ctypes.create_string_buffer(256), (ctypes.c_ubyte * 16)()
    told("cuDeviceGet", cuda.cuDeviceGet(byref(device), index), device.value, index=index)
    told("cuDeviceGetName", cuda.cuDeviceGetName(name, 256, device), name.value.decode(), index=index)
    for attribute in (75, 76, 20):  # capability major and minor, compute mode
        code = cuda.cuDeviceGetAttribute(byref(number), attribute, device)
        told("cuDeviceGetAttribute", code, number.value, index=index, about=attribute)
    for call in ("cuDeviceGetUuid", "cuDeviceGetUuid_v2"):
        told(call, getattr(cuda, call)(uuid, device), bytes(uuid).hex(), index=index)
    told("cuDeviceTotalMem_v2", cuda.cuDeviceTotalMem_v2(byref(memory), device), memory.value, index=index)


def ask_cuda_context(cuda: ctypes.CDLL) -> None:
    """A context on device 0: memory, a copy there and back. Amounts of free memory are not kept."""
    cuda.cuCtxSetCurrent.argtypes = [c_void_p]
    cuda.cuMemAlloc_v2.argtypes = [POINTER(c_ulonglong), c_size_t]
    cuda.cuMemFree_v2.argtypes = [c_ulonglong]
    cuda.cuMemcpyHtoD_v2.argtypes = [c_ulonglong, c_char_p, c_size_t]
    cuda.cuMemcpyDtoH_v2.argtypes = [c_char_p, c_ulonglong, c_size_t]
    context, free, total, pointer = c_void_p(), c_size_t(), c_size_t(), c_ulonglong()
    code = cuda.cuMemGetInfo_v2(byref(free), byref(total))
    told("cuMemGetInfo_v2", code, about=f"{WRONG}: no context")
    if told("cuDevicePrimaryCtxRetain", cuda.cuDevicePrimaryCtxRetain(byref(context), 0)):
        return
    told("cuCtxSetCurrent", cuda.cuCtxSetCurrent(context))
    code = cuda.cuMemGetInfo_v2(byref(free), byref(total))
    told("cuMemGetInfo_v2", code, {"free is less than total": 0 < free.value <= total.value})
    told("cuMemAlloc_v2", cuda.cuMemAlloc_v2(byref(pointer), 0), about=f"{WRONG}: 0 bytes")
    told("cuMemAlloc_v2", cuda.cuMemAlloc_v2(byref(pointer), 1 << 50), about=f"{WRONG}: 1 PiB")
    told("cuMemAlloc_v2", cuda.cuMemAlloc_v2(byref(pointer), 4096), bool(pointer.value))
    back = ctypes.create_string_buffer(8)
    told("cuMemcpyHtoD_v2", cuda.cuMemcpyHtoD_v2(pointer, b"gpuenv!", 8))
    told("cuMemcpyDtoH_v2", cuda.cuMemcpyDtoH_v2(back, pointer, 8), back.value.decode("latin-1"))
    told("cuMemFree_v2", cuda.cuMemFree_v2(pointer))
    told("cuCtxSynchronize", cuda.cuCtxSynchronize())
    told("cuDevicePrimaryCtxRelease_v2", cuda.cuDevicePrimaryCtxRelease_v2(0))


def ask_nvml() -> str | None:
    """libnvidia-ml: before nvmlInit, the system, and per device."""
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError as error:
        told("load libnvidia-ml.so.1", None, str(error))
        return None
    nvml.nvmlErrorString.restype = c_char_p
    count, buffer = c_uint(), ctypes.create_string_buffer(96)
    told("nvmlDeviceGetCount_v2", nvml.nvmlDeviceGetCount_v2(byref(count)), about="before nvmlInit")
    told("nvmlShutdown", nvml.nvmlShutdown(), about="before nvmlInit")
    for code in (0, 1, 2, 3, 4, 6, 7, 9, 12, 15, 18, 999):
        told("nvmlErrorString", 0, nvml.nvmlErrorString(code).decode(), about=code)
    if told("nvmlInitWithFlags", nvml.nvmlInitWithFlags(0)):
        return path_of("libnvidia-ml.so")
    told("nvmlSystemGetDriverVersion", nvml.nvmlSystemGetDriverVersion(buffer, 80), buffer.value.decode())
    told("nvmlSystemGetDriverVersion", nvml.nvmlSystemGetDriverVersion(buffer, 2), about=f"{WRONG}: 2 bytes")
    number = c_int()
    for call in ("nvmlSystemGetCudaDriverVersion", "nvmlSystemGetCudaDriverVersion_v2"):
        told(call, getattr(nvml, call)(byref(number)), number.value)
    told("nvmlDeviceGetCount_v2", nvml.nvmlDeviceGetCount_v2(byref(count)), count.value)
    handle = c_void_p()
    code = nvml.nvmlDeviceGetHandleByIndex_v2(count.value, byref(handle))
    told("nvmlDeviceGetHandleByIndex_v2", code, about=f"{WRONG}: one past the last")
    for index in range(count.value):
        ask_nvml_device(nvml, index)
    told("nvmlShutdown", nvml.nvmlShutdown())
    return path_of("libnvidia-ml.so")


def ask_nvml_device(nvml: ctypes.CDLL, index: int) -> None:
    """Name, UUID, capability, memory, MIG."""
    handle, part, memory = c_void_p(), c_void_p(), Memory()
    first, second = c_uint(), c_uint()
    name, uuid = ctypes.create_string_buffer(96), ctypes.create_string_buffer(96)
    if told(
        "nvmlDeviceGetHandleByIndex_v2", nvml.nvmlDeviceGetHandleByIndex_v2(index, byref(handle)), index=index
    ):
        return
    told("nvmlDeviceGetName", nvml.nvmlDeviceGetName(handle, name, 96), name.value.decode(), index=index)
    told("nvmlDeviceGetName", nvml.nvmlDeviceGetName(handle, name, 2), index=index, about=f"{WRONG}: 2 bytes")
    told("nvmlDeviceGetUUID", nvml.nvmlDeviceGetUUID(handle, uuid, 96), uuid.value.decode(), index=index)
    code = nvml.nvmlDeviceGetCudaComputeCapability(handle, byref(first), byref(second))
    told("nvmlDeviceGetCudaComputeCapability", code, [first.value, second.value], index=index)
    code = nvml.nvmlDeviceGetMemoryInfo(handle, byref(memory))
    told("nvmlDeviceGetMemoryInfo", code, {"MiB": memory.total >> 20}, index=index)
    code = nvml.nvmlDeviceGetMigMode(handle, byref(first), byref(second))
    mig = told("nvmlDeviceGetMigMode", code, [first.value, second.value], index=index) == 0 and first.value
    code = nvml.nvmlDeviceGetMaxMigDeviceCount(handle, byref(first))
    told("nvmlDeviceGetMaxMigDeviceCount", code, first.value, index=index)
    for number in range(first.value if mig else 1):
        code = nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, number, byref(part))
        told("nvmlDeviceGetMigDeviceHandleByIndex", code, index=index, about=number)
        if code == 0:
            told(
                "nvmlDeviceGetUUID", nvml.nvmlDeviceGetUUID(part, uuid, 96), uuid.value.decode(), about=number
            )


def as_spec(document: dict[str, object]) -> str:
    """The stub's spec for recorded answers of a machine whose GPUs could all be read."""
    calls = document["calls"]
    assert isinstance(calls, list)

    def answers(call: str, index: int | None = None) -> list[object]:
        return [
            c["answer"]
            for c in calls
            if c["call"] == call and c["code"] == 0 and c.get("index") in (index, None)
        ]

    lines = [
        f"driver {answers('nvmlSystemGetDriverVersion')[0]}",
        f"cuda {answers('cuDriverGetVersion')[0]}",
    ]
    for index in range(int(str(answers("nvmlDeviceGetCount_v2")[0]))):
        major, minor = answers("nvmlDeviceGetCudaComputeCapability", index)[0]  # type: ignore[misc]
        memory = answers("nvmlDeviceGetMemoryInfo", index)[0]
        lines.append(
            f"gpu name={answers('nvmlDeviceGetName', index)[0]}|cc={major}.{minor}"
            f"|memory_mib={memory['MiB']}|uuid={answers('nvmlDeviceGetUUID', index)[0]}"  # type: ignore[index]
            f"|cuda_bytes={answers('cuDeviceTotalMem_v2', index)[0]}"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    """Print the calls, or the spec for recorded ones."""
    if sys.argv[1:2] == ["--spec"]:
        sys.stdout.write(as_spec(json.loads(Path(sys.argv[2]).read_text())))
        return
    nvml = ask_nvml()  # first: NVML must not need CUDA
    cuda = ask_cuda()
    print(json.dumps({"libcuda": cuda, "libnvidia-ml": nvml, "calls": CALLS}, indent=1))


if __name__ == "__main__":
    main()
