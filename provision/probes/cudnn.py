"""Stage 4 by ctypes alone: loads the environment's libcudnn and runs one small convolution.

It supports cuDNN 8 and 9.
"""


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
    """Run stage 4: cudnnCreate, one convolution with exact sums, cudnnDestroy. Return whether it succeeded.

    `helpers` are libraries of the same environment that cuDNN opens by name. cuDNN 9 finds them alone, and
    loading them takes a tenth of a second. So they are loaded for cuDNN 9 only after a failure.
    """
    values = {"libcudnn": path, "mapped": []}
    try:
        if not path.endswith(".so.9"):
            _load_all(helpers, values)
        begin("cudnn", "loading " + path)
        try:
            library = ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
        except OSError as error:
            raise Failed("dlopen " + path, text=str(error))
        library.cudnnGetVersion.restype = ctypes.c_size_t
        values["number"] = library.cudnnGetVersion()
        try:
            _try_all(library, cudart, ordinals, values)
        except Failed:
            if "helpers" in values:
                raise
            _load_all(helpers, values)
            _try_all(library, cudart, ordinals, values)
    except Failed as failed:
        values["mapped"] = libraries()
        tell("stage", stage="cudnn", failed=failed.record, values=values)
        return False
    values["mapped"] = libraries()
    tell("stage", stage="cudnn", failed=None, values=values)
    return True


def _load_all(helpers, values):
    values["helpers"] = helpers
    for helper in helpers:
        begin("cudnn", "loading " + helper)
        try:
            ctypes.CDLL(helper, mode=ctypes.RTLD_GLOBAL)
        except OSError as error:
            values.setdefault("problems", []).append(str(error))


def _try_all(library, cudart, ordinals, values):
    for ordinal in ordinals:
        values["device"] = ordinal
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
    descriptors = _create_descriptors(library, shape)
    outcome = [float("nan")] * (k * h * wd)
    memory = [_put(cudart, x), _put(cudart, w), _put(cudart, outcome), ctypes.c_void_p()]
    # CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM 1, _IMPLICIT_GEMM 0: each release has them for each GPU
    # that it serves. One of them may be unsupported, so both are tried.
    for algorithm in (1, 0):
        try:
            _run_forward(library, cudart, handle, (descriptors, memory), algorithm)
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
    for kind, descriptor in zip(reversed(_KINDS), reversed(descriptors)):
        cudnn_call(library, "cudnnDestroy%sDescriptor" % kind, descriptor)
    for i, (result, want) in enumerate(zip(y, _expected(x, w, shape))):
        if result != want:
            return "element %d is %r, right is %d" % (i, result, want)
    return None


def _create_descriptors(library, shape):
    c, h, wd, k = shape
    descriptors = [ctypes.c_void_p() for _ in _KINDS]
    for kind, descriptor in zip(_KINDS, descriptors):
        cudnn_call(library, "cudnnCreate%sDescriptor" % kind, ctypes.byref(descriptor))
    dx, dw, dy, dc = descriptors
    # CUDNN_TENSOR_NCHW 0, CUDNN_DATA_FLOAT 0, CUDNN_CROSS_CORRELATION 1 of cudnn.h (8 and 9)
    cudnn_call(library, "cudnnSetTensor4dDescriptor", dx, 0, 0, 1, c, h, wd)
    cudnn_call(library, "cudnnSetFilter4dDescriptor", dw, 0, 0, k, c, 3, 3)
    cudnn_call(library, "cudnnSetTensor4dDescriptor", dy, 0, 0, 1, k, h, wd)
    cudnn_call(library, "cudnnSetConvolution2dDescriptor", dc, 1, 1, 1, 1, 1, 1, 1, 0)
    return descriptors


def _run_forward(library, cudart, handle, arrays, algorithm):
    """Run the convolution. `arrays` are the descriptors, and the memory of x, w, y and the workspace."""
    (dx, dw, dy, dc), memory = arrays
    one, zero, size = ctypes.c_float(1), ctypes.c_float(0), ctypes.c_size_t()
    ask = "cudnnGetConvolutionForwardWorkspaceSize"
    cudnn_call(library, ask, handle, dx, dw, dc, dy, algorithm, ctypes.byref(size))
    if size.value:
        runtime_call(cudart, "cudaMalloc", ctypes.byref(memory[3]), size)
    inputs = (ctypes.byref(one), dx, memory[0], dw, memory[1], dc, algorithm, memory[3], size)
    cudnn_call(library, "cudnnConvolutionForward", handle, *inputs, ctypes.byref(zero), dy, memory[2])


def _put(cudart, numbers):
    host = (ctypes.c_float * len(numbers))(*numbers)
    device = ctypes.c_void_p()
    size = ctypes.c_size_t(ctypes.sizeof(host))
    runtime_call(cudart, "cudaMalloc", ctypes.byref(device), size)
    runtime_call(cudart, "cudaMemcpy", device, host, size, 1)
    return device
