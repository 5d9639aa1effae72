"""The driver and the GPUs through libcuda, in a child process with a deadline.

CUDA is never started in gpuenv's own process: cuInit can hang, crash, and makes fork unsafe.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from ..model import Gpu
from ..system import process
from ..system.redaction import clean
from .kernel_files import format_cuda_version, parse_library_version
from .nvml_and_smi import DriverAnswer

# Each step is reported when it is done. After a hang or a crash, the step after the last reported one is the
# culprit. Output of libraries goes to stderr.
PROGRAM = r"""
import ctypes, json, os, sys
out = os.dup(1)
os.dup2(2, 1)
def tell(step, **facts):
    facts["step"] = step
    os.write(out, (json.dumps(facts) + "\n").encode())
try:
    cuda = ctypes.CDLL("nvcuda.dll" if os.name == "nt" else "libcuda.so.1")
except OSError as error:
    tell("load", error=str(error))
    sys.exit()
path = None
if os.path.exists("/proc/self/maps"):
    with open("/proc/self/maps") as maps:
        found = [line.split(None, 5)[5].strip() for line in maps if "/libcuda.so" in line]
        path = found[0] if found else None
tell("load", path=path)
def name(code):
    text = ctypes.c_char_p()
    if not hasattr(cuda, "cuGetErrorName") or cuda.cuGetErrorName(code, ctypes.byref(text)):
        return None
    return text.value.decode() if text.value else None
number = ctypes.c_int()
code = cuda.cuDriverGetVersion(ctypes.byref(number))
tell("cuDriverGetVersion", code=code, name=name(code), value=number.value)
code = cuda.cuInit(0)
tell("cuInit", code=code, name=name(code))
if code:
    sys.exit()
count = ctypes.c_int()
code = cuda.cuDeviceGetCount(ctypes.byref(count))
tell("cuDeviceGetCount", code=code, name=name(code), value=count.value)
get_uuid = getattr(cuda, "cuDeviceGetUuid_v2", None) or cuda.cuDeviceGetUuid
for index in range(count.value):
    device, major, minor = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    board, uuid = ctypes.create_string_buffer(256), (ctypes.c_ubyte * 16)()
    memory = ctypes.c_size_t()
    codes = [
        cuda.cuDeviceGet(ctypes.byref(device), index),
        cuda.cuDeviceGetName(board, 256, device),
        cuda.cuDeviceGetAttribute(ctypes.byref(major), 75, device),
        cuda.cuDeviceGetAttribute(ctypes.byref(minor), 76, device),
        get_uuid(uuid, device),
        cuda.cuDeviceTotalMem_v2(ctypes.byref(memory), device),
    ]
    tell("device", index=index, codes=codes, board=board.value.decode("utf-8", "replace"),
         capability=[major.value, minor.value], uuid=bytes(uuid).hex(), bytes=memory.value)
"""
STUB = 34
STEPS = ("load", "cuDriverGetVersion", "cuInit", "cuDeviceGetCount", "device")
# Names of codes that cuGetErrorName of an old or a stub library does not know; from cuda.h (CUresult).
NAMES = {
    STUB: "CUDA_ERROR_STUB_LIBRARY",
    46: "CUDA_ERROR_DEVICE_UNAVAILABLE",
    100: "CUDA_ERROR_NO_DEVICE",
    101: "CUDA_ERROR_INVALID_DEVICE",
    304: "CUDA_ERROR_OPERATING_SYSTEM",
    802: "CUDA_ERROR_SYSTEM_NOT_READY",
    803: "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
    804: "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE",
    999: "CUDA_ERROR_UNKNOWN",
}
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
        ended = process.run([sys.executable, "-I", "-S", "-c", PROGRAM], env=env, timeout=seconds)
    except OSError as error:
        return DriverAnswer(source="libcuda", error=f"{sys.executable} could not be started: {error}")
    end = f"did not return within {seconds:g} s" if ended.timed_out else None
    if not end and ended.returncode:
        end = (
            f"was killed by {ended.signal}"
            if ended.signal
            else f"failed: {clean(ended.stderr.strip())[-300:]}"
        )
    return parse_answer(ended.stdout, end, hung=ended.timed_out)


def parse_answer(text: str, end: str | None = None, *, hung: bool = False) -> DriverAnswer:
    """Parse the lines that the child wrote. `end` says how it ended, if it ended badly."""
    facts = list(_parse_facts(text))
    steps = {fact["step"]: fact for fact in facts}
    load = steps.get("load", {})
    version = steps.get("cuDriverGetVersion", {})
    stub = STUB in (version.get("code"), steps.get("cuInit", {}).get("code"))
    seen: dict[str, Any] = {
        "source": "libcuda",
        "path": load.get("path"),
        "driver": None if stub else parse_library_version(load.get("path")),
        "cuda": format_cuda_version(version.get("value", 0) if version.get("code") == 0 else 0),
        "gpus": tuple(_make_gpu(fact) for fact in facts if fact["step"] == "device"),
    }
    if "error" in load:
        return DriverAnswer(**seen, error=f"libcuda: {load['error']}")
    for step in ("cuInit", "cuDeviceGetCount"):
        code = steps.get(step, {}).get("code", 0)
        if code:
            name = steps[step].get("name") or NAMES.get(code, "unknown error")
            return DriverAnswer(**seen, code=code, error=f"libcuda: {step} returned {code} ({name})")
    if end:
        call = next((step for step in STEPS if step not in steps), STEPS[-1])
        return DriverAnswer(**seen, error=f"libcuda: {call} {end}", hung=call if hung else None)
    return DriverAnswer(**seen, code=0)


def _parse_facts(text: str) -> Iterator[dict[str, Any]]:
    """Yield the lines that are facts. The last may be cut off, and a preloaded library may print its own lines."""
    for line in text.splitlines():
        try:
            fact = json.loads(line)
        except ValueError:
            continue
        if isinstance(fact, dict) and fact.get("step") in STEPS:
            yield fact


def _make_gpu(fact: Mapping[str, Any]) -> Gpu:
    """Return the GPU of a `device` line. A value is unknown if its call failed."""
    _, board, major, minor, uuid, memory = (code == 0 for code in fact["codes"])
    digits = fact["uuid"]
    groups = (digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:])
    return Gpu(
        index=fact["index"],
        name=fact["board"] if board else None,
        capability="{}.{}".format(*fact["capability"]) if major and minor else None,
        uuid="GPU-" + "-".join(groups) if uuid else None,
        memory_mib=fact["bytes"] // 2**20 if memory else None,
    )
