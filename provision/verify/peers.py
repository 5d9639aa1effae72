"""Several GPUs: can they copy to each other and add up together. Only a warning, for one GPU needs neither."""

from __future__ import annotations

import glob
import os
import time
from collections.abc import Mapping

from ..model import Evidence
from . import causes, layers, libraries, probe
from .judged import Judged
from .state import Run

_SECONDS = 60.0
# NCCL's NVLink multicast allocates in the switch that other machines share; a sum of kilobytes needs none.
_GENTLE = {"NCCL_NVLS_ENABLE": "0"}


def stage(run: Run) -> None:
    """Add the stage where several GPUs are to be verified and the stages below it passed."""
    if run.told is None or run.broken or run.ordinal is not None:
        return
    ordinals = [d["index"] for d in layers.seen(run.told, "driver").get("devices", ())]
    cudart = layers.seen(run.told, "runtime").get("libcudart")
    if len(ordinals) < 2 or not cudart:
        return
    start = time.perf_counter()
    told = probe.run(
        run.env.python,
        ("report", "driver", "runtime", "peers"),
        {"libcudart": cudart, "libnccl": _nccl(run), "ordinals": ordinals},
        environ={**_GENTLE, **run.environ},
        timeout=min(run.options.timeout, _SECONDS),
        options=("-I", "-S", "-B"),
    )
    run.add("peers", judge(told, len(ordinals)), time.perf_counter() - start)


def _nccl(run: Run) -> str | None:
    found = [p for s in run.found.sites for p in glob.glob(f"{glob.escape(s)}/nvidia/nccl/lib/libnccl.so.2")]
    if not found and os.path.isdir(os.path.join(run.found.prefix, "conda-meta")):
        found = [p for p in [os.path.join(run.found.prefix, "lib", "libnccl.so.2")] if os.path.exists(p)]
    return libraries.pick(found, "libnccl")


def judge(told: probe.Told, many: int) -> Judged:
    """Pass where every copy and the sum are right; else a warning that says what did not work."""
    copies, sums, failed = told.all("copy"), told.last("all_reduce"), told.last("failed")
    wrong = [f"device {r['source']} to device {r['target']}" for r in copies if not r["ok"]]
    evidence = tuple(Evidence(text=_copy(r), source="cudaMemcpyPeer") for r in copies)
    if told.death or failed or wrong or (sums and not sums["ok"]):
        what = told.death or (causes.called(failed) if failed else None)
        what = what or ("wrong copies: " + ", ".join(wrong) if wrong else "NCCL's sum is wrong")
        advice = (
            "one GPU at a time works; for several, look at nvidia-smi topo -m, the IOMMU and NCCL_DEBUG=INFO"
        )
        return Judged(status="warn", detail=f"{what}; {advice}", evidence=(*evidence, *told.words(4)))
    direct = sum(bool(r["direct"]) for r in copies)
    summed = "NCCL's all-reduce is right" if sums else "the environment brings no NCCL"
    return Judged(
        status="pass",
        detail=f"{many} GPUs: {len(copies)} copies between them are right, {direct} direct; {summed}",
        evidence=evidence,
    )


def _copy(r: Mapping[str, object]) -> str:
    how = "direct" if r["direct"] else "through the host"
    return f"device {r['source']} to device {r['target']}, {how}: {'right' if r['ok'] else 'wrong'}"
