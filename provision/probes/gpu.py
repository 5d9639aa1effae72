"""The stages driver, runtime and cudnn by ctypes alone: libcuda, libcudart and libcudnn of the environment.

One process runs the three stages, because each CUDA context takes a quarter of a second. They are reported one by one,
and the first that fails ends the probe. Python runs it with -I -S. The driver needs no path of the environment, so its
stage runs while gpuenv searches the paths. They arrive on stdin.
"""

import ctypes
import glob
import signal
import stat


def put(cudart, numbers):
    """Return float32 numbers on the current device."""
    host, device = (ctypes.c_float * len(numbers))(*numbers), ctypes.c_void_p()
    size = ctypes.c_size_t(ctypes.sizeof(host))
    runtime_call(cudart, "cudaMalloc", ctypes.byref(device), size)
    runtime_call(cudart, "cudaMemcpy", device, host, size, 1)
    return device


def read_back(cudart, device, count):
    host = (ctypes.c_float * count)()
    runtime_call(cudart, "cudaDeviceSynchronize")
    runtime_call(cudart, "cudaMemcpy", host, device, ctypes.c_size_t(ctypes.sizeof(host)), 2)
    return list(host)


def open_nvml():
    """Return NVML and the handles of its GPUs, or (None, ())."""
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return None, ()
    if nvml.nvmlInit_v2():
        return None, ()
    count, handles = ctypes.c_uint(), []
    nvml.nvmlDeviceGetCount_v2(ctypes.byref(count))
    for index in range(count.value):
        handle = ctypes.c_void_p()
        if not nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle)):
            handles.append((index, handle))
    return nvml, handles


# --- libcuda, its devices, the kernel module and the device files ---------------------------------


def driver():
    """Run the stage driver. Return the values of each device, or None."""
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
        number = ctypes.c_int()
        if not cuda.cuDriverGetVersion(ctypes.byref(number)):  # answers before cuInit, which may hang
            values["cuda"] = cuda_version(number.value)
        tell("begin", stage="driver", doing="calling cuInit", values=values)
        driver_call("driver", cuda, "cuInit", 0)
        list_devices("driver", cuda, values["devices"])
        if not values["devices"]:
            raise Failed("cuDeviceGetCount", 100, "CUDA_ERROR_NO_DEVICE", "no device is visible")
        if any(d["uuid"].startswith("MIG-") for d in values["devices"]):
            values["mig"] = _mig_devices(values["visible"])
    except Failed as failed:
        tell("stage", stage="driver", failed=failed.record, values=values)
        return None
    tell("stage", stage="driver", failed=None, values=values)
    return values["devices"]


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
            # 195: the kernel's devices.txt
            right = 195 if numbered else uvm if name == "nvidia-uvm" else None
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


def _mig_devices(visible):
    """Return the UUIDs of the MIG devices that this process may use.

    These are the devices in CUDA_VISIBLE_DEVICES, or all if it is not set. CUDA shows a process only the first.
    """
    if visible is not None:
        return [entry.strip() for entry in visible.split(",") if entry.strip().startswith("MIG-")]
    (nvml, cards), found = open_nvml(), []
    for _, card in cards:
        part, most = ctypes.c_void_p(), ctypes.c_uint()
        if nvml.nvmlDeviceGetMaxMigDeviceCount(card, ctypes.byref(most)):
            continue
        for number in range(most.value):
            uuid = ctypes.create_string_buffer(96)
            if nvml.nvmlDeviceGetMigDeviceHandleByIndex(card, number, ctypes.byref(part)):
                continue
            if not nvml.nvmlDeviceGetUUID(part, uuid, 96):
                found.append(uuid.value.decode())
    return found


# --- libcudart, and a context on each device ------------------------------------------------------


def runtime(paths, ordinals):
    """Run the stage runtime. Return the library and the least free memory in MiB.

    The first of `paths` is the environment's libcudart. The others are tried if it does not load.
    """
    values = {"libcudart": None, "memory": [], "holders": [], "conditions": []}
    try:
        cudart, path = _load_cudart(paths)
        values["libcudart"] = (mapped(r"^libcudart") or [path])[0]
        number = ctypes.c_int()
        runtime_call(cudart, "cudaRuntimeGetVersion", ctypes.byref(number))
        values["version"] = cuda_version(number.value)
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
    if ASKED.get("conditions"):
        values["conditions"] = conditions()
    tell("stage", stage="runtime", failed=None, values=values)
    return cudart, free


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


# Bits of nvmlClocksEventReasons in nvml.h that slow a GPU down against its user's will
_SLOWED = {0x08: "hardware", 0x20: "heat", 0x40: "heat", 0x80: "the power supply"}


