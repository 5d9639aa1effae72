"""Checks several GPUs together: copies between them, and a sum by NCCL."""

from __future__ import annotations

import glob
import os
import time
from collections.abc import Mapping

from ..model import Evidence
from . import judge_lowlevel, read_libraries, run_probe, status_causes
from .verification_state import Judgement, Verification

_SECONDS = 60.0
# NCCL's NVLink multicast allocates in the switch, which other machines share. A sum of kilobytes needs none.
_GENTLE = {"NCCL_NVLS_ENABLE": "0"}


def run_peers(run: Verification) -> None:
    """Add the stage where several GPUs are to be verified and the stages below it passed."""
    if run.lowlevel is None or run.broken or run.ordinal is not None:
        return
    ordinals = [d["index"] for d in judge_lowlevel.read_stage(run.lowlevel, "driver").get("devices", ())]
    cudart = judge_lowlevel.read_stage(run.lowlevel, "runtime").get("libcudart")
    if len(ordinals) < 2 or not cudart:
        return
    start = time.perf_counter()
    report = run_probe.run_probe(
        run.env.python,
        ("report", "driver", "runtime", "peers"),
        {"libcudart": cudart, "libnccl": _find_nccl(run), "ordinals": ordinals},
        run_probe.ChildSettings(
            environ={**_GENTLE, **run.environ},
            timeout=min(run.options.timeout, _SECONDS),
            options=("-I", "-S", "-B"),
        ),
    )
    run.add("peers", judge_peers(report, len(ordinals)), time.perf_counter() - start)


def _find_nccl(run: Verification) -> str | None:
    paths = [p for s in run.paths.sites for p in glob.glob(f"{glob.escape(s)}/nvidia/nccl/lib/libnccl.so.2")]
    if not paths and os.path.isdir(os.path.join(run.paths.prefix, "conda-meta")):
        paths = [p for p in [os.path.join(run.paths.prefix, "lib", "libnccl.so.2")] if os.path.exists(p)]
    return read_libraries.pick_library(paths, "libnccl")


def judge_peers(report: run_probe.ProbeReport, many: int) -> Judgement:
    """Pass where every copy and the sum are right; else a warning that says what did not work."""
    copies, sums, failed = report.all("copy"), report.last("all_reduce"), report.last("failed")
    wrong = [f"device {r['source']} to device {r['target']}" for r in copies if not r["ok"]]
    evidence = tuple(Evidence(text=_describe_copy(r), source="cudaMemcpyPeer") for r in copies)
    if report.death or failed or wrong or (sums and not sums["ok"]):
        what = report.death or (status_causes.describe_call(failed) if failed else None)
        what = what or ("wrong copies: " + ", ".join(wrong) if wrong else "NCCL's sum is wrong")
        advice = "single GPUs work. For problems with several GPUs, check nvidia-smi topo -m and the IOMMU setting, and run with NCCL_DEBUG=INFO"
        return Judgement(status="warn", detail=f"{what}; {advice}", evidence=(*evidence, *report.words(4)))
    direct = sum(bool(r["direct"]) for r in copies)
    summed = "NCCL's all-reduce gives correct results" if sums else "the environment does not contain NCCL"
    return Judgement(
        status="pass",
        detail=f"{many} GPUs: {len(copies)} data transfers between them are correct, {direct} of them direct; {summed}",
        evidence=evidence,
    )


def _describe_copy(r: Mapping[str, object]) -> str:
    how = "direct" if r["direct"] else "through the host"
    return f"device {r['source']} to device {r['target']}, {how}: {'right' if r['ok'] else 'wrong'}"
