"""Stages 5, 6 and 7 for JAX, as its user has it."""


def import_jax():
    begin("framework", "importing jax")
    import jax
    import jaxlib

    told = {"version": jax.__version__, "jaxlib": jaxlib.__version__, "file": jax.__file__, "devices": []}
    told["cuda"] = None
    tell("framework", **told)
    wait_for_turn()
    built = None
    for major in ("13", "12"):
        try:
            built = __import__("jax_cuda%s_plugin._versions" % major, fromlist=["_versions"])
            break
        except ImportError:
            continue
    if built is None:
        try:  # up to 0.4.25 jaxlib itself carried CUDA
            from jaxlib import cuda_versions as built
        except ImportError:
            built = None
    if built is not None and hasattr(built, "cudnn_build_version"):
        number = built.cuda_runtime_build_version()
        told["cuda"] = "%d.%d" % (number // 1000, number % 1000 // 10)
        told["cudnn_built"] = built.cudnn_build_version()
        tell("framework", **told)
    if ASKED["device"] == "cpu":
        begin("framework", "asking JAX for the CPU")
        jax.devices("cpu")
    elif told["cuda"]:
        begin("framework", "asking JAX for its GPUs")
        for device in jax.devices("gpu"):
            told["devices"].append(
                {
                    "index": device.id,
                    "name": device.device_kind,
                    "capability": getattr(device, "compute_capability", None),
                    "uuid": None,
                }
            )
        begin("framework", "asking JAX for cuDNN's version")
        told["cudnn"] = built.cudnn_get_version()  # after the GPUs: JAX loads its own cuDNN for them first
    tell("framework", **told)
    return jax


def jax_stages():
    try:
        jax = import_jax()
    except Exception as error:
        failed("framework", error)
        return
    if ASKED.get("import_only"):
        tell("done")
        return
    tell("mapped", files=[[p, None] for p in mapped(ASKED["pattern"])])
    import numpy

    jnp = jax.numpy
    kinds = {"float32": jnp.float32, "tf32": jnp.float32, "float16": jnp.float16, "bfloat16": jnp.bfloat16}

    def array(flat, shape, dtype):
        made = numpy.array(flat, dtype=numpy.float64).reshape(shape)
        return made.astype(kinds[dtype]).astype(numpy.float64)

    def convolve(device, name, dtype, x, w, gy):
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

        def all_passes(a, b, g):
            y, back = jax.vjp(forward, a, b)
            return (y,) + back(g)

        place = jax.devices("cpu")[0] if device < 0 else jax.devices("gpu")[device]
        put = [jax.device_put(numpy.asarray(v).astype(kinds[dtype]), place) for v in (x, w, gy)]
        return tuple(numpy.asarray(r).astype(numpy.float64) for r in jax.jit(all_passes)(*put))

    try:
        if ASKED["device"] == "cpu":
            sweep(-1, ["float32"], convolve, array, numpy.zeros)
        else:
            devices = jax.devices("gpu")
            for index in ASKED["ordinals"] or range(len(devices)):
                dtypes = ["float32", "float16"]
                if float(getattr(devices[index], "compute_capability", "0")) >= 8:
                    dtypes[1:1] = ["tf32"]
                    dtypes.append("bfloat16")
                sweep(index, dtypes, convolve, array, numpy.zeros)
    except Exception as error:
        failed("convolution", error)
    begin("loaded", "reading what was mapped")
    tell("computed", files=mapped(ASKED["pattern"]))  # before the question for versions opens more of them
    tell("mapped", files=libraries())
    tell("done")


STAGES["jax"] = jax_stages
