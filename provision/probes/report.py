"""Begins every probe: writes results as JSON lines to the probe's own descriptor.

Each result is written at once, so a crash or a hang loses only what follows.
"""

import json
import os
import sys
import time

_FD = int(os.environ.pop("GPUENV_REPORT"))
os.set_inheritable(_FD, False)  # a program that a framework starts must not hold the report open
ASKED = json.loads(sys.argv[1]) if len(sys.argv) > 1 else {}
_RUN = ASKED.pop("run", None)  # other writers to this descriptor do not know it
_START = time.perf_counter()


def tell(kind, **record):
    """Report one result. `at` is in seconds since the probe began."""
    record["kind"] = kind
    record["at"] = round(time.perf_counter() - _START, 6)
    record["run"] = _RUN
    data = ("\n" + json.dumps(record) + "\n").encode("ascii")  # ends an unfinished line of another writer
    while data:
        data = data[os.write(_FD, data) :]


def begin(stage, doing):
    """Report the next step. If the process dies or hangs, this is what it was doing."""
    tell("begin", stage=stage, doing=doing)


def tell_failure(stage, error):
    """Report an exception. People search for the last line of its message."""
    import traceback

    text = "".join(traceback.format_exception_only(type(error), error)).strip()
    if len(text) > 4000:  # a word that was cut may be the rest of a secret
        text = text[-4000:].split(None, 1)[-1]
    tell("failed", stage=stage, error=type(error).__name__, text=text)


def finish():
    """End at once. The work of a framework at exit proves nothing and takes time."""
    _flush()
    os._exit(0)


def die_with_parent(parent):
    """End this process with the one that forked it, also where that one was killed."""
    import ctypes
    import signal

    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    if os.getppid() != parent:
        os._exit(1)


def leave_alone():
    """Close the descriptors whose end the reader waits for. Nothing more is reported."""
    _flush()
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (1, 2, _FD):
        os.dup2(nothing, descriptor)


def _flush():
    """Flush the buffers of Python and of the C library. cuDNN's log goes through the latter."""
    import ctypes

    sys.stdout.flush()
    sys.stderr.flush()
    ctypes.CDLL(None).fflush(None)


class Failed(Exception):
    """A stage failed: `call` returned `code`, called `name` by the library."""

    def __init__(self, call, code=None, name=None, text=None):
        Exception.__init__(self, call)
        self.record = {"call": call, "code": code, "name": name, "text": text}


def runtime_call(cudart, call, *arguments):
    import ctypes

    code = getattr(cudart, call)(*arguments)
    if code:
        cudart.cudaGetErrorName.restype = ctypes.c_char_p
        name = cudart.cudaGetErrorName(code)
        raise Failed(call, code, name.decode() if name else None)


def mapped(pattern):
    """Return the files mapped into this process whose name matches, by their names in the kernel."""
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
    """Return the NVIDIA libraries of this process as [path, version].

    When asked for its version, cuDNN opens its sublibraries by name. So the mapped files are read a second
    time. On a machine without a GPU nothing else shows which sublibraries this process would use.
    """
    for path in mapped(ASKED["pattern"]):
        loaded_version(path)
    return [[path, loaded_version(path)] for path in mapped(ASKED["pattern"])]


def cuda_version(number):
    """Return 12080 as "12.8"."""
    return "%d.%d" % (number // 1000, number % 1000 // 10)


def loaded_version(path):
    """Return the version that a mapped NVIDIA library reports, or None.

    The mapped file itself is asked, because names of files and packages can be wrong. libcudnn.so of cuDNN 9
    asks its libcudnn_graph. The other sublibraries report no version.
    """
    import ctypes

    name = os.path.basename(path)
    try:
        library = ctypes.CDLL(path, mode=os.RTLD_NOLOAD | os.RTLD_NOW)
    except OSError:
        return None
    number, minor = ctypes.c_int(), ctypes.c_int()
    stem = name.partition(".")[0][3:]
    if name.startswith(("libcudnn.so", "libcudnn_graph.so")):
        library.cudnnGetVersion.restype = ctypes.c_size_t
        value = library.cudnnGetVersion()
        major = 10000 if value >= 90000 else 1000  # 91002 is 9.10.2, 8907 is 8.9.7
        return "%d.%d.%d" % (value // major, value % major // 100, value % 100)
    if name.startswith("libcudart"):
        failed = library.cudaRuntimeGetVersion(ctypes.byref(number))
        return None if failed else cuda_version(number.value)
    if stem in ("cublas", "cublasLt"):
        parts = []
        for which in range(3):
            if getattr(library, stem + "GetProperty", lambda *_: 1)(which, ctypes.byref(number)):
                return None
            parts.append(str(number.value))
        return ".".join(parts)
    if stem in ("nvrtc", "nvJitLink") and hasattr(library, stem + "Version"):
        if not getattr(library, stem + "Version")(ctypes.byref(number), ctypes.byref(minor)):
            return "%d.%d" % (number.value, minor.value)
    return None
