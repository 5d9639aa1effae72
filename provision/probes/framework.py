"""Ends the probe of one framework or of several: framework, convolution, matmul, attention and loaded.

The probes of the frameworks and the operations come before this one in the same text. `import_NAME()` returns the
framework. `prepare_NAME(framework)` returns functions by name: `convolve`, `array`, `zeros`, `types`
for a list of types for each GPU, and where the framework has them `multiply`, `attend` and `backends`.
"""


def run_stages(name):
    """Run the stages of one framework."""
    try:
        framework = globals()["import_" + name]()
    except Exception as error:
        failed("framework", error)
        return
    if ASKED.get("import_only"):
        tell("done")
        return
    tell("mapped", files=[[p, None] for p in mapped(ASKED["pattern"])])
    stage, tools, places, right = "convolution", {}, {}, False
    try:
        tools = globals()["prepare_" + name](framework)
        types = [["float32"]] if ASKED["device"] == "cpu" else tools["types"]()
        ordinals = [-1] if ASKED["device"] == "cpu" else ASKED["ordinals"] or range(len(types))
        places = {index: types[index][:1] if ASKED.get("one_type") else types[index] for index in ordinals}
        for stage, run in (("convolution", convolutions), ("matmul", products), ("attention", attentions)):
            mark(stage)
            for index, dtypes in places.items():
                run(tools, index, dtypes)
        right = True
    except Exception as error:
        failed(stage, error)
    mark("loaded")
    begin("loaded", "reading what was mapped")
    tell("computed", files=mapped(ASKED["pattern"]))  # first, because the version query opens more libraries
    tell("mapped", files=libraries())
    load_extensions()
    tell("done")
    if right or stage == "attention":  # last, because a backend that crashes must not hide the rest
        backends(tools, places)


def mark(stage):
    """Write the name of the stage into the log of the NVIDIA libraries, so that their calls belong to a stage."""
    if "CUDNN_LOGDEST_DBG" in os.environ:
        _flush()
        with open(os.environ["CUDNN_LOGDEST_DBG"], "a") as log:
            log.write("gpuenv: %s\n" % stage)


def convolutions(tools, index, dtypes):
    """Grade each case separately, because a framework may not support all of them."""
    for name in ASKED["cases"]:
        for dtype in dtypes if name == "conv2d" or ASKED.get("deep") else dtypes[:1]:
            try:
                sweep(
                    "convolution",
                    index,
                    [(name, dtype)],
                    lambda device, jobs: [tools["convolve"](device, *jobs[0])],
                    lambda name, dtype: convolution_inputs(name, dtype, tools["array"]),
                    lambda name, arrays: reference(CASES[name], *arrays, tools["zeros"]),
                )
            except Unserved as reason:
                tell("unserved", stage="convolution", case=name, dtype=dtype, reason=str(reason))
        if name == ASKED["cases"][0]:
            silence_cudnn()


def silence_cudnn():
    """Let cuDNN log only errors and warnings from now on.

    The first case shows that it computes. Where JAX searches for the fastest kernel it logs 300 MB of calls.
    """
    import ctypes

    for path in mapped(r"^libcudnn\.so"):
        try:
            ctypes.CDLL(path, mode=os.RTLD_NOLOAD | os.RTLD_NOW).cudnnSetCallback(2 | 4, None, None)
        except (
            OSError,
            AttributeError,
        ):  # replaced meanwhile, or another library of that name: it goes on logging
            continue


def products(tools, index, dtypes):
    if "multiply" in tools and ASKED.get("products"):
        sweep(
            "matmul",
            index,
            choose_jobs(ASKED["products"], dtypes),
            tools["multiply"],
            lambda name, dtype: product_inputs(name, dtype, tools["array"]),
            lambda name, arrays: product_reference(*arrays),
        )


def attentions(tools, index, dtypes):
    """Grade the attention that a program gets which names no backend, in the types that models train in."""
    if "attend" in tools and ASKED.get("attentions"):
        short = [d for d in dtypes if d in ("float16", "bfloat16")] or ["float32"]
        jobs = list(zip(ASKED["attentions"], reversed(short * 2)))
        if ASKED.get("deep"):
            jobs = [(name, dtype) for name in ASKED["attentions"] for dtype in short]
        attend("attention", tools, index, jobs, None)


def choose_jobs(products, dtypes):
    """Return (case, type): the first case in all types, the others in the last type, with --deep in all.

    JAX compiles each of them. The last is the type that models are trained in.
    """
    return [
        (n, d) for n in products for d in dtypes if n == products[0] or d == dtypes[-1] or ASKED.get("deep")
    ]


def attend(stage, tools, index, jobs, backend):
    sweep(
        stage,
        index,
        jobs,
        lambda device, asked: tools["attend"](device, asked, backend),
        lambda name, dtype: attention_inputs(name, dtype, tools["array"]),
        lambda name, arrays: attention_reference(name, *arrays, tools["array"], tools["zeros"]),
    )


def backends(tools, places):
    """Grade each backend of attention that the framework offers, by name, with the causal case."""
    if "backends" not in tools or not ASKED.get("attentions"):
        return
    for index, dtypes in places.items():
        for backend in tools["backends"](index) if index >= 0 else ():
            tell("backend", device=index, backend=backend)
            dtype = [d for d in dtypes if d in ("float16", "bfloat16")][-1]
            try:
                attend("attention_backend", tools, index, [("causal_64", dtype)], backend)
            except Unserved as reason:
                tell("unserved", stage="attention", case=backend, dtype=dtype, reason=str(reason))
            except Exception as error:
                failed("attention_backend", error)


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
    """Return the function `array` for a framework without float64. `kinds` is name -> NumPy type."""
    import numpy

    def array(flat, shape, dtype):
        exact = numpy.array(flat, dtype=numpy.float64).reshape(shape)
        return exact.astype(kinds[dtype]).astype(numpy.float64)

    return array


def failed(stage, error):
    """Report that the framework raised an exception, and what is mapped."""
    tell_failure(stage, error)
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


def leave_folder():
    """Work in the root folder, and import from the empty one as before.

    cuDNN's kernels are cached for each working folder. In a new one it compiles them again, for seconds.
    """
    sys.path[:] = [path or os.getcwd() for path in sys.path]
    os.chdir("/")


if __name__ == "__main__":
    leave_folder()
    if "order" in ASKED:
        run_together(ASKED["order"])
    else:
        run_stages(ASKED["framework"])
    finish()
