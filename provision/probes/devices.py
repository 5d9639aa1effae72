"""The GPUs of this process by libcuda alone."""

import ctypes


def driver_call(stage, cuda, call, *arguments):
    begin(stage, "calling " + call)
    code = getattr(cuda, call)(*arguments)
    if code:
        name = ctypes.c_char_p()
        if hasattr(cuda, "cuGetErrorName"):
            cuda.cuGetErrorName(code, ctypes.byref(name))
        raise Failed(call, code, name.value.decode() if name.value else None)


def list_devices(stage, cuda, devices):
    """Append the values of each device to `devices`, after cuInit.

    A value is None if its call failed. The first such failure is raised at the end.
    """
    count, failures = ctypes.c_int(), []
    driver_call(stage, cuda, "cuDeviceGetCount", ctypes.byref(count))

    def ask(call, result, *arguments):
        try:
            driver_call(stage, cuda, call, ctypes.byref(result), *arguments)
        except Failed as failed:
            failures.append(failed)
            return None
        return result

    # the _v2 form names a MIG instance, not the card around it; drivers before R470 lack it
    get_uuid = "cuDeviceGetUuid_v2" if hasattr(cuda, "cuDeviceGetUuid_v2") else "cuDeviceGetUuid"
    for ordinal in range(count.value):
        device = ctypes.c_int(-1)
        ask("cuDeviceGet", device, ordinal)
        name = ask("cuDeviceGetName", ctypes.create_string_buffer(256), 256, device)
        # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, _MINOR, _COMPUTE_MODE of cuda.h
        found = [ask("cuDeviceGetAttribute", ctypes.c_int(), number, device) for number in (75, 76, 20)]
        major, minor, mode = (None if value is None else value.value for value in found)
        uuid = (ctypes.c_ubyte * 16)()
        has_uuid = ask(get_uuid, uuid, device)
        text = bytes(uuid).hex()
        total = ask("cuDeviceTotalMem_v2", ctypes.c_size_t(), device)
        devices.append(
            {
                "index": ordinal,
                "name": name and name.value.decode("utf-8", "replace"),
                "capability": None if None in (major, minor) else "%d.%d" % (major, minor),
                "compute_mode": mode,
                # CUDA names a MIG device by its card and its profile: "NVIDIA H200 MIG 1g.18gb"
                "uuid": has_uuid
                and ("MIG-" if name and b" MIG " in name.value else "GPU-")
                + "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:])),
                "memory_mib": None if total is None else total.value >> 20,
            }
        )
    if failures:
        raise failures[0]
