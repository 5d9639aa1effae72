"""Runs stages 1, 2 and 4, whose probes stand before this one in the same text.

One process for all three, because each CUDA context costs a quarter of a second; the stages are told
one by one, and the first that fails ends the probe. Run with -I -S; the paths of the environment's
libraries come in as arguments.
"""


def main():
    found = driver()
    if found is None:
        return
    ordinals = [d["index"] for d in found[1]]
    if ASKED.get("ordinal") is not None:
        if ASKED["ordinal"] not in ordinals:
            return
        ordinals = [ASKED["ordinal"]]
    if not ASKED["libcudart"]:
        return
    cudart = runtime(ASKED["libcudart"], ordinals)
    if cudart is not None and ASKED["libcudnn"]:
        cudnn(cudart, ASKED["libcudnn"], ASKED["helpers"], ordinals)


main()
finish()
