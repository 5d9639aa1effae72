"""Checks several GPUs together, and GPUs that an environment reports against those of the machine."""

from __future__ import annotations

import glob
import os
import re
import time
from collections.abc import Collection, Mapping
from typing import Any

from ..model import Driver, Evidence, Machine
from ..profiles.failure_findings import make_finding
from . import judge_lowlevel, read_libraries, run_probe, status_causes
from .verification import Judgement, Verification, fail_with

_SECONDS = 60.0
# NCCL's NVLink multicast allocates in the switch that other machines share; a sum of kilobytes needs none.
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
        {"libcudart": cudart, "libnccl": _nccl(run), "ordinals": ordinals},
        run_probe.ChildSettings(
            environ={**_GENTLE, **run.environ},
            timeout=min(run.options.timeout, _SECONDS),
            options=("-I", "-S", "-B"),
        ),
    )
    run.add("peers", judge_peers(report, len(ordinals)), time.perf_counter() - start)


def _nccl(run: Verification) -> str | None:
    paths = [p for s in run.paths.sites for p in glob.glob(f"{glob.escape(s)}/nvidia/nccl/lib/libnccl.so.2")]
    if not paths and os.path.isdir(os.path.join(run.paths.prefix, "conda-meta")):
        paths = [p for p in [os.path.join(run.paths.prefix, "lib", "libnccl.so.2")] if os.path.exists(p)]
    return read_libraries.pick_library(paths, "libnccl")


def judge_peers(report: run_probe.ProbeReport, many: int) -> Judgement:
    """Pass where every copy and the sum are right; else a warning that says what did not work."""
    copies, sums, failed = report.all("copy"), report.last("all_reduce"), report.last("failed")
    wrong = [f"device {r['source']} to device {r['target']}" for r in copies if not r["ok"]]
    evidence = tuple(Evidence(text=_copy(r), source="cudaMemcpyPeer") for r in copies)
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


def _copy(r: Mapping[str, object]) -> str:
    how = "direct" if r["direct"] else "through the host"
    return f"device {r['source']} to device {r['target']}, {how}: {'right' if r['ok'] else 'wrong'}"


# --- hardware that only the environment reports ---


def check_driver_claims(saw: Mapping[str, Any], machine: Machine) -> Judgement | None:
    """Return a failure if stage 1 reports other GPUs or another driver than gpuenv reads, else None."""
    uuids = [d["uuid"] for d in saw.get("devices", ())] + list(saw.get("mig", ()))
    return _unknown("the environment's Python", uuids, machine) or _other_driver(saw, machine.driver)


def check_framework_claims(name: str, saw: Mapping[str, Any], machine: Machine) -> Judgement | None:
    """Return a failure if a framework reports GPUs that gpuenv does not read, else None.

    JAX and TensorFlow report no UUIDs.
    """
    return _unknown(name, [d["uuid"] for d in saw.get("devices", ()) if d["uuid"]], machine)


def _unknown(who: str, uuids: Collection[str], machine: Machine) -> Judgement | None:
    known = {_digits(u) for g in machine.gpus for u in (g.uuid, *g.mig) if u}
    unread = sum(g.uuid is None for g in machine.gpus)  # GPUs that gpuenv may not ask
    strange = [u for u in dict.fromkeys(uuids) if _digits(u) not in known]
    if len(strange) <= unread:
        return None
    read = ", ".join(str(g.uuid) for g in machine.gpus) or machine.driver.problem or "no GPU"
    return _contradicted(
        f"{who} reports the GPU {strange[0]}, which this machine does not have", ", ".join(strange), read
    )


def _digits(uuid: str) -> str:
    """Return the digits of a UUID: CUDA and NVML write different prefixes.

    Drivers before R470 name a MIG device by its card.
    """
    match = re.search(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", uuid.lower())
    return match.group(0) if match else uuid


def _other_driver(saw: Mapping[str, Any], driver: Driver) -> Judgement | None:
    """Compare the reported kernel module and libcuda with the machine's. A cuda-compat libcuda has another
    version on purpose."""
    module, library = saw.get("kernel_module"), judge_lowlevel.parse_libcuda_version(saw)
    if (driver.kernel_module or module) and module != (driver.kernel_module or driver.library):
        return _differs(f"the kernel module {module}" if module else "no kernel module", driver)
    compat = any("compat" in (path or "") for path in (saw.get("libcuda"), driver.libcuda))
    if library and driver.library and library not in (driver.library, driver.kernel_module) and not compat:
        return _differs(f"libcuda {library}", driver)
    return None


def _differs(reported: str, driver: Driver) -> Judgement:
    read = driver.kernel_module or driver.library or "none"
    return _contradicted(
        f"the environment's Python reports {reported}; this machine's driver is {read}",
        reported,
        f"driver {read}",
    )


def _contradicted(title: str, reported: str, read: str) -> Judgement:
    return fail_with(
        make_finding(
            "hardware_not_of_machine",
            (Evidence(text=reported, source="reported"), Evidence(text=read, source="read by gpuenv")),
            confidence="certain",
            difference=title[0].upper() + title[1:],
        )
    )
