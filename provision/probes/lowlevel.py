"""Stages 1, 2 and 4 without any framework: driver, runtime, cuDNN, by ctypes alone.

One process for all three, because each CUDA context costs a quarter of a second; the stages are told
one by one, and the first that fails ends the probe. Run with -I -S; the paths of the environment's
libraries come in as arguments. `told` below is what the verdict's evidence is made of.
"""

import ctypes
import glob
import stat


class Failed(Exception):
    """A stage failed: `call` returned `code`, called `name` by the library."""

    def __init__(self, call, code=None, name=None, text=None):
        Exception.__init__(self, call)
        self.record = {"call": call, "code": code, "name": name, "text": text}


def device_files():
    """Every /dev/nvidia* and whether this process may open it; opening tells what access(2) cannot
    (a container's device cgroup), and neither control device does anything on open."""
    found = []
    for path in sorted(glob.glob("/dev/nvidia*")) + glob.glob("/dev/dxg"):
        try:
            if not stat.S_ISCHR(os.stat(path).st_mode):
                continue
            os.close(os.open(path, os.O_RDWR))
            problem = None
        except OSError as error:
            problem = error.strerror
        found.append({"path": path, "problem": problem})
    return found


def kernel_module():
    """The version of the loaded kernel module, from the driver's own file."""
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
    """Stage 1. Returns the CUDA ordinals and what is known of each device."""
    begin("driver", "reading /proc and /dev")
    told = {"kernel_module": kernel_module(), "files": device_files(), "devices": []}
    told["visible"] = os.environ.get("CUDA_VISIBLE_DEVICES")
    try:
        begin("driver", "loading libcuda.so.1")
        try:
            cuda = ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            raise Failed("dlopen libcuda.so.1", text=str(error))
        paths = mapped(r"^libcuda\.so")
        told["libcuda"] = paths[0] if paths else None
        begin("driver", "calling cuInit")
        driver_call(cuda, "cuInit", 0)
        number = ctypes.c_int()
        driver_call(cuda, "cuDriverGetVersion", ctypes.byref(number))
        told["cuda"] = "%d.%d" % (number.value // 1000, number.value % 1000 // 10)
        driver_call(cuda, "cuDeviceGetCount", ctypes.byref(number))
        for ordinal in range(number.value):
            told["devices"].append(_device(cuda, ordinal))
        if not told["devices"]:
            raise Failed("cuDeviceGetCount", 100, "CUDA_ERROR_NO_DEVICE", "no device is visible")
    except Failed as failed:
        tell("stage", stage="driver", failed=failed.record, told=told)
        return None
    tell("stage", stage="driver", failed=None, told=told)
    return cuda, told["devices"]


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
        "uuid": "GPU-" + "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:])),
        "memory_mib": total.value >> 20,
    }


def runtime_call(cudart, call, *arguments):
    code = getattr(cudart, call)(*arguments)
    if code:
        cudart.cudaGetErrorName.restype = ctypes.c_char_p
        name = cudart.cudaGetErrorName(code)
        raise Failed(call, code, name.decode() if name else None)


