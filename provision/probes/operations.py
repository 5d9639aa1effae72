"""What is graded: convolutions, matrix products and attention, each against a float64 reference of its own.

Arrays are float64 on the CPU, from NumPy or torch. Convolutions are channels-last: x (N, *S, Cin),
w (*K, Cin/groups, Cout), y (N, *T, Cout). Attention is (batch, length, heads, width). A reference uses only slices,
sums, `@`, `**` and `+=`, which both have. No framework is used, and none computes convolutions that way: for each
offset of the kernel, one strided view of the padded input is multiplied by one matrix.
"""

import itertools
import math
import random


class Unserved(Exception):
    """Raised for an operation that a framework does not offer. Broken builds raise NotImplementedError."""


PASSES = {
    "convolution": ("forward", "grad_input", "grad_weight"),
    "matmul": ("forward", "grad_input", "grad_weight", "grad_bias"),
    "attention": ("forward", "grad_query", "grad_key", "grad_value"),
}

# name: spatial sizes, kernel, stride, padding, channels in, channels out, groups, transposed, batch.
# Sizes are odd, the kernel is not square and the stride does not divide, so that edges are exercised;
# channels are multiples of 8, without which half precision would not use the tensor cores.
CASES = {
    "conv2d": dict(size=(29, 31), kernel=(3, 5), stride=(2, 1), padding=(1, 2), cin=64, cout=64, batch=3),
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

# y = x @ w, or x @ w + b. The rows, columns and terms of the first are odd, so no vector load fits. The second takes
# the way through cuBLASLt that adds the bias. The third is large enough for the kernels of real models.
PRODUCTS = {
    "matmul": dict(rows=67, terms=129, columns=35),
    "matmul_bias": dict(rows=96, terms=128, columns=64, bias=True),
    "matmul_large": dict(rows=256, terms=640, columns=384),
}

# Self-attention with the two head sizes of most models: causal, and with a mask that hides some keys. One has several
# heads, the other a batch and an odd length. XLA's search for a tiling grows with the product of all dimensions.
ATTENTIONS = {
    "causal_64": dict(batch=1, length=64, heads=2, width=64),
    "masked_128": dict(batch=2, length=63, heads=1, width=128, masked=True),
}

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


def draw(name, shapes):
    """Return flat lists of numbers in [-1, 1), never zero, the same in every run.

    More than 10,000 numbers repeat 9,973 of them. That is a prime, so rows of an array differ.
    """
    source, drawn = random.Random("gpuenv " + name), []
    for shape in shapes:
        count = math.prod(shape)
        first = [(source.random() - 0.5) * 2 or 0.5 for _ in range(min(count, 9973))]
        drawn.append((first * (count // len(first) + 1))[:count])
    return drawn


def convolution_inputs(name, dtype, array):
    """Return x, w and the gradient of y."""
    sizes = shapes(CASES[name])
    return [array(n, s, dtype) for n, s in zip(draw(name, sizes), sizes)]


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


def channels_first(rank):
    """Return the orders of axes that turn x (N, *S, C) into (N, C, *S) and back, and w (*K, I, O) into (O, I, *K)."""
    inner = tuple(range(1, rank + 1))
    return (
        (0, rank + 1) + inner,
        (0,) + tuple(range(2, rank + 2)) + (1,),
        (rank + 1, rank) + tuple(range(rank)),
    )


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
    off, scale = abs(result - right), float((abs(right) * abs(right)).sum())  # of FFT complex numbers
    norm = math.sqrt(float((off * off).sum()) / scale)
    peak = float(off.max()) / math.sqrt(scale / math.prod(right.shape))
    worst = max(norm, peak / PEAK)
    # max() can drop a NaN that is not its first argument, so both are tested
    return worst if math.isfinite(norm) and math.isfinite(peak) else None


def grade(stage, device, name, dtype, results, right):
    """Report the error of each pass of one case."""
    tolerance, reason = TOLERANCES[dtype]
    for which, result, want in zip(PASSES[stage.partition("_")[0]], results, right):
        error = error_of(result, want)
        tell(
            stage,
            device=device,
            case=name,
            dtype=dtype,
            which=which,
            error=error,
            tolerance=tolerance,
            reason=reason,
            ok=error is not None and error <= tolerance,
        )


# --- matrix products and attention ---------------------------------------------------------------


def product_inputs(name, dtype, array):
    """Return x, w, the gradient of y, and the bias if the case has one."""
    case = PRODUCTS[name]
    rows, terms, columns = case["rows"], case["terms"], case["columns"]
    shapes = [(rows, terms), (terms, columns), (rows, columns)] + ([(columns,)] if case.get("bias") else [])
    return [array(n, s, dtype) for n, s in zip(draw(name, shapes), shapes)]


def product_reference(x, w, gy, bias=None):
    """Return (y, gradients of x, w and the bias) in float64."""
    y = x @ w
    if bias is None:
        return y, gy @ w.T, x.T @ gy
    return y + bias, gy @ w.T, x.T @ gy, gy.sum(0)


def attention_inputs(name, dtype, array):
    """Return query, key, value and the gradient of the result."""
    case = ATTENTIONS[name]
    shape = case["batch"], case["length"], case["heads"], case["width"]
    return [array(n, shape, dtype) for n in draw(name, [shape] * 4)]


def attention_mask(name):
    """Return what each position may look at, as rows of booleans: itself, and the ones before it or most others."""
    case = ATTENTIONS[name]
    length = range(case["length"])
    if case.get("masked"):
        return [[i == j or (i * 7 + j * 3) % 5 != 0 for j in length] for i in length]
    return [[j <= i for j in length] for i in length]


def attention_reference(name, query, key, value, gy, array, zeros):
    """Return (y, gradients of query, key and value) in float64."""
    case, results = ATTENTIONS[name], [zeros(query.shape) for _ in range(4)]
    scale = 1 / math.sqrt(case["width"])
    seen = [float(one) for row in attention_mask(name) for one in row]
    allowed = array(seen, (case["length"], case["length"]), "float32")
    for one in itertools.product(range(case["batch"]), range(case["heads"])):
        at = one[0], slice(None), one[1]
        q, k, v, g = query[at], key[at], value[at], gy[at]
        weight = math.e ** ((q @ k.T) * scale) * allowed
        weight = weight / weight.sum(-1)[:, None]
        back = g @ v.T
        inner = weight * (back - (back * weight).sum(-1)[:, None]) * scale
        for result, part in zip(results, (weight @ v, inner @ k, inner.T @ q, weight.T @ g)):
            result[at] = part
    return results


def sweep(stage, device, jobs, compute, inputs, reference):
    """Grade cases that a framework computes in one call, because JAX compiles for each call.

    `jobs` are (case, dtype). `inputs(case, dtype)` returns float64 arrays of numbers that the type can represent
    exactly, so only the error of the framework is measured. `compute(device, [(case, dtype, arrays)])` returns its
    results as float64 CPU arrays, or raises Unserved.
    """
    place = "the CPU" if device < 0 else "device %d" % device
    what = jobs[0][0] if len(jobs) == 1 else stage
    begin(stage, "running %s in %s on %s" % (what, ", ".join(dict.fromkeys(d for _, d in jobs)), place))
    asked = [(name, dtype, inputs(name, dtype)) for name, dtype in jobs]
    for (name, dtype, arrays), results in zip(asked, compute(device, asked)):
        grade(stage, device, name, dtype, results, reference(name, arrays))
