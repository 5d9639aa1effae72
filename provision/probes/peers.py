"""The stage peers by ctypes alone: copies between each pair of GPUs, and NCCL with one process for each GPU.

Each part runs in children of this process, which itself never uses CUDA. A child that hangs is killed at its deadline.
If NCCL fails, it runs again without peer access, then without shared memory as well, to see which way does not work. At
last it runs without the user's own variables.
"""

import ctypes
import signal

_BYTES = 32 << 20
_WORDS = 1 << 20
# The ways between GPUs that NCCL takes, in its own order. NVLink multicast allocates in the switch, which other
# machines share, so it stays off.
_ARMS = ({}, {"NCCL_P2P_DISABLE": "1"}, {"NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1"})


def run_children(jobs, seconds):
    """Run each job in a child. Return how each ended: None for well, a text otherwise."""
    children, parent = [], os.getpid()
    for job in jobs:
        child = os.fork()
        if child == 0:
            die_with_parent(parent)
            try:
                job()
            except Failed as failed:
                tell("failed", stage="peers", **failed.record)
            except (OSError, AttributeError) as error:
                tell("failed", stage="peers", call=str(error), code=None, name=None, text=None)
            else:
                finish()
            _flush()
            os._exit(1)
        children.append(child)
    ends, left = dict.fromkeys(children), set(children)
    until = time.perf_counter() + seconds
    while left and time.perf_counter() < until:
        for child in list(left):
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                left.discard(child)
                if os.WIFSIGNALED(status):
                    ends[child] = "ended by %s" % signal.Signals(os.WTERMSIG(status)).name
                elif os.WEXITSTATUS(status):
                    ends[child] = "failed"
                if ends[child]:  # the other ranks wait for it in vain
                    until = min(until, time.perf_counter() + 1)
        time.sleep(0.005)
    for child in left:  # one that hangs in the driver does not end by a signal, so nobody waits for it
        os.kill(child, signal.SIGKILL)
        ends[child] = "no answer within %g s" % seconds
    return [ends[child] for child in children]


# --- copies --------------------------------------------------------------------------------------


def _reserve(cudart, ordinal, data=None, size=0):
    """Return memory of a device, with these bytes if there are any."""
    runtime_call(cudart, "cudaSetDevice", ordinal)
    pointer, size = ctypes.c_void_p(), ctypes.c_size_t(len(data) if data else size)
    runtime_call(cudart, "cudaMalloc", ctypes.byref(pointer), size)
    if data:
        runtime_call(cudart, "cudaMemcpy", pointer, data, size, 1)
    return pointer


def _fastest(cudart, copy):
    """Return the speed in GB/s of the fastest of three copies."""
    best = 0.0
    for _ in range(3):
        began = time.perf_counter()
        copy()
        runtime_call(cudart, "cudaDeviceSynchronize")
        best = max(best, _BYTES / (time.perf_counter() - began) / 1e9)
    return round(best, 1)


def copies(cudart, ordinals):
    """Copy between each ordered pair of GPUs with peer access, and once through the host's memory.

    The two speeds show the route. Whether the driver allows access is no proof that data arrives.
    """
    size, sent = ctypes.c_size_t(_BYTES), os.urandom(_BYTES)
    arrays = {o: _reserve(cudart, o, sent) for o in ordinals}
    targets = {o: _reserve(cudart, o, size=_BYTES) for o in ordinals}
    host, read = ctypes.c_void_p(), ctypes.create_string_buffer(_BYTES)
    runtime_call(cudart, "cudaMallocHost", ctypes.byref(host), size)

    def through_host():
        source, target = ordinals[:2]
        for one, *ends, kind in ((source, host, arrays[source], 2), (target, targets[target], host, 1)):
            runtime_call(cudart, "cudaSetDevice", one)
            runtime_call(cudart, "cudaMemcpy", *(ends + [size, kind]))

    slow = _fastest(cudart, through_host)
    for one in ordinals:
        for other in ordinals:
            if one == other:
                continue
            begin("peers", "copying from device %d to device %d" % (one, other))
            can = ctypes.c_int()
            runtime_call(cudart, "cudaSetDevice", other)
            runtime_call(cudart, "cudaDeviceCanAccessPeer", ctypes.byref(can), other, one)
            if can.value:
                runtime_call(cudart, "cudaDeviceEnablePeerAccess", one, 0)
            runtime_call(cudart, "cudaMemset", targets[other], 0, size)
            speed = _fastest(
                cudart,
                lambda: runtime_call(cudart, "cudaMemcpyPeer", targets[other], other, arrays[one], one, size),
            )
            runtime_call(cudart, "cudaMemcpy", read, targets[other], size, 2)
            tell(
                "copy",
                source=one,
                target=other,
                access=bool(can.value),
                speed=speed,
                host_speed=slow,
                ok=read.raw == sent,
            )