def runtime(paths, ordinals):
    """Stage 2. The first of `paths` is the environment's libcudart; the others are tried for it."""
    told = {"libcudart": None, "memory": [], "holders": []}
    try:
        cudart = None
        for path in paths:
            begin("runtime", "loading " + path)
            try:
                cudart = ctypes.CDLL(path)
                break
            except OSError as error:
                told["problem"] = str(error)
        if cudart is None:
            raise Failed("dlopen " + (paths[0] if paths else "libcudart"), text=told.get("problem"))
        told["libcudart"] = (mapped(r"^libcudart") or [path])[0]
        number = ctypes.c_int()
        runtime_call(cudart, "cudaRuntimeGetVersion", ctypes.byref(number))
        told["version"] = "%d.%d" % (number.value // 1000, number.value % 1000 // 10)
        begin("runtime", "calling cudaGetDeviceCount")
        runtime_call(cudart, "cudaGetDeviceCount", ctypes.byref(number))
        for ordinal in ordinals:
            begin("runtime", "making a context on device %d" % ordinal)
            told["device"] = ordinal
            runtime_call(cudart, "cudaSetDevice", ordinal)
            runtime_call(cudart, "cudaFree", None)
            free, total = ctypes.c_size_t(), ctypes.c_size_t()
            runtime_call(cudart, "cudaMemGetInfo", ctypes.byref(free), ctypes.byref(total))
            told["memory"].append(
                {"index": ordinal, "free_mib": free.value >> 20, "total_mib": total.value >> 20}
            )
    except Failed as failed:
        told["holders"] = holders()
        tell("stage", stage="runtime", failed=failed.record, told=told)
        return None
    if min(m["free_mib"] for m in told["memory"]) < ASKED["low_memory_mib"]:
        told["holders"] = holders()
    tell("stage", stage="runtime", failed=None, told=told)
    return cudart


class _Process(ctypes.Structure):
    """nvmlProcessInfo_t of nvml.h, as nvmlDeviceGetComputeRunningProcesses_v3 fills it."""

    _fields_ = [
        ("pid", ctypes.c_uint),
        ("memory", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    ]


def holders():
    """Who holds GPU memory, by NVML where there is one; in a container it names no one."""
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
        rows = (_Process * 64)()
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
    for row in found:
        try:
            with open("/proc/%d/comm" % row["pid"]) as stream:
                row["name"] = stream.read().strip()
        except OSError:
            row["name"] = None
    return found


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
    """Stage 4. cudnnCreate, one convolution whose sums are exact in any precision, cudnnDestroy."""
    told = {"libcudnn": path, "mapped": []}
    try:
        for helper in helpers:  # the libraries cuDNN opens by name, from the same environment
            begin("cudnn", "loading " + helper)
            try:
                ctypes.CDLL(helper, mode=ctypes.RTLD_GLOBAL)
            except OSError as error:
                told.setdefault("problems", []).append(str(error))
        begin("cudnn", "loading " + path)
        try:
            library = ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
        except OSError as error:
            raise Failed("dlopen " + path, text=str(error))
        library.cudnnGetVersion.restype = ctypes.c_size_t
        told["number"] = library.cudnnGetVersion()
        for ordinal in ordinals:
            told["device"] = ordinal
            runtime_call(cudart, "cudaSetDevice", ordinal)
            handle = ctypes.c_void_p()
            begin("cudnn", "calling cudnnCreate on device %d" % ordinal)
            cudnn_call(library, "cudnnCreate", ctypes.byref(handle))
            begin("cudnn", "running a convolution on device %d" % ordinal)
            wrong = _convolve(library, cudart, handle)
            if wrong:
                raise Failed("cudnnConvolutionForward", text=wrong)
            cudnn_call(library, "cudnnDestroy", handle)
    except Failed as failed:
        told["mapped"] = libraries()
        tell("stage", stage="cudnn", failed=failed.record, told=told)
        return
    told["mapped"] = libraries()
    tell("stage", stage="cudnn", failed=None, told=told)


def _expected(x, w, c, h, wd, k):
    """The same convolution (3x3, padding 1, stride 1) in Python's integers."""
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


def _convolve(library, cudart, handle):
    """Small integers: every product and sum is exact in float32 and in TF32, so equality is asked."""
    c, h, wd, k = 3, 7, 9, 4
    x = [(i * 7 + 3) % 11 - 5 for i in range(c * h * wd)]
    w = [(i * 5 + 1) % 7 - 3 for i in range(k * c * 9)]
    descriptors = [ctypes.c_void_p() for _ in range(4)]
    dx, dw, dy, dc = descriptors
    for call, descriptor in (("Tensor", dx), ("Filter", dw), ("Tensor", dy), ("Convolution", dc)):
        cudnn_call(library, "cudnnCreate%sDescriptor" % call, ctypes.byref(descriptor))
    # CUDNN_TENSOR_NCHW 0, CUDNN_DATA_FLOAT 0, CUDNN_CROSS_CORRELATION 1 of cudnn.h (8 and 9)
    cudnn_call(library, "cudnnSetTensor4dDescriptor", dx, 0, 0, 1, c, h, wd)
    cudnn_call(library, "cudnnSetFilter4dDescriptor", dw, 0, 0, k, c, 3, 3)
    cudnn_call(library, "cudnnSetTensor4dDescriptor", dy, 0, 0, 1, k, h, wd)
    cudnn_call(library, "cudnnSetConvolution2dDescriptor", dc, 1, 1, 1, 1, 1, 1, 1, 0)
    outcome = [float("nan")] * (k * h * wd)
    memory = [_put(cudart, x), _put(cudart, w), _put(cudart, outcome), ctypes.c_void_p()]
    one, zero, size = ctypes.c_float(1), ctypes.c_float(0), ctypes.c_size_t()
    # CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM 1, _IMPLICIT_GEMM 0: those that every release
    # has for every GPU that it serves; one of them may not be supported, so both are tried.
    for algorithm in (1, 0):
        try:
            cudnn_call(
                library, "cudnnGetConvolutionForwardWorkspaceSize", handle, dx, dw, dc, dy, algorithm,
                ctypes.byref(size),
            )
            if size.value:
                runtime_call(cudart, "cudaMalloc", ctypes.byref(memory[3]), size)
            cudnn_call(
                library, "cudnnConvolutionForward", handle, ctypes.byref(one), dx, memory[0], dw, memory[1],
                dc, algorithm, memory[3], size, ctypes.byref(zero), dy, memory[2],
            )
            break
        except Failed as failed:
            if "NOT_SUPPORTED" not in str(failed.record["name"]) or algorithm == 0:
                raise
    runtime_call(cudart, "cudaDeviceSynchronize")
    y = (ctypes.c_float * len(outcome))()
    runtime_call(cudart, "cudaMemcpy", y, memory[2], ctypes.c_size_t(ctypes.sizeof(y)), 2)
    for pointer in memory:
        if pointer.value:
            runtime_call(cudart, "cudaFree", pointer)
    cudnn_call(library, "cudnnDestroyConvolutionDescriptor", dc)
    cudnn_call(library, "cudnnDestroyFilterDescriptor", dw)
    cudnn_call(library, "cudnnDestroyTensorDescriptor", dx)
    cudnn_call(library, "cudnnDestroyTensorDescriptor", dy)
    for i, (got, want) in enumerate(zip(y, _expected(x, w, c, h, wd, k))):
        if got != want:
            return "element %d is %r, right is %d" % (i, got, want)
    return None


def _put(cudart, numbers):
    host = (ctypes.c_float * len(numbers))(*numbers)
    device = ctypes.c_void_p()
    size = ctypes.c_size_t(ctypes.sizeof(host))
    runtime_call(cudart, "cudaMalloc", ctypes.byref(device), size)
    runtime_call(cudart, "cudaMemcpy", device, host, size, 1)
    return device


def main():
    found = driver()
    if found is None:
        return
    ordinals = [d["index"] for d in found[1]]
    if ASKED.get("ordinal") is not None:
        if ASKED["ordinal"] not in ordinals:
            return
        ordinals = [ASKED["ordinal"]]
    if not ASKED["libcudart"]:
        return
    cudart = runtime(ASKED["libcudart"], ordinals)
    if cudart is not None and ASKED["libcudnn"]:
        cudnn(cudart, ASKED["libcudnn"], ASKED["helpers"], ordinals)


main()
finish()
