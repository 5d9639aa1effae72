"""The GPUs of this process by libcuda alone."""

import ctypes


def driver_call(cuda, call, *arguments):
    code = getattr(cuda, call)(*arguments)
    if code:
        name = ctypes.c_char_p()
        if hasattr(cuda, "cuGetErrorName"):
            cuda.cuGetErrorName(code, ctypes.byref(name))
        raise Failed(call, code, name.value.decode() if name.value else None)


def list_devices(cuda):
    """Return the values of each device, after cuInit."""
    count = ctypes.c_int()
    driver_call(cuda, "cuDeviceGetCount", ctypes.byref(count))
    return [_device(cuda, ordinal) for ordinal in range(count.value)]


def _device(cuda, ordinal):
    device, name, uuid = ctypes.c_int(), ctypes.create_string_buffer(256), (ctypes.c_ubyte * 16)()
    driver_call(cuda, "cuDeviceGet", ctypes.byref(device), ordinal)
    driver_call(cuda, "cuDeviceGetName", name, 256, device)
    values = []
    # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, _MINOR, _COMPUTE_MODE of cuda.h
    for attribute in (75, 76, 20):
        value = ctypes.c_int()
        driver_call(cuda, "cuDeviceGetAttribute", ctypes.byref(value), attribute, device)
        values.append(value.value)
    # the _v2 form names a MIG instance, not the card around it; drivers before R470 lack it
    call = "cuDeviceGetUuid_v2" if hasattr(cuda, "cuDeviceGetUuid_v2") else "cuDeviceGetUuid"
    driver_call(cuda, call, uuid, device)
    total = ctypes.c_size_t()
    driver_call(cuda, "cuDeviceTotalMem_v2", ctypes.byref(total), device)
    text = bytes(uuid).hex()
    return {
        "index": ordinal,
        "name": name.value.decode("utf-8", "replace"),
        "capability": "%d.%d" % tuple(values[:2]),
        "compute_mode": values[2],
        # CUDA names a MIG device by its card and its profile: "NVIDIA H200 MIG 1g.18gb"
        "uuid": ("MIG-" if b" MIG " in name.value else "GPU-")
        + "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:])),
        "memory_mib": total.value >> 20,
    }
