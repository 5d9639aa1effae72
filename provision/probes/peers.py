"""Ends the probe over several GPUs: copies between each pair, and one all-reduce over all by NCCL.

It copies a few kilobytes each, by ctypes alone in one process. It tests whether the GPUs can communicate, not
how fast. Its stage only warns.
"""

_WORDS = 1 << 10


def _numbers(cudart, ordinal, numbers):
    """Return a device array with these float32 numbers."""
    runtime_call(cudart, "cudaSetDevice", ordinal)
    host, device = (ctypes.c_float * _WORDS)(*numbers), ctypes.c_void_p()
    runtime_call(cudart, "cudaMalloc", ctypes.byref(device), ctypes.c_size_t(ctypes.sizeof(host)))
    runtime_call(cudart, "cudaMemcpy", device, host, ctypes.c_size_t(ctypes.sizeof(host)), 1)
    return device


def _back(cudart, ordinal, device):
    host = (ctypes.c_float * _WORDS)()
    runtime_call(cudart, "cudaSetDevice", ordinal)
    runtime_call(cudart, "cudaDeviceSynchronize")
    runtime_call(cudart, "cudaMemcpy", host, device, ctypes.c_size_t(ctypes.sizeof(host)), 2)
    return list(host)


def copies(cudart, ordinals):
    """Copy between each ordered pair of GPUs. Report whether the numbers are right."""
    arrays = {o: _numbers(cudart, o, [o * _WORDS + i for i in range(_WORDS)]) for o in ordinals}
    size = ctypes.c_size_t(_WORDS * 4)
    for one in ordinals:
        for other in ordinals:
            if one == other:
                continue
            begin("peers", "copying from device %d to device %d" % (one, other))
            can = ctypes.c_int()
            runtime_call(cudart, "cudaDeviceCanAccessPeer", ctypes.byref(can), other, one)
            target = _numbers(cudart, other, [0.0] * _WORDS)
            runtime_call(cudart, "cudaMemcpyPeer", target, other, arrays[one], one, size)
            right = _back(cudart, other, target) == [one * _WORDS + i for i in range(_WORDS)]
            runtime_call(cudart, "cudaFree", target)
            tell("copy", source=one, target=other, direct=bool(can.value), ok=right)


def _nccl_call(nccl, call, *arguments):
    code = getattr(nccl, call)(*arguments)
    if code:
        nccl.ncclGetErrorString.restype = ctypes.c_char_p
        raise Failed(call, code, nccl.ncclGetErrorString(code).decode("utf-8", "replace"))


def all_reduce(cudart, path, ordinals):
    """Compute one sum over all GPUs. The numbers are integers, so the order of additions does not matter."""
    begin("peers", "loading " + path)
    nccl = ctypes.CDLL(path)
    many = len(ordinals)
    comms, devices = (ctypes.c_void_p * many)(), (ctypes.c_int * many)(*ordinals)
    begin("peers", "making NCCL's communicators")
    _nccl_call(nccl, "ncclCommInitAll", comms, many, devices)
    arrays = [_numbers(cudart, o, [o + 1 + i % 7 for i in range(_WORDS)]) for o in ordinals]
    begin("peers", "running NCCL's all-reduce")
    _nccl_call(nccl, "ncclGroupStart")
    for ordinal, array, comm in zip(ordinals, arrays, comms):
        runtime_call(cudart, "cudaSetDevice", ordinal)
        # ncclFloat32 is 7, ncclSum is 0 in nccl.h
        _nccl_call(
            nccl, "ncclAllReduce", array, array, ctypes.c_size_t(_WORDS), 7, 0, ctypes.c_void_p(comm), None
        )
    _nccl_call(nccl, "ncclGroupEnd")
    want = [float(sum(o + 1 + i % 7 for o in ordinals)) for i in range(_WORDS)]
    tell("all_reduce", ok=all(_back(cudart, o, a) == want for o, a in zip(ordinals, arrays)))


def main():
    try:
        cudart = ctypes.CDLL(ASKED["libcudart"])
        copies(cudart, ASKED["ordinals"])
        if ASKED["libnccl"]:
            all_reduce(cudart, ASKED["libnccl"], ASKED["ordinals"])
    except Failed as failed:
        tell("failed", stage="peers", **failed.record)
    except (OSError, AttributeError) as error:
        tell("failed", stage="peers", call=str(error), code=None, name=None, text=None)


main()
finish()
