"""The stages of a framework for ONNX Runtime, with its user's settings."""


def import_onnxruntime():
    begin("framework", "importing onnxruntime")
    import onnxruntime
    from onnxruntime.capi import build_and_package_info as build

    facts = {
        "version": onnxruntime.__version__,
        "cuda": getattr(build, "cuda_version", None) or None,
        "file": onnxruntime.__file__,
        "devices": [],
    }
    tell("framework", **facts)
    wait_for_turn()
    if ASKED["device"] != "cpu" and "CUDAExecutionProvider" in onnxruntime.get_available_providers():
        begin("framework", "creating a session of ONNX Runtime on the GPU")
        facts["preloaded"] = hasattr(onnxruntime, "preload_dlls")
        if facts["preloaded"]:
            # The CUDA provider links to CUDA and opens cuDNN without a search path of its own. Its documentation asks
            # for this call (or for `import torch` before), which takes the environment's libraries and not the system's.
            onnxruntime.preload_dlls()
        _session(onnxruntime, "conv2d Conv float32", 0, "tf32")
        facts["devices"] = _driver_devices()
        facts["cudnn"] = _cudnn_number()
        tell("framework", **facts)
    return onnxruntime


def _session(onnxruntime, model, device, dtype):
    """Create a session on the CPU (`device` -1) or on one GPU.

    ONNX Runtime falls back to the CPU without an error. Raise RuntimeError with the loader's reason then.
    """
    import base64

    data, options = base64.b64decode(ASKED["models"][model]), onnxruntime.SessionOptions()
    if device < 0:
        return onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    choices = {"device_id": str(device), "cudnn_conv_algo_search": "HEURISTIC"}
    if _has_tf32_switch(onnxruntime):
        choices["use_tf32"] = str(int(dtype == "tf32"))
    try:
        session = onnxruntime.InferenceSession(data, options, providers=[("CUDAExecutionProvider", choices)])
    except Exception as error:
        raise RuntimeError("%s%s" % (_loader_reason(onnxruntime), error)) from error
    if session.get_providers()[:1] != ["CUDAExecutionProvider"]:
        raise RuntimeError("%sthe session has no CUDAExecutionProvider" % _loader_reason(onnxruntime))
    return session


def _has_tf32_switch(onnxruntime):
    """Return whether the CUDA provider has the option use_tf32, which 1.18 added."""
    return tuple(int(part) for part in onnxruntime.__version__.split(".")[:2]) >= (1, 18)


def _loader_reason(onnxruntime):
    """Return the loader's error for the CUDA provider's library, or "" if it loads.

    ONNX Runtime writes that error only to its log.
    """
    import ctypes

    folder = os.path.join(os.path.dirname(onnxruntime.__file__), "capi")
    try:
        for name in ("shared", "cuda"):
            ctypes.CDLL(os.path.join(folder, "libonnxruntime_providers_%s.so" % name), mode=os.RTLD_NOW)
    except OSError as error:
        return "Failed to create CUDAExecutionProvider: %s. " % error
    return ""


def _cudnn_number():
    """Return the version number of the loaded cuDNN, or None if none is loaded."""
    import ctypes

    for path in mapped(r"^libcudnn\.so"):
        return int(ctypes.CDLL(path).cudnnGetVersion())
    return None


def _driver_devices():
    """Return the GPUs that this process sees, from libcuda. ONNX Runtime does not list them."""
    import ctypes

    devices = []
    list_devices("framework", ctypes.CDLL("libcuda.so.1"), devices)
    return devices


def prepare_onnxruntime(onnxruntime):
    import numpy

    kinds = {"float32": numpy.float32, "tf32": numpy.float32, "float16": numpy.float16}

    def convolve(device, name, dtype, arrays):
        """Compute the forward pass and the gradient of x. Each is the other's operator. w has no gradient."""
        case, (x, w, gy) = CASES[name], arrays
        model = "conv2d" if case is CASES["conv2d"] else name
        if model != name:
            raise Unserved("ONNX Runtime has no such choice")
        rank = len(case["size"])
        first, last, kernel = channels_first(rank)
        weight = numpy.ascontiguousarray(w.transpose(kernel)).astype(kinds[dtype])
        operators = ("ConvTranspose", "Conv") if case.get("transposed") else ("Conv", "ConvTranspose")
        results = []
        for operator, value in zip(operators, (x, gy)):
            stored = "float16" if dtype == "float16" else "float32"
            session = _session(onnxruntime, "%s %s %s" % (name, operator, stored), device, dtype)
            put = numpy.ascontiguousarray(value.transpose(first)).astype(kinds[dtype])
            (result,) = session.run(None, {"x": put, "w": weight})
            results.append(result.astype(numpy.float64).transpose(last))
        return tuple(results)

    def multiply(device, jobs):
        """Compute MatMul forward and as both gradients, and Gemm, which adds the bias, forward only."""
        results = []
        for _, dtype, arrays in jobs:
            stored = "float16" if dtype == "float16" else "float32"
            x, w, gy, *bias = (numpy.ascontiguousarray(a).astype(kinds[dtype]) for a in arrays)
            session = _session(onnxruntime, "%s %s" % ("Gemm" if bias else "MatMul", stored), device, dtype)
            inputs = [(x, w, bias[0])] if bias else [(x, w), (gy, w.T), (x.T, gy)]
            outputs = []
            for one in inputs:
                put = {name: numpy.ascontiguousarray(a) for name, a in zip(("x", "w", "b"), one)}
                outputs.append(session.run(None, put)[0].astype(numpy.float64))
            results.append(outputs)
        return results

    return {
        "convolve": convolve,
        "multiply": multiply,
        "array": round_with_numpy(kinds),
        "zeros": numpy.zeros,
        "types": lambda: _list_types(onnxruntime),
    }


def _list_types(onnxruntime):
    types = []
    for device in _driver_devices():
        if float(device["capability"]) < 8:
            types.append(["float32", "float16"])
        elif _has_tf32_switch(onnxruntime):
            types.append(["float32", "tf32", "float16"])
        else:  # older releases use TF32 without a switch
            types.append(["tf32", "float16"])
    return types
