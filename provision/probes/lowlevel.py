"""Runs stages 1, 2 and 4, whose probes stand before this one in the same text.

One process for all three, because each CUDA context costs a quarter of a second; the stages are told
one by one, and the first that fails ends the probe. Run with -I -S. The driver needs none of the
environment's paths, so it is looked at while they are still searched: they come in by stdin.

The stages run in a child of this process, because a process that used CUDA takes long to end (the
driver takes its context apart): once all is told and right, nobody needs to wait for that.
"""

import signal


def stages():
    """Run them; whether this process may be left to end by itself."""
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