def conditions():
    """Return what NVML says of each GPU's condition. A value that it does not give is None.

    `slowed` is why the clocks are lower now, `lanes` and `most_lanes` are of the PCIe link, `remap` is whether rows of
    the memory wait for a reset.
    """
    (nvml, cards), found = open_nvml(), []

    def answers(call, card, *values):
        return hasattr(nvml, call) and not getattr(nvml, call)(card, *map(ctypes.byref, values))

    for index, card in cards:
        one = {"index": index, "slowed": None, "lanes": None, "most_lanes": None, "ecc": None, "remap": None}
        bits, lanes, most = ctypes.c_ulonglong(), ctypes.c_uint(), ctypes.c_uint()
        for name in ("ClocksEventReasons", "ClocksThrottleReasons"):  # the second is that before R535
            if one["slowed"] is None and answers("nvmlDeviceGetCurrent" + name, card, bits):
                one["slowed"] = sorted({text for bit, text in _SLOWED.items() if bits.value & bit})
        if answers("nvmlDeviceGetCurrPcieLinkWidth", card, lanes):
            if answers("nvmlDeviceGetMaxPcieLinkWidth", card, most):
                one["lanes"], one["most_lanes"] = lanes.value, most.value
        current, pending = ctypes.c_int(), ctypes.c_int()
        if answers("nvmlDeviceGetEccMode", card, current, pending):
            one["ecc"] = bool(current.value)
        rows = [ctypes.c_uint() for _ in range(4)]  # corrected, uncorrected, pending, failed
        if answers("nvmlDeviceGetRemappedRows", card, *rows):
            one["remap"] = bool(rows[2].value)
        found.append(one)
    return found


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
    (nvml, cards), found = open_nvml(), []
    if not hasattr(nvml, "nvmlDeviceGetComputeRunningProcesses_v3"):
        return []
    for index, card in cards:
        many, rows = ctypes.c_uint(64), (_NvmlProcess * 64)()
        if nvml.nvmlDeviceGetComputeRunningProcesses_v3(card, ctypes.byref(many), rows):
            continue
        for row in rows[: many.value]:
            if row.pid != os.getpid():
                unknown = row.memory == ctypes.c_ulonglong(-1).value
                amount = None if unknown else row.memory >> 20
                found.append({"gpu": index, "pid": row.pid, "memory_mib": amount})
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


# --- libcudnn (8 or 9), and one small convolution -------------------------------------------------


def cudnn_call(library, call, *arguments):
    code = getattr(library, call)(*arguments)
    if code:
        library.cudnnGetErrorString.restype = ctypes.c_char_p
        name, text = library.cudnnGetErrorString(code), None
        if hasattr(library, "cudnnGetLastErrorString"):  # cuDNN 9
            words = ctypes.create_string_buffer(2048)
            library.cudnnGetLastErrorString(words, ctypes.c_size_t(2048))
            text = words.value.decode("utf-8", "replace") or None
        raise Failed(call, code, name.decode() if name else None, text)


def cudnn(cudart, path, helpers, ordinals):
    """Run the stage cudnn: cudnnCreate, one convolution with exact sums, cudnnDestroy. Return whether it succeeded.

    `helpers` are libraries of the same environment that cuDNN opens by name. cuDNN 9 finds them alone, and
    loading them takes a tenth of a second. So they are loaded for cuDNN 9 only after a failure.
    """
    values, failure, finds_helpers = {}, None, path.endswith(".so.9")
    try:
        if not finds_helpers:
            _load_all(helpers)
        begin("cudnn", "loading " + path)
        try:
            library = ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
        except OSError as error:
            raise Failed("dlopen " + path, text=str(error))
        library.cudnnGetVersion.restype = ctypes.c_size_t
        values["number"] = library.cudnnGetVersion()
        try:
            _try_all(library, cudart, ordinals)
        except Failed:
            if not finds_helpers:
                raise
            _load_all(helpers)
            _try_all(library, cudart, ordinals)
    except Failed as failed:
        failure = failed.record
    values["mapped"] = libraries()
    tell("stage", stage="cudnn", failed=failure, values=values)
    return failure is None


def _load_all(helpers):
    for helper in helpers:
        begin("cudnn", "loading " + helper)
        try:
            ctypes.CDLL(helper, mode=ctypes.RTLD_GLOBAL)
        except OSError:
            continue  # cuDNN's own failure names what it lacks


def _try_all(library, cudart, ordinals):
    for ordinal in ordinals:
        runtime_call(cudart, "cudaSetDevice", ordinal)
        handle = ctypes.c_void_p()
        begin("cudnn", "calling cudnnCreate on device %d" % ordinal)
        cudnn_call(library, "cudnnCreate", ctypes.byref(handle))
        begin("cudnn", "running a convolution on device %d" % ordinal)
        wrong = _convolve(library, cudart, handle)
        if wrong:
            raise Failed("cudnnConvolutionForward", text=wrong)
        cudnn_call(library, "cudnnDestroy", handle)


