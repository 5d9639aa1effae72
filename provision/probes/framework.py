"""Ends the probe of one framework or of several: stages 5 to 7, the same for all, with graded convolutions.

The probes of the frameworks come before this one in the same text. `import_NAME()` returns the framework.
`prepare_NAME(framework)` returns four functions: `convolve`, `array` and `zeros` for `sweep`, and one that returns a
list of types for each GPU.

Arrays are channels-last: x (N, *S, Cin), w (*K, Cin/groups, Cout), y (N, *T, Cout). They are float64 on the
CPU, from NumPy or torch. The reference uses only slices, `@` and `+=`, which both have. For each offset of the
kernel, one strided view of the padded input is multiplied by one matrix. No framework computes convolutions
that way, and no framework is used.
"""

import itertools
import math
import random

PASSES = ("forward", "grad_input", "grad_weight")

# name: spatial sizes, kernel, stride, padding, channels in, channels out, groups, transposed, batch.
# Sizes are odd, the kernel is not square and the stride does not divide, so that edges are exercised;
# channels are multiples of 8, without which half precision would not use the tensor cores.
CASES = {
    "conv2d": dict(size=(29, 31), kernel=(3, 5), stride=(2, 1), padding=(1, 2), cin=16, cout=24, batch=3),
    "conv1d": dict(size=(57,), kernel=(5,), stride=(2,), padding=(2,), cin=8, cout=16, batch=3),
    "conv3d": dict(
        size=(7, 9, 11), kernel=(3, 3, 3), stride=(1, 2, 1), padding=(1, 1, 1), cin=8, cout=8, batch=2
    ),
    "conv2d_grouped": dict(
        size=(17, 19), kernel=(3, 3), stride=(1, 1), padding=(1, 1), cin=16, cout=32, batch=2, groups=4
    ),
    "conv2d_transposed": dict(
        size=(13, 15), kernel=(3, 3), stride=(2, 2), padding=(1, 1), cin=16, cout=8, batch=2, transposed=True
    ),
}

# With --deep, if a framework has them: the same inputs on other paths through cuDNN.
CASES["conv2d_channels_last"] = CASES["conv2d_autotuned"] = CASES["conv2d"]
CASES["conv2d_depthwise"] = dict(CASES["conv2d_grouped"], groups=16)

# The largest relative error by norm that a right result may have. u is half a unit in the last place.
TOLERANCES = {
    "float32": (
        1e-4,
        "u = 6e-8; sums of 10^2 to 10^4 terms and Winograd or FFT transforms lose 2 to 3 digits, TF32 (3e-4) must not pass",
    ),
    "tf32": (
        2e-3,
        "inputs rounded to 11 bits, u = 5e-4: products are off by 4e-4 by norm, sums stay in float32",
    ),
    "float16": (
        5e-3,
        "result rounded to 11 bits, u = 5e-4; partial sums of split kernels may be kept in float16",
    ),
    "bfloat16": (
        2e-2,
        "result rounded to 8 bits, u = 4e-3; partial sums of split kernels may be kept in bfloat16",
    ),
}

# One wrong element hides in a norm over 10^5, so the largest single error is compared with the root
# mean square of the result too. Rounding errors are spread like noise, of which the largest of 10^5 is
# 4 to 5 times the typical one, and the values themselves reach 5: eight is out of their reach.
PEAK = 8.0


