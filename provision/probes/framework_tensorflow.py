"""Stages 5, 6 and 7 for TensorFlow, as its user has it."""


def import_tensorflow():
    begin("framework", "importing tensorflow")
    import tensorflow

    built = tensorflow.sysconfig.get_build_info()
    told = {"version": tensorflow.__version__, "file": tensorflow.__file__, "devices": []}
    told["cuda"] = built.get("cuda_version") if built.get("is_cuda_build") else None
    told["cudnn_built"] = built.get("cudnn_version") if told["cuda"] else None
    tell("framework", **told)
    wait_for_turn()
    if ASKED["device"] == "cpu":
        tensorflow.config.set_visible_devices([], "GPU")
    elif told["cuda"]:
        begin("framework", "asking TensorFlow for its GPUs")
        for index, device in enumerate(tensorflow.config.list_physical_devices("GPU")):
            details = tensorflow.config.experimental.get_device_details(device)
            capability = details.get("compute_capability")
            told["devices"].append(
                {
                    "index": index,
                    "name": details.get("device_name"),
                    "capability": "%d.%d" % capability if capability else None,
                    "uuid": None,
                }
            )
    tell("framework", **told)
    return tensorflow, [d["capability"] for d in told["devices"]]


def tensorflow_stages():
    try:
        tf, capabilities = import_tensorflow()
    except Exception as error:
        failed("framework", error)
        return
    if ASKED.get("import_only"):
        tell("done")
        return
    tell("mapped", files=[[p, None] for p in mapped(ASKED["pattern"])])
    import numpy

    kinds = {"float32": tf.float32, "tf32": tf.float32, "float16": tf.float16, "bfloat16": tf.bfloat16}

    def array(flat, shape, dtype):
        made = numpy.array(flat, dtype=numpy.float64).reshape(shape)
        return made.astype(kinds[dtype].as_numpy_dtype).astype(numpy.float64)

    def convolve(device, name, dtype, x, w, gy):
        case = CASES[name]
        tf.config.experimental.enable_tensor_float_32_execution(dtype == "tf32")
        rank = len(case["size"])
        pads = [[0, 0]] + [[p, p] for p in case["padding"]] + [[0, 0]]
        strides = [1] + list(case["stride"]) + [1]

        def forward(a, b):
            if case.get("transposed"):
                return tf.nn.conv2d_transpose(a, b, gy.shape, strides, padding=pads)
            if rank == 2:
                return tf.nn.conv2d(a, b, strides, pads)
            # conv1d and conv3d take no explicit padding
            a = tf.pad(a, pads)
            if rank == 1:
                return tf.nn.conv1d(a, b, case["stride"][0], "VALID")
            return tf.nn.conv3d(a, b, strides, "VALID")

        with tf.device("/CPU:0" if device < 0 else "/GPU:%d" % device):
            a, b, g = (tf.constant(v.astype(kinds[dtype].as_numpy_dtype)) for v in (x, w, gy))
            try:
                with tf.GradientTape() as tape:
                    tape.watch([a, b])
                    y = forward(a, b)
                gx, gw = tape.gradient(y, [a, b], output_gradients=g)
            except (tf.errors.UnimplementedError, tf.errors.InvalidArgumentError) as error:
                if device < 0 and case.get("groups", 1) > 1:  # most paths on the CPU cannot
                    raise NotImplementedError(error.message.split("}} ")[-1].split(".")[0])
                raise
        return tuple(v.numpy().astype(numpy.float64) for v in (y, gx, gw))

    try:
        if ASKED["device"] == "cpu":
            sweep(-1, ["float32"], convolve, array, numpy.zeros)
        else:
            for index in ASKED["ordinals"] or range(len(capabilities)):
                dtypes = ["float32", "float16"]
                if float(capabilities[index] or 0) >= 8:
                    dtypes[1:1] = ["tf32"]
                    dtypes.append("bfloat16")
                sweep(index, dtypes, convolve, array, numpy.zeros)
    except Exception as error:
        failed("convolution", error)
    begin("loaded", "reading what was mapped")
    tell("computed", files=mapped(ASKED["pattern"]))  # before the question for versions opens more of them
    tell("mapped", files=libraries())
    load_extensions()
    tell("done")


STAGES["tensorflow"] = tensorflow_stages