def _expected(x, w, shape):
    """Return the same convolution (3x3, padding 1, stride 1) in Python's integers. `shape` is (c, h, width, k)."""
    c, h, wd, k = shape
    y = []
    for o in range(k):
        for i in range(h):
            for j in range(wd):
                total = 0
                for ch in range(c):
                    for a in range(3):
                        for b in range(3):
                            r, s = i + a - 1, j + b - 1
                            if 0 <= r < h and 0 <= s < wd:
                                total += x[(ch * h + r) * wd + s] * w[((o * c + ch) * 3 + a) * 3 + b]
                y.append(total)
    return y


_KINDS = ("Tensor", "Filter", "Tensor", "Convolution")  # of the descriptors of x, w, y and the convolution


def _convolve(library, cudart, handle):
    """Run a convolution of small integers. Return what is wrong, or None.

    Each product and sum is exact in float32 and in TF32, so results must be equal.
    """
    shape = c, h, wd, k = 3, 7, 9, 4
    x = [(i * 7 + 3) % 11 - 5 for i in range(c * h * wd)]
    w = [(i * 5 + 1) % 7 - 3 for i in range(k * c * 9)]
    outcome = [float("nan")] * (k * h * wd)
    descriptors = [ctypes.c_void_p() for _ in _KINDS]
    for kind, descriptor in zip(_KINDS, descriptors):
        cudnn_call(library, "cudnnCreate%sDescriptor" % kind, ctypes.byref(descriptor))
    dx, dw, dy, dc = descriptors
    # CUDNN_TENSOR_NCHW 0, CUDNN_DATA_FLOAT 0, CUDNN_CROSS_CORRELATION 1 of cudnn.h (8 and 9)
    cudnn_call(library, "cudnnSetTensor4dDescriptor", dx, 0, 0, 1, c, h, wd)
    cudnn_call(library, "cudnnSetFilter4dDescriptor", dw, 0, 0, k, c, 3, 3)
    cudnn_call(library, "cudnnSetTensor4dDescriptor", dy, 0, 0, 1, k, h, wd)
    cudnn_call(library, "cudnnSetConvolution2dDescriptor", dc, 1, 1, 1, 1, 1, 1, 1, 0)
    mx, mw, my, space = [*(put(cudart, numbers) for numbers in (x, w, outcome)), ctypes.c_void_p()]
    one, zero, size = ctypes.c_float(1), ctypes.c_float(0), ctypes.c_size_t()
    # CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM 1, _IMPLICIT_GEMM 0: each release has them for each GPU
    # that it serves. One of them may be unsupported, so both are tried.
    for algorithm in (1, 0):
        try:
            ask = "cudnnGetConvolutionForwardWorkspaceSize"
            cudnn_call(library, ask, handle, dx, dw, dc, dy, algorithm, ctypes.byref(size))
            if size.value:
                runtime_call(cudart, "cudaMalloc", ctypes.byref(space), size)
            inputs = (ctypes.byref(one), dx, mx, dw, mw, dc, algorithm, space, size)
            cudnn_call(library, "cudnnConvolutionForward", handle, *inputs, ctypes.byref(zero), dy, my)
            break
        except Failed as failed:
            if "NOT_SUPPORTED" not in str(failed.record["name"]) or algorithm == 0:
                raise
    y = read_back(cudart, my, len(outcome))
    for i, (result, want) in enumerate(zip(y, _expected(x, w, shape))):
        if result != want:
            return "element %d is %r, right is %d" % (i, result, want)
    return None


# --- the order of the stages -------------------------------------------------------------------


def stages():
    """Run the stages. Return whether this process may end slowly."""
    devices = driver()
    if devices is None:
        return False
    paths = json.loads(sys.stdin.readline() or "null")
    if paths is None:
        return False
    ASKED.update(paths)
    tell("paths")
    # In exclusive mode, or on a full GPU, what comes next needs this process to be gone.
    shared = all(d["compute_mode"] == 0 for d in devices)
    ordinals = [d["index"] for d in devices]
    if ASKED.get("ordinal") is not None:
        if ASKED["ordinal"] not in ordinals:
            return False
        ordinals = [ASKED["ordinal"]]
    if not ASKED["libcudart"]:
        return False
    cudart, free = runtime(ASKED["libcudart"], ordinals)
    if cudart is None or not ASKED["libcudnn"]:
        return False
    right = cudnn(cudart, ASKED["libcudnn"], ASKED["helpers"], ordinals)
    return right and shared and free >= ASKED["low_memory_mib"]


def main():
    """Run the stages in a child of this process.

    A process that used CUDA ends slowly, because the driver closes its context. After a complete and correct report
    nobody waits for that.
    """
    reading, writing = os.pipe()
    parent = os.getpid()
    child = os.fork()
    if child == 0:
        die_with_parent(parent)
        os.close(reading)
        if stages():
            leave_alone()
            os.write(writing, b"told")
        finish()
    os.close(writing)
    if os.read(reading, 4):
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    if os.WIFSIGNALED(status):  # a crash there is a crash here
        signal.signal(os.WTERMSIG(status), signal.SIG_DFL)
        os.kill(os.getpid(), os.WTERMSIG(status))
    os._exit(os.WEXITSTATUS(status))


if __name__ == "__main__":
    main()