def spatial(case):
    """Return the spatial sizes of the output."""
    pairs = zip(case["size"], case["kernel"], case["stride"], case["padding"])
    if case.get("transposed"):
        return tuple((n - 1) * s - 2 * p + k for n, k, s, p in pairs)
    return tuple((n + 2 * p - k) // s + 1 for n, k, s, p in pairs)


def shapes(case):
    """Return the shapes of x, w and of the gradient of y."""
    groups = case.get("groups", 1)
    x = (case["batch"],) + case["size"] + (case["cin"],)
    # a transposed convolution is the gradient of one that maps cout to cin, and has its weights
    io = (case["cout"], case["cin"]) if case.get("transposed") else (case["cin"] // groups, case["cout"])
    return x, case["kernel"] + io, (case["batch"],) + spatial(case) + (case["cout"],)


def numbers(name):
    """Return the inputs of a case as flat lists: uniform in [-1, 1), never zero, the same in every run."""
    source = random.Random("gpuenv " + name)
    drawn = []
    for shape in shapes(CASES[name]):
        drawn.append([(source.random() - 0.5) * 2 or 0.5 for _ in range(math.prod(shape))])
    return drawn


def _views(case, out):
    """Yield each offset of the kernel, and the slices of the padded input that it meets."""
    for offset in itertools.product(*map(range, case["kernel"])):
        steps = zip(offset, case["stride"], out)
        yield offset, (slice(None),) + tuple(slice(o, o + s * (n - 1) + 1, s) for o, s, n in steps)


def _pad(case, size, x, channels, zeros):
    """Return zeros in the shape of the padded input, and the slices of it without the padding."""
    inner = (slice(None),) + tuple(slice(p, p + n) for p, n in zip(case["padding"], size))
    return zeros((x.shape[0],) + tuple(n + 2 * p for n, p in zip(size, case["padding"])) + (channels,)), inner


def _convolve(case, size, out, x, w, zeros):
    """Correlate x with w, for one group."""
    padded, inner = _pad(case, size, x, x.shape[-1], zeros)
    padded[inner] = x
    y = zeros((x.shape[0],) + out + (w.shape[-1],))
    for offset, view in _views(case, out):
        y += padded[view] @ w[offset]
    return y


def _spread(case, size, out, gy, w, zeros):
    """Return the gradient of `_convolve` with respect to x. Each output's share returns to its inputs."""
    padded, inner = _pad(case, size, gy, w.shape[-2], zeros)
    for offset, view in _views(case, out):
        padded[view] += gy @ w[offset].T
    return padded[inner]


def _weigh(case, size, out, x, gy, zeros):
    """Return the gradient of `_convolve` with respect to w."""
    padded, inner = _pad(case, size, x, x.shape[-1], zeros)
    padded[inner] = x
    gw = zeros(case["kernel"] + (x.shape[-1], gy.shape[-1]))
    flat = gy.reshape(-1, gy.shape[-1])
    for offset, view in _views(case, out):
        gw[offset] = padded[view].reshape(-1, x.shape[-1]).T @ flat
    return gw


def reference(case, x, w, gy, zeros):
    """Return (y, gradient of x, gradient of w) in float64. `zeros(shape)` creates a float64 array."""
    size, out = case["size"], spatial(case)
    if case.get("transposed"):
        # forward is the gradient of the convolution from (out) to (size); so the roles change places
        sizes = case, out, size
        return _spread(*sizes, x, w, zeros), _convolve(*sizes, gy, w, zeros), _weigh(*sizes, gy, x, zeros)
    sizes, groups = (case, size, out), case.get("groups", 1)
    y, gx, gw = zeros(gy.shape), zeros(x.shape), zeros(w.shape)
    ci, co = case["cin"] // groups, case["cout"] // groups
    for g in range(groups):
        i, o = (Ellipsis, slice(g * ci, (g + 1) * ci)), (Ellipsis, slice(g * co, (g + 1) * co))
        y[o] = _convolve(*sizes, x[i], w[o], zeros)
        gx[i] = _spread(*sizes, gy[o], w[o], zeros)
        gw[o] = _weigh(*sizes, x[i], gy[o], zeros)
    return y, gx, gw


def error_of(result, right):
    """Return the relative error of a result, or None if it is not finite or has another shape.

    It is the larger of the error by norm and a `PEAK`th of the largest single error, both relative to the
    reference.
    """
    if tuple(result.shape) != tuple(right.shape):
        return None
    off, scale = result - right, float((right * right).sum())
    norm = math.sqrt(float((off * off).sum()) / scale)
    peak = float(abs(off).max()) / math.sqrt(scale / math.prod(right.shape))
    worst = max(norm, peak / PEAK)
    # max() can drop a NaN that is not its first argument, so both are tested
    return worst if math.isfinite(norm) and math.isfinite(peak) else None


def grade(device, name, dtype, results, right):
    """Report the error of each pass of one case."""
    tolerance = TOLERANCES[dtype][0]
    for which, result, want in zip(PASSES, results, right):
        error = error_of(result, want)
        tell(
            "convolution",
            device=device,
            case=name,
            dtype=dtype,
            which=which,
            error=error,
            tolerance=tolerance,
            reason=TOLERANCES[dtype][1],
            ok=error is not None and error <= tolerance,
        )


def sweep(device, dtypes, convolve, array, zeros):
    """Grade every requested case on one device.

    `array(flat, shape, dtype)` returns a float64 array of numbers that `dtype` can represent exactly. So only
    the error of the convolution is measured. `convolve(device, name, dtype, arrays)` is the framework, `arrays`
    are x, w and the gradient of y. It returns float64 CPU arrays, or raises NotImplementedError with a reason.
    """
    place = "the CPU" if device < 0 else "device %d" % device
    for name in ASKED["cases"]:
        case = CASES[name]
        for dtype in dtypes if name == "conv2d" or ASKED.get("deep") else dtypes[:1]:
            begin("convolution", "running %s in %s on %s" % (name, dtype, place))
            arrays = [array(n, s, dtype) for n, s in zip(numbers(name), shapes(case))]
            try:
                results = convolve(device, name, dtype, arrays)
            except NotImplementedError as reason:
                tell("unserved", device=device, case=name, dtype=dtype, reason=str(reason))
                continue
            grade(device, name, dtype, results, reference(case, *arrays, zeros))


# --- the stages ------------------------------------------------------------------------------


def run_stages(name):
    """Run stages 5 to 7 of one framework."""
    try:
        framework = globals()["import_" + name]()
    except Exception as error:
        failed("framework", error)
        return
    if ASKED.get("import_only"):
        tell("done")
        return
    tell("mapped", files=[[p, None] for p in mapped(ASKED["pattern"])])
    try:
        convolve, array, zeros, list_types = globals()["prepare_" + name](framework)
        if ASKED["device"] == "cpu":
            sweep(-1, ["float32"], convolve, array, zeros)
        else:
            types = list_types()
            for index in ASKED["ordinals"] or range(len(types)):
                sweep(index, types[index], convolve, array, zeros)
    except Exception as error:
        failed("convolution", error)
    begin("loaded", "reading what was mapped")
    tell("computed", files=mapped(ASKED["pattern"]))  # first, because the version query opens more libraries
    tell("mapped", files=libraries())
    load_extensions()
    tell("done")


def wait_for_turn():
    """Wait for input if ASKED says so. End the process if the input is null.

    A framework is imported before its turn. Nothing touches the GPU before the stages below have passed.
    """
    if ASKED.get("waits"):
        began = time.perf_counter()
        if json.loads(sys.stdin.readline() or "null") is None:
            finish()
        tell("waited", seconds=time.perf_counter() - began)


def choose_types(capability):
    """Return the types of a GPU. TF32 and bfloat16 came with compute capability 8.0."""
    return ["float32", "tf32", "float16", "bfloat16"] if capability >= 8 else ["float32", "float16"]


def round_with_numpy(kinds):
    """Return the function `array` of `sweep` for a framework without float64. `kinds` is name -> NumPy type."""
    import numpy

    def array(flat, shape, dtype):
        exact = numpy.array(flat, dtype=numpy.float64).reshape(shape)
        return exact.astype(kinds[dtype]).astype(numpy.float64)

    return array


def failed(stage, error):
    """Report that the framework raised an exception. People search for the last line of its message."""
    import traceback

    text = "".join(traceback.format_exception_only(type(error), error)).strip()
    if len(text) > 4000:  # a word that was cut may be the rest of a secret
        text = text[-4000:].split(None, 1)[-1]
    tell("failed", stage=stage, error=type(error).__name__, text=text)
    tell("mapped", files=libraries())


def load_extensions():
    """Load the extensions that are compiled against the framework, with all their symbols at once.

    The loader then names a missing library or symbol in its own words.
    """
    import ctypes

    for package, path in ASKED.get("extensions", ()):
        tell("begin", stage="extensions", doing="loading " + path, package=package)
        error = None
        try:
            ctypes.CDLL(path, mode=os.RTLD_NOW)
        except OSError as refused:
            error = str(refused)
        tell("extension", package=package, path=path, error=error)


def run_together(order):
    """Import several frameworks in one process, in the requested order, and run the stages of each.

    Two frameworks that each work alone can conflict over one cuDNN or one protobuf. The one imported first loads
    the libraries, and the other must use them.
    """
    for name in order:
        tell("enter", framework=name)
        begin("framework", "importing %s" % name)
        try:
            __import__(name)
        except Exception as error:
            failed("framework", error)
    for name in order:
        tell("enter", framework=name)
        run_stages(name)


if __name__ == "__main__":
    if "order" in ASKED:
        run_together(ASKED["order"])
    else:
        run_stages(ASKED["framework"])
    finish()
