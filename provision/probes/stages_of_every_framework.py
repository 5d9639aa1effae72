"""The parts of stages 5, 6 and 7 that are the same for all frameworks.

The probe of a framework follows in the same text, and adds itself to STAGES.
"""

STAGES = {}  # framework -> function that runs its stages 5 to 7


def run_stages(import_framework, prepare):
    """Run stages 5 to 7.

    `import_framework()` returns the framework. `prepare(framework)` returns four functions: `convolve`, `array` and
    `zeros` for `sweep`, and one that returns a list of types for each GPU.
    """
    try:
        framework = import_framework()
    except Exception as error:
        failed("framework", error)
        return
    if ASKED.get("import_only"):
        tell("done")
        return
    tell("mapped", files=[[p, None] for p in mapped(ASKED["pattern"])])
    try:
        convolve, array, zeros, list_types = prepare(framework)
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
