"""The stages of a framework for JAX, with its user's settings."""


def import_jax():
    begin("framework", "importing jax")
    import jax

    facts = {"version": jax.__version__, "cuda": None, "file": jax.__file__, "devices": []}
    tell("framework", **facts)
    wait_for_turn()
    built = _jax_cuda_versions()
    if built is not None and hasattr(built, "cudnn_build_version"):
        facts["cuda"] = cuda_version(built.cuda_runtime_build_version())
        facts["cudnn_built"] = built.cudnn_build_version()
        tell("framework", **facts)
    if ASKED["device"] == "cpu":
        begin("framework", "asking JAX for the CPU")
        jax.devices("cpu")
    elif facts["cuda"]:
        begin("framework", "asking JAX for its GPUs")
        facts["devices"] = [_jax_device(device) for device in jax.devices("gpu")]
        begin("framework", "asking JAX for cuDNN's version")
        facts["cudnn"] = built.cudnn_get_version()  # after the GPUs, because JAX loads its own cuDNN for them
    tell("framework", **facts)
    return jax


def _jax_cuda_versions():
    """Return the module with the CUDA versions that JAX was built with, or None for a CPU build."""
    for major in ("13", "12"):
        try:
            return __import__("jax_cuda%s_plugin._versions" % major, fromlist=["_versions"])
        except ImportError:
            continue
    try:  # up to 0.4.25 jaxlib itself contained CUDA
        from jaxlib import cuda_versions
    except ImportError:
        return None
    return cuda_versions


def _jax_device(device):
    return {
        "index": device.id,
        "name": device.device_kind,
        "capability": getattr(device, "compute_capability", None),
        "uuid": None,
    }


def prepare_jax(jax):
    import numpy

    jnp = jax.numpy
    kinds = {"float32": jnp.float32, "tf32": jnp.float32, "float16": jnp.float16, "bfloat16": jnp.bfloat16}

    def convolve(device, name, dtype, arrays):
        case = CASES[name]
        letters = "DHW"[3 - len(case["size"]) :]
        precision = jax.lax.Precision.HIGHEST if dtype == "float32" else jax.lax.Precision.DEFAULT
        pads = tuple((p, p) for p in case["padding"])
        options = dict(
            dimension_numbers=("N%sC" % letters, "%sIO" % letters, "N%sC" % letters), precision=precision
        )

        def forward(a, b):
            if not case.get("transposed"):
                return jax.lax.conv_general_dilated(
                    a, b, case["stride"], pads, feature_group_count=case.get("groups", 1), **options
                )
            # JAX states the padding of a transposed convolution on the dilated input
            around = tuple((k - 1 - p, k - 1 - p) for k, p in zip(case["kernel"], case["padding"]))
            return jax.lax.conv_transpose(a, b, case["stride"], around, transpose_kernel=True, **options)

        def all_passes(name, dtype, arrays):
            a, b, g = arrays
            y, back = jax.vjp(forward, a, b)
            return (y,) + back(g)

        return run(device, all_passes, [(name, dtype, arrays)], jax.jit)[0]

    def run(device, function, jobs, jit):
        """Compute all jobs in one compiled call, because each call is compiled. Return float64 arrays."""
        place = jax.devices("cpu")[0] if device < 0 else jax.devices("gpu")[device]
        put = [
            [jax.device_put(numpy.asarray(a).astype(kinds[dtype]), place) for a in arrays]
            for _, dtype, arrays in jobs
        ]

        def compute(put):
            return [function(name, dtype, arrays) for (name, dtype, _), arrays in zip(jobs, put)]

        return [[numpy.asarray(a).astype(numpy.float64) for a in one] for one in jit(compute)(put)]

    def compile_quickly(compute):
        """Return the function, compiled for cuBLAS without the search for the fastest kernel.

        That search takes seconds for each product.
        """
        options = {"xla_gpu_autotune_level": 0, "xla_gpu_enable_triton_gemm": False}
        try:
            return jax.jit(compute, compiler_options=options)
        except TypeError:  # before 0.4.32
            return jax.jit(compute)

    def multiply(device, jobs):
        def product(name, dtype, arrays):
            x, w, gy, *bias = arrays
            precision = jax.lax.Precision.HIGHEST if dtype == "float32" else jax.lax.Precision.DEFAULT

            def forward(x, w, *bias):
                y = jnp.matmul(x, w, precision=precision)
                return y + bias[0] if bias else y

            y, back = jax.vjp(forward, x, w, *bias)
            return (y,) + back(gy)

        return run(device, product, jobs, compile_quickly)

    def attend(device, jobs, backend):
        if not hasattr(jax.nn, "dot_product_attention"):  # before 0.4.31
            return []

        def attention(name, dtype, arrays):
            q, k, v, gy = arrays
            options = {"is_causal": True}
            if ATTENTIONS[name].get("masked"):
                options = {"mask": jnp.asarray(attention_mask(name))[None, None]}

            def forward(q, k, v):
                return jax.nn.dot_product_attention(q, k, v, implementation=backend, **options)

            y, back = jax.vjp(forward, q, k, v)
            return (y,) + back(gy)

        return run(device, attention, jobs, compile_quickly)

    def backends(device):
        """Return the backends beside XLA, which is the default. cuDNN's attention needs compute capability 8.0."""
        capability = float(getattr(jax.devices("gpu")[device], "compute_capability", "0"))
        return ["cudnn"] if capability >= 8 and hasattr(jax.nn, "dot_product_attention") else []

    def list_types():
        return [choose_types(float(getattr(d, "compute_capability", "0"))) for d in jax.devices("gpu")]

    return {
        "convolve": convolve,
        "multiply": multiply,
        "attend": attend,
        "backends": backends,
        "array": round_with_numpy(kinds),
        "zeros": numpy.zeros,
        "types": list_types,
    }
