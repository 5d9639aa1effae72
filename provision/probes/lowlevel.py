"""Runs stages 1, 2 and 4 in one process. Their probes come before this one in the same text.

One process runs all three, because each CUDA context takes a quarter of a second. The stages are reported one
by one, and the first that fails ends the probe. Python runs it with -I -S. The driver needs no path of the
environment, so its stage runs while gpuenv searches the paths. They arrive on stdin.

The stages run in a child of this process, because a process that used CUDA ends slowly (the driver closes its
context). After a complete and correct report nobody waits for that.
"""

import signal


def stages():
    """Run the stages. Return whether this process may end slowly."""
    found = driver()
    if found is None:
        return False
    paths = json.loads(sys.stdin.readline() or "null")
    if paths is None:
        return False
    ASKED.update(paths)
    tell("paths")
    # In exclusive mode, or on a full GPU, what comes next needs this process to be gone.
    shared = all(d["compute_mode"] == 0 for d in found[1])
    ordinals = [d["index"] for d in found[1]]
    if ASKED.get("ordinal") is not None:
        if ASKED["ordinal"] not in ordinals:
            return False
        ordinals = [ASKED["ordinal"]]
    if not ASKED["libcudart"]:
        return False
    cudart, free = runtime(ASKED["libcudart"], ordinals)
    if cudart is None or not ASKED["libcudnn"]:
        return False
    right = cudnn(cudart, ASKED["libcudnn"], ASKED["helpers"], ordinals)
    return right and shared and free >= ASKED["low_memory_mib"]


def main():
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        if stages():
            leave_alone()
            os.write(writing, b"told")
        finish()
    os.close(writing)
    if os.read(reading, 4):
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    if os.WIFSIGNALED(status):  # a crash there is a crash here
        signal.signal(os.WTERMSIG(status), signal.SIG_DFL)
        os.kill(os.getpid(), os.WTERMSIG(status))
    os._exit(os.WEXITSTATUS(status))


main()
