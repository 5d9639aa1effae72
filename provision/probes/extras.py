"""One operation of one framework, for `verify --deep`: what programs use beside convolutions, products and attention.

Each runs in a process of its own, after the probe of what is graded. Its result is compared with the framework's own in
float64 on the CPU, by other code than the GPU's. `ASKED` names the framework, the operation and the device.
"""

# The largest relative error that a right result may have. Solving and recurrence lose more digits than sums do.
LIMITS = {"fft": 1e-4, "solve": 1e-3, "sparse": 1e-4, "rnn": 1e-3, "fp8": 2e-2}


def inputs():
    """Return a matrix of numbers in [-1, 1), as lists: 48 rows of 48. Its diagonal makes it easy to solve."""
    (flat,) = draw("extras", [(48, 48)])
    rows = [flat[i * 48 : (i + 1) * 48] for i in range(48)]
    for i in range(48):
        rows[i][i] += 8.0
    return rows


def reference_of(xp, name, exact):
    """Return the result of an operation that torch and NumPy both have, by one of them in float64 on the CPU."""
    if name == "fft":
        return xp.fft.fft2(exact)
    return xp.linalg.solve(exact, exact[:4].T) if name == "solve" else thin_of(exact) @ exact


def thin_of(exact):
    """Return the matrix with most numbers 0."""
    return exact * (exact > 0.5)


def extra_torch(name, device):
    import torch

    place = "cpu" if device == "cpu" else "cuda"
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    exact = torch.tensor(inputs(), dtype=torch.float64)
    there = exact.float().to(place)
    if name in ("fft", "solve"):
        return reference_of(torch, name, there), reference_of(torch, name, exact)
    if name == "sparse":
        found = thin_of(exact).float().to(place).to_sparse_csr() @ there
        return found, reference_of(torch, name, exact)
    if name == "rnn":
        torch.manual_seed(0)
        layer = torch.nn.LSTM(48, 32).double()
        right = layer(exact[:, None])[0]
        return layer.float().to(place)(there[:, None])[0], right
    if torch.cuda.get_device_capability() < (8, 9):
        raise Unserved("FP8 came with compute capability 8.9")
    short = there.to(torch.float8_e4m3fn)
    one = torch.ones((), device=place)
    right = short.double().cpu()
    found = torch._scaled_mm(short, short.t().contiguous().t(), one, one, out_dtype=torch.bfloat16)
    return found, right @ right


def extra_jax(name, device):
    import jax
    import numpy

    jnp, place = jax.numpy, jax.devices("cpu" if device == "cpu" else "gpu")[0]
    exact = numpy.array(inputs(), dtype=numpy.float64)
    there = jax.device_put(exact.astype(numpy.float32), place)
    if name in ("fft", "solve"):
        return reference_of(jnp, name, there), reference_of(numpy, name, exact)
    if name == "sparse":
        from jax.experimental import sparse

        thin = sparse.BCOO.fromdense(jax.device_put(thin_of(exact).astype(numpy.float32), place))
        with jax.default_matmul_precision("highest"):
            return thin @ there, reference_of(numpy, name, exact)
    if float(getattr(place, "compute_capability", "0")) < 8.9:
        raise Unserved("FP8 came with compute capability 8.9")
    short = there.astype(jnp.float8_e4m3fn)
    right = numpy.asarray(short.astype(jnp.float32)).astype(numpy.float64)
    found = jax.lax.dot(short, short, preferred_element_type=jnp.float32)
    return found, right @ right


def extra_tensorflow(name, device):
    import numpy
    import tensorflow as tf

    tf.config.experimental.enable_tensor_float_32_execution(False)
    exact = numpy.array(inputs(), dtype=numpy.float64)
    with tf.device("/CPU:0" if device == "cpu" else "/GPU:0"):
        there = tf.constant(exact.astype(numpy.float32))
        if name == "fft":
            found = tf.signal.fft2d(tf.cast(there, tf.complex64))
        elif name == "solve":
            found = tf.linalg.solve(there, tf.transpose(there[:4]))
        else:
            thin = tf.sparse.from_dense(thin_of(exact).astype(numpy.float32))
            found = tf.sparse.sparse_dense_matmul(thin, there)
    return found, reference_of(numpy, name, exact)


def main():
    framework, name, device = ASKED["framework"], ASKED["operation"], ASKED["device"]
    begin("operations", "running %s of %s" % (name, framework))
    try:
        found, right = globals()["extra_" + framework](name, device)
    except Unserved as reason:
        tell("unserved", stage="operations", case=name, dtype="float32", reason=str(reason))
        return
    except Exception as error:
        tell_failure("operations", error)
        return
    if framework == "torch":
        error = error_of(found.detach().cpu().to(right.dtype), right.detach())
    else:
        import numpy

        error = error_of(numpy.asarray(found).astype(right.dtype), right)
    tell(
        "operation",
        case=name,
        error=error,
        tolerance=LIMITS[name],
        ok=error is not None and error <= LIMITS[name],
    )


if __name__ == "__main__":
    main()
    finish()
