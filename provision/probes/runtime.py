"""Stage 2 by ctypes alone: loads the environment's libcudart, and makes a context on each device."""


def runtime_call(cudart, call, *arguments):
    code = getattr(cudart, call)(*arguments)
    if code:
        cudart.cudaGetErrorName.restype = ctypes.c_char_p
        name = cudart.cudaGetErrorName(code)
        raise Failed(call, code, name.decode() if name else None)


def _load_cudart(paths):
    """Return the first of the libraries that loads, and its path. Raise Failed if none does."""
    problem = None
    for path in paths:
        begin("runtime", "loading " + path)
        try:
            return ctypes.CDLL(path), path
        except OSError as error:
            problem = str(error)
    raise Failed("dlopen " + (paths[0] if paths else "libcudart"), text=problem)


def runtime(paths, ordinals):
    """Run stage 2. Return the library and the least free memory in MiB.

    The first of `paths` is the environment's libcudart. The others are tried if it does not load.
    """
    values = {"libcudart": None, "memory": [], "holders": []}
    try:
        cudart, path = _load_cudart(paths)
        values["libcudart"] = (mapped(r"^libcudart") or [path])[0]
        number = ctypes.c_int()
        runtime_call(cudart, "cudaRuntimeGetVersion", ctypes.byref(number))
        values["version"] = "%d.%d" % (number.value // 1000, number.value % 1000 // 10)
        begin("runtime", "calling cudaGetDeviceCount")
        runtime_call(cudart, "cudaGetDeviceCount", ctypes.byref(number))
        for ordinal in ordinals:
            begin("runtime", "making a context on device %d" % ordinal)
            values["device"] = ordinal
            runtime_call(cudart, "cudaSetDevice", ordinal)
            runtime_call(cudart, "cudaFree", None)
            free, total = ctypes.c_size_t(), ctypes.c_size_t()
            runtime_call(cudart, "cudaMemGetInfo", ctypes.byref(free), ctypes.byref(total))
            values["memory"].append(
                {"index": ordinal, "free_mib": free.value >> 20, "total_mib": total.value >> 20}
            )
    except Failed as failed:
        values["holders"] = holders()
        tell("stage", stage="runtime", failed=failed.record, values=values)
        return None, 0
    free = min(m["free_mib"] for m in values["memory"])
    if free < ASKED["low_memory_mib"]:
        values["holders"] = holders()
    tell("stage", stage="runtime", failed=None, values=values)
    return cudart, free


class _NvmlProcess(ctypes.Structure):
    """nvmlProcessInfo_t of nvml.h, as nvmlDeviceGetComputeRunningProcesses_v3 fills it."""

    _fields_ = [
        ("pid", ctypes.c_uint),
        ("memory", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    ]


def holders():
    """Return the processes that use GPU memory, by NVML.

    If NVML names none, as in a container, the processes with an open device file of a GPU are returned.
    `framework` is one that reserves nearly the whole GPU.
    """
    found = _nvml_holders() or [{"gpu": None, "pid": p, "memory_mib": None} for p in _openers()]
    for row in found:
        row["name"], row["framework"] = _who(row["pid"])
    return found


def _nvml_holders():
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
        ask = nvml.nvmlDeviceGetComputeRunningProcesses_v3
    except (OSError, AttributeError):
        return []
    if nvml.nvmlInit_v2():
        return []
    found, count = [], ctypes.c_uint()
    nvml.nvmlDeviceGetCount_v2(ctypes.byref(count))
    for index in range(count.value):
        handle, many = ctypes.c_void_p(), ctypes.c_uint(64)
        rows = (_NvmlProcess * 64)()
        if nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle)):
            continue
        if ask(handle, ctypes.byref(many), rows):
            continue
        for row in rows[: many.value]:
            if row.pid == os.getpid():
                continue
            unknown = row.memory == ctypes.c_ulonglong(-1).value
            found.append({"gpu": index, "pid": row.pid, "memory_mib": None if unknown else row.memory >> 20})
    nvml.nvmlShutdown()
    return found


def _openers():
    """Return the processes of this user (for root: of all users) with an open device file of a GPU."""
    found = set()
    for link in glob.glob("/proc/[0-9]*/fd/*"):
        try:
            path = os.readlink(link)
        except OSError:
            continue
        if path.startswith("/dev/nvidia") and path[11:].isdigit():
            found.add(int(link.split("/")[2]))
    return sorted(found - {os.getpid()})


def _who(pid):
    """Return a process's name, and the framework that it runs if that one reserves GPU memory."""
    try:
        with open("/proc/%d/comm" % pid) as stream:
            name = stream.read().strip()
    except OSError:
        return None, None
    try:
        with open("/proc/%d/maps" % pid, "rb") as stream:
            text = stream.read()
    except OSError:
        return name, None
    if b"/xla_cuda_plugin.so" in text or b"/jaxlib/" in text:
        return name, "jax"
    return name, "tensorflow" if b"libtensorflow_framework.so" in text else None
