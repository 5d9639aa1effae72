"""The stages of a framework for TensorFlow, with its user's settings."""


def import_tensorflow():
    begin("framework", "importing tensorflow")
    import tensorflow

    built = tensorflow.sysconfig.get_build_info()
    facts = {"version": tensorflow.__version__, "file": tensorflow.__file__, "devices": []}
    facts["cuda"] = built.get("cuda_version") if built.get("is_cuda_build") else None
    facts["cudnn_built"] = built.get("cudnn_version") if facts["cuda"] else None
    tell("framework", **facts)
    wait_for_turn()
    if ASKED["device"] == "cpu":
        tensorflow.config.set_visible_devices([], "GPU")
    elif facts["cuda"]:
        begin("framework", "asking TensorFlow for its GPUs")
        for index, device in enumerate(tensorflow.config.list_physical_devices("GPU")):
            details = tensorflow.config.experimental.get_device_details(device)
            capability = details.get("compute_capability")
            facts["devices"].append(
                {
                    "index": index,
                    "name": details.get("device_name"),
                    "capability": "%d.%d" % capability if capability else None,
                    "uuid": None,
                }
            )
    tell("framework", **facts)
    return tensorflow


def prepare_tensorflow(tf):
    import numpy

    kinds = {"float32": tf.float32, "tf32": tf.float32, "float16": tf.float16, "bfloat16": tf.bfloat16}
    kinds = {name: kind.as_numpy_dtype for name, kind in kinds.items()}

    def convolve(device, name, dtype, arrays):
        case = CASES[name]
        tf.config.experimental.enable_tensor_float_32_execution(dtype == "tf32")
        rank = len(case["size"])
        pads = [[0, 0]] + [[p, p] for p in case["padding"]] + [[0, 0]]
        strides = [1] + list(case["stride"]) + [1]

        def forward(a, b):
            if case.get("transposed"):
                return tf.nn.conv2d_transpose(a, b, arrays[2].shape, strides, padding=pads)
            if rank == 2:
                return tf.nn.conv2d(a, b, strides, pads)
            # conv1d and conv3d take no explicit padding
            a = tf.pad(a, pads)
            if rank == 1:
                return tf.nn.conv1d(a, b, case["stride"][0], "VALID")
            return tf.nn.conv3d(a, b, strides, "VALID")

        with tf.device("/CPU:0" if device < 0 else "/GPU:%d" % device):
            a, b, g = (tf.constant(v.astype(kinds[dtype])) for v in arrays)
            try:
                with tf.GradientTape() as tape:
                    tape.watch([a, b])
                    y = forward(a, b)
                gx, gw = tape.gradient(y, [a, b], output_gradients=g)
            except (tf.errors.UnimplementedError, tf.errors.InvalidArgumentError) as error:
                if device < 0 and case.get("groups", 1) > 1:  # most paths on the CPU cannot
                    raise Unserved(error.message.split("}} ")[-1].split(".")[0])
                raise
        return tuple(v.numpy().astype(numpy.float64) for v in (y, gx, gw))

    def multiply(device, jobs):
        results = []
        with tf.device("/CPU:0" if device < 0 else "/GPU:%d" % device):
            for _, dtype, arrays in jobs:
                tf.config.experimental.enable_tensor_float_32_execution(dtype == "tf32")
                x, w, gy, *bias = (tf.constant(a.astype(kinds[dtype])) for a in arrays)
                with tf.GradientTape() as tape:
                    tape.watch([x, w, *bias])
                    y = tf.linalg.matmul(x, w)
                    y = tf.nn.bias_add(y, bias[0]) if bias else y
                back = tape.gradient(y, [x, w, *bias], output_gradients=gy)
                results.append([a.numpy().astype(numpy.float64) for a in (y, *back)])
        return results

    def list_types():
        details = tf.config.experimental.get_device_details
        found = [details(gpu).get("compute_capability") for gpu in tf.config.list_physical_devices("GPU")]
        return [choose_types(capability[0] if capability else 0) for capability in found]

    return {
        "convolve": convolve,
        "multiply": multiply,
        "array": round_with_numpy(kinds),
        "zeros": numpy.zeros,
        "types": list_types,
    }
