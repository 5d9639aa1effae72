"""Stage 1 by ctypes alone: libcuda, its devices, the kernel module and the device files."""

import ctypes
import glob
import stat


class Failed(Exception):
    """A stage failed: `call` returned `code`, called `name` by the library."""

    def __init__(self, call, code=None, name=None, text=None):
        Exception.__init__(self, call)
        self.record = {"call": call, "code": code, "name": name, "text": text}


def device_files():
    """Return every /dev/nvidia* with the problem that keeps this process from opening it.

    Opening shows more than access(2), as a container's device cgroup. It changes nothing on either control
    device. A different device at the path (a sandbox binds /dev/null there) is a problem too.
    """
    found, uvm = [], _major_of("nvidia-uvm")
    for path in sorted(glob.glob("/dev/nvidia*")) + glob.glob("/dev/dxg"):
        try:
            status = os.stat(path)
            if stat.S_ISDIR(status.st_mode):
                continue
            os.close(os.open(path, os.O_RDWR))
            name = os.path.basename(path)
            numbered = name == "nvidiactl" or name[6:].isdigit()  # after "nvidia"
            right = (
                195 if numbered else uvm if name == "nvidia-uvm" else None
            )  # 195: the kernel's devices.txt
            problem = None
            if right and (not stat.S_ISCHR(status.st_mode) or os.major(status.st_rdev) != right):
                problem = "another device stands in its place"
        except OSError as error:
            problem = error.strerror
        found.append({"path": path, "problem": problem})
    return found


def _major_of(name):
    """Return the major number that the kernel gave a driver's character devices, or None."""
    try:
        with open("/proc/devices") as stream:
            rows = [line.split() for line in stream]
    except OSError:
        return None
    return next((int(r[0]) for r in rows if len(r) == 2 and r[1] == name and r[0].isdigit()), None)


def kernel_module():
    """Return the version of the loaded kernel module, from the driver's own file."""
    import re

    try:
        with open("/proc/driver/nvidia/version") as stream:
            text = stream.read()
    except OSError:
        return None
    match = re.search(r"Kernel Module(?: for \S+)?\s+(\d+\.\d+(?:\.\d+)?)", text)
    return match.group(1) if match else None


def driver_call(cuda, call, *arguments):
    code = getattr(cuda, call)(*arguments)
    if code:
        name = ctypes.c_char_p()
        if hasattr(cuda, "cuGetErrorName"):
            cuda.cuGetErrorName(code, ctypes.byref(name))
        raise Failed(call, code, name.value.decode() if name.value else None)


def driver():
    """Run stage 1. Return libcuda and the values of each device, or None."""
    begin("driver", "reading /proc and /dev")
    values = {"kernel_module": kernel_module(), "files": device_files(), "devices": []}
    values["visible"], values["mig"] = os.environ.get("CUDA_VISIBLE_DEVICES"), []
    try:
        begin("driver", "loading libcuda.so.1")
        try:
            cuda = ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            raise Failed("dlopen libcuda.so.1", text=str(error))
        paths = mapped(r"^libcuda\.so")
        values["libcuda"] = paths[0] if paths else None
        begin("driver", "calling cuInit")
        driver_call(cuda, "cuInit", 0)
        number = ctypes.c_int()
        driver_call(cuda, "cuDriverGetVersion", ctypes.byref(number))
        values["cuda"] = "%d.%d" % (number.value // 1000, number.value % 1000 // 10)
        driver_call(cuda, "cuDeviceGetCount", ctypes.byref(number))
        for ordinal in range(number.value):
            values["devices"].append(_device(cuda, ordinal))
        if not values["devices"]:
            raise Failed("cuDeviceGetCount", 100, "CUDA_ERROR_NO_DEVICE", "no device is visible")
        if any(d["uuid"].startswith("MIG-") for d in values["devices"]):
            values["mig"] = _mig_devices(values["visible"])
    except Failed as failed:
        tell("stage", stage="driver", failed=failed.record, values=values)
        return None
    tell("stage", stage="driver", failed=None, values=values)
    return cuda, values["devices"]


def _device(cuda, ordinal):
    device = ctypes.c_int()
    driver_call(cuda, "cuDeviceGet", ctypes.byref(device), ordinal)
    name = ctypes.create_string_buffer(256)
    driver_call(cuda, "cuDeviceGetName", name, 256, device)
    major, minor, mode = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, _MINOR, _COMPUTE_MODE of cuda.h
    driver_call(cuda, "cuDeviceGetAttribute", ctypes.byref(major), 75, device)
    driver_call(cuda, "cuDeviceGetAttribute", ctypes.byref(minor), 76, device)
    driver_call(cuda, "cuDeviceGetAttribute", ctypes.byref(mode), 20, device)
    uuid = (ctypes.c_ubyte * 16)()
    # the _v2 form names a MIG instance, not the card around it; drivers before R470 lack it
    call = "cuDeviceGetUuid_v2" if hasattr(cuda, "cuDeviceGetUuid_v2") else "cuDeviceGetUuid"
    driver_call(cuda, call, uuid, device)
    total = ctypes.c_size_t()
    driver_call(cuda, "cuDeviceTotalMem_v2", ctypes.byref(total), device)
    text = bytes(uuid).hex()
    return {
        "index": ordinal,
        "name": name.value.decode("utf-8", "replace"),
        "capability": "%d.%d" % (major.value, minor.value),
        "compute_mode": mode.value,
        # CUDA names a MIG device by its card and its profile: "NVIDIA H200 MIG 1g.18gb"
        "uuid": ("MIG-" if b" MIG " in name.value else "GPU-")
        + "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:])),
        "memory_mib": total.value >> 20,
    }


def _mig_devices(visible):
    """Return the UUIDs of the MIG devices that this process may use.

    These are the devices in CUDA_VISIBLE_DEVICES, or all if it is not set. CUDA shows a process only the first.
    """
    if visible is not None:
        return [entry.strip() for entry in visible.split(",") if entry.strip().startswith("MIG-")]
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return []
    if nvml.nvmlInit_v2():
        return []
    found, cards, most = [], ctypes.c_uint(), ctypes.c_uint()
    nvml.nvmlDeviceGetCount_v2(ctypes.byref(cards))
    for index in range(cards.value):
        card, part = ctypes.c_void_p(), ctypes.c_void_p()
        if nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(card)):
            continue
        if nvml.nvmlDeviceGetMaxMigDeviceCount(card, ctypes.byref(most)):
            continue
        for number in range(most.value):
            uuid = ctypes.create_string_buffer(96)
            if nvml.nvmlDeviceGetMigDeviceHandleByIndex(card, number, ctypes.byref(part)):
                continue
            if not nvml.nvmlDeviceGetUUID(part, uuid, 96):
                found.append(uuid.value.decode())
    nvml.nvmlShutdown()
    return found
