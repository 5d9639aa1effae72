"""Calls of NVIDIA's libraries by ctypes, for the probes that use no framework."""

import ctypes


class Failed(Exception):
    """A stage failed: `call` returned `code`, called `name` by the library."""

    def __init__(self, call, code=None, name=None, text=None):
        Exception.__init__(self, call)
        self.record = {"call": call, "code": code, "name": name, "text": text}


def runtime_call(cudart, call, *arguments):
    code = getattr(cudart, call)(*arguments)
    if code:
        cudart.cudaGetErrorName.restype = ctypes.c_char_p
        name = cudart.cudaGetErrorName(code)
        raise Failed(call, code, name.decode() if name else None)
