"""Shared head of every probe: results go out as JSON lines on the probe's own descriptor, each as soon
as it is known, so that a crash or a hang loses only what had not been reached."""

import json
import os
import sys
import time

_FD = int(os.environ.pop("GPUENV_REPORT"))
os.set_inheritable(_FD, False)  # a program that a framework starts must not hold the report open
ASKED = json.loads(sys.argv[1]) if len(sys.argv) > 1 else {}
_RUN = ASKED.pop("run", None)  # what else writes to this descriptor does not say it
_START = time.perf_counter()


def tell(kind, **record):
    """Report one result; `at` is in seconds since the probe began."""
    record["kind"] = kind
    record["at"] = round(time.perf_counter() - _START, 6)
    record["run"] = _RUN
    data = ("\n" + json.dumps(record) + "\n").encode("ascii")  # half a line of somebody else ends here
    while data:
        data = data[os.write(_FD, data) :]


def begin(stage, doing):
    """Say what comes next: when the process dies or hangs, this is what it was doing."""
    tell("begin", stage=stage, doing=doing)


def wait_for_turn():
    """A framework is imported ahead of its turn where ASKED says so: nothing touches the GPU before the
    stages below have passed, and where they have not, nothing more is wanted."""
    if ASKED.get("waits"):
        began = time.perf_counter()
        if json.loads(sys.stdin.readline() or "null") is None:
            finish()
        tell("waited", seconds=time.perf_counter() - began)


def finish():
    """End at once: what a framework does at exit proves nothing and costs time."""
    _flush()
    os._exit(0)


def leave_alone():
    """Nothing more is told: let go of what the reader waits for the end of."""
    _flush()
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (1, 2, _FD):
        os.dup2(nothing, descriptor)


def _flush():
    """The C library's buffers too, because cuDNN's log goes through them."""
    import ctypes

    sys.stdout.flush()
    sys.stderr.flush()
    ctypes.CDLL(None).fflush(None)


def mapped(pattern):
    """The files mapped into this process whose name matches, as the kernel names them."""
    import re

    wanted, seen = re.compile(pattern), []
    with open("/proc/self/maps", "rb") as maps:
        for line in maps:
            fields = line.rstrip(b"\n").split(None, 5)
            if len(fields) < 6 or not fields[5].startswith(b"/"):
                continue
            path = os.fsdecode(fields[5])
            if wanted.search(os.path.basename(path)) and path not in seen:
                seen.append(path)
    return seen


def libraries():
    """The NVIDIA libraries of this process as [path, version]. Asked for its version, cuDNN opens its
    sublibraries by name, so what is mapped is read once more: on a machine without a GPU nothing else
    would show which sublibraries this process would get."""
    for path in mapped(ASKED["pattern"]):
        loaded_version(path)
    return [[path, loaded_version(path)] for path in mapped(ASKED["pattern"])]


def loaded_version(path):
    """What an NVIDIA library that is already mapped says of its own version, None if it does not.

    Asked of the mapped file itself: names of files and packages can be wrong. libcudnn.so of cuDNN 9
    asks its libcudnn_graph; the other sublibraries do not tell."""
    import ctypes

    name = os.path.basename(path)
    try:
        library = ctypes.CDLL(path, mode=os.RTLD_NOLOAD | os.RTLD_NOW)
    except OSError:
        return None
    number = ctypes.c_int()
    if name.startswith("libcudnn.so") or name.startswith("libcudnn_graph.so"):
        ask = library.cudnnGetVersion
        ask.restype = ctypes.c_size_t
        value = ask()
        if value >= 90000:
            return "%d.%d.%d" % (value // 10000, value // 100 % 100, value % 100)
        return "%d.%d.%d" % (value // 1000, value // 100 % 10, value % 100)
    if name.startswith("libcudart"):
        failed = library.cudaRuntimeGetVersion(ctypes.byref(number))
        return None if failed else "%d.%d" % (number.value // 1000, number.value % 1000 // 10)
    if name.startswith("libcublas.") or name.startswith("libcublasLt."):
        ask = getattr(
            library, "cublasGetProperty" if name.startswith("libcublas.") else "cublasLtGetProperty", None
        )
        parts = []
        for which in range(3):
            if ask is None or ask(which, ctypes.byref(number)) != 0:
                return None
            parts.append(str(number.value))
        return ".".join(parts)
    for start, function in (("libnvrtc.", "nvrtcVersion"), ("libnvJitLink.", "nvJitLinkVersion")):
        if name.startswith(start) and hasattr(library, function):
            minor = ctypes.c_int()
            if getattr(library, function)(ctypes.byref(number), ctypes.byref(minor)) == 0:
                return "%d.%d" % (number.value, minor.value)
    return None


def load_extensions():
    """Load what is compiled against the framework in this process, all symbols at once: a missing library or
    symbol is then told by the loader itself."""
    import ctypes

    for package, path in ASKED.get("extensions", ()):
        tell("begin", stage="extensions", doing="loading " + path, package=package)
        error = None
        try:
            ctypes.CDLL(path, mode=os.RTLD_NOW)
        except OSError as refused:
            error = str(refused)
        tell("extension", package=package, path=path, error=error)