# --- NCCL ----------------------------------------------------------------------------------------


class _Id(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_byte * 128)]


def _nccl_call(nccl, call, *arguments):
    code = getattr(nccl, call)(*arguments)
    if code:
        nccl.ncclGetErrorString.restype = ctypes.c_char_p
        raise Failed(call, code, nccl.ncclGetErrorString(code).decode("utf-8", "replace"))


def rank(cudart, path, ordinals, me, ends):
    """Run one rank: send and receive megabytes with each other rank, then sum over all.

    The numbers are integers, so the order of additions does not matter. `ends` is a pipe, through which rank 0 sends
    the id of the communicator.
    """
    import array

    nccl, unique, comm = ctypes.CDLL(path), _Id(), ctypes.c_void_p()
    if me == 0:
        begin("peers", "making NCCL's communicator")
        _nccl_call(nccl, "ncclGetUniqueId", ctypes.byref(unique))
        os.write(ends[1], bytes(unique) * (len(ordinals) - 1))
    else:
        unique = _Id.from_buffer_copy(os.read(ends[0], 128))
    runtime_call(cudart, "cudaSetDevice", ordinals[me])
    _nccl_call(nccl, "ncclCommInitRank", ctypes.byref(comm), len(ordinals), unique, me)
    size = ctypes.c_size_t(_WORDS)

    def numbers(of):
        return (array.array("f", [of + 1.0 + i for i in range(8)]) * (_WORDS // 8)).tobytes()

    mine = _reserve(cudart, ordinals[me], numbers(me))
    read, got = ctypes.create_string_buffer(_WORDS * 4), _reserve(cudart, ordinals[me], size=_WORDS * 4)

    def arrived():
        runtime_call(cudart, "cudaDeviceSynchronize")
        runtime_call(cudart, "cudaMemcpy", read, got, ctypes.c_size_t(_WORDS * 4), 2)
        return read.raw

    for step in range(1, len(ordinals)):
        to, back = (me + step) % len(ordinals), (me - step) % len(ordinals)
        if me == 0:
            begin("peers", "sending with NCCL between devices that are %d apart" % step)
        _nccl_call(nccl, "ncclGroupStart")
        # ncclFloat32 is 7, ncclSum is 0 in nccl.h
        _nccl_call(nccl, "ncclSend", mine, size, 7, to, comm, None)
        _nccl_call(nccl, "ncclRecv", got, size, 7, back, comm, None)
        _nccl_call(nccl, "ncclGroupEnd")
        tell("sent", source=ordinals[back], target=ordinals[me], ok=arrived() == numbers(back))
    if me == 0:
        begin("peers", "running NCCL's all-reduce")
    _nccl_call(nccl, "ncclAllReduce", mine, got, size, 7, 0, comm, None)
    many = len(ordinals)
    want = array.array("f", [many * (many - 1) / 2 + many * (1.0 + i) for i in range(8)]) * (_WORDS // 8)
    tell("all_reduce", device=ordinals[me], ok=arrived() == want.tobytes())


def peers():
    cudart, ordinals = ctypes.CDLL(ASKED["libcudart"]), ASKED["ordinals"]
    run_children([lambda: copies(cudart, ordinals)], ASKED["seconds"])
    arms = (*_ARMS, {}) if ASKED["variables"] else _ARMS
    for number, arm in enumerate(arms if ASKED["libnccl"] else ()):
        if number == len(_ARMS):
            for name in (*ASKED["variables"], *_ARMS[-1]):
                os.environ.pop(name, None)
        os.environ.update(arm)
        ends = os.pipe()
        tell("arm", variables=sorted(arm))
        jobs = [
            lambda me=me: rank(cudart, ASKED["libnccl"], ordinals, me, ends) for me in range(len(ordinals))
        ]
        failures = [end for end in run_children(jobs, ASKED["seconds"]) if end]
        tell("arm_end", failures=failures)
        if not failures:
            break


if __name__ == "__main__":
    peers()
    finish()
