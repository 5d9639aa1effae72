"""Judges stages 1, 2 and 4 from the report of the low-level probe.

It also compares the hardware that an environment reports with the machine's.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Container, Mapping, Sequence
from typing import Any

from ..model import Driver, Evidence, Finding, Machine
from ..profiles.findings import make_finding
from . import message_causes, run_probe, status_causes
from .early_probes import LOW_MEMORY_MIB
from .read_libraries import format_cudnn_version, is_inside
from .verification_state import Judgement, fail_with


def find_record(report: run_probe.ProbeReport, stage: str) -> run_probe.Record | None:
    return next((r for r in report.all("stage") if r["stage"] == stage), None)


def read_stage(report: run_probe.ProbeReport, stage: str) -> Mapping[str, Any]:
    """Return the values that a stage reported; empty if it was not reached."""
    record = find_record(report, stage)
    return record["values"] if record else {}


def _judge_death(report: run_probe.ProbeReport, stage: str) -> Judgement | None:
    """Judge a stage in which the process exited early, was killed by a signal, or reached the deadline."""
    if report.death is None or report.stage != stage or find_record(report, stage):
        return None
    finding = _explain_death(report, stage)
    return Judgement(
        status="fail", detail=report.death, evidence=report.words(), findings=(finding,) if finding else ()
    )


def _explain_death(report: run_probe.ProbeReport, stage: str) -> Finding | None:
    evidence = (Evidence(text=report.death or "", source=stage), *report.words(3))
    if stage == "cudnn" and report.finished.signal == "SIGBUS":
        return make_finding("cudnn_file_truncated", evidence)
    if stage in ("driver", "runtime") and report.finished.timed_out:
        return make_finding("driver_does_not_answer", evidence, confidence="possible")
    return None


def judge_driver(report: run_probe.ProbeReport, ordinal: int | None) -> Judgement:
    """Judge stage 1."""
    died = _judge_death(report, "driver")
    if died:
        return died
    record = find_record(report, "driver")
    if record is None:
        return Judgement(
            status="fail", detail=report.death or "the test process reported nothing", evidence=report.words()
        )
    saw = record["values"]
    evidence = _list_driver_evidence(saw)
    if record["failed"]:
        finding = status_causes.explain_cuda_call(record["failed"], saw, saw)
        return Judgement(
            status="fail",
            detail=status_causes.describe_call(record["failed"]),
            evidence=evidence,
            findings=(finding,) if finding else (),
        )
    devices = saw["devices"]
    if ordinal is not None and ordinal not in [d["index"] for d in devices]:
        return _judge_missing_ordinal(ordinal, saw, evidence)
    names = ", ".join(f"{d['name']} ({d['capability']})" for d in devices)
    mismatch = _explain_mismatch(saw)
    return Judgement(
        status="warn" if mismatch else "pass",
        detail=f"driver {saw['kernel_module'] or parse_libcuda_version(saw) or 'of unknown version'}, "
        f"CUDA {saw['cuda']}: {names}",
        evidence=evidence,
        findings=(mismatch,) if mismatch else (),
    )


def _list_driver_evidence(saw: Mapping[str, Any]) -> tuple[Evidence, ...]:
    rows = [
        (saw.get("libcuda"), "libcuda.so.1"),
        (saw.get("kernel_module"), "/proc/driver/nvidia/version"),
    ]
    if saw.get("visible") is not None:
        rows.append((f"CUDA_VISIBLE_DEVICES={saw['visible']}", "environment"))
    rows += [(f["problem"], f["path"]) for f in saw.get("files", ()) if f["problem"]]
    return tuple(Evidence(text=text, source=where) for text, where in rows if text)


def _judge_missing_ordinal(ordinal: int, saw: Mapping[str, Any], evidence: tuple[Evidence, ...]) -> Judgement:
    many = len(saw["devices"])
    finding = make_finding(
        "device_not_visible",
        evidence,
        confidence="certain",
        device=ordinal,
        count=many,
        choices=f"one of cuda:0 to cuda:{many - 1}" if many > 1 else "cuda:0",
    )
    return fail_with(finding)


def parse_libcuda_version(saw: Mapping[str, Any]) -> str | None:
    """Return the driver's version in the file name of libcuda."""
    match = re.search(r"libcuda\.so\.(\d+\.\d+(\.\d+)?)$", os.path.realpath(saw.get("libcuda") or ""))
    return match.group(1) if match else None


def _explain_mismatch(saw: Mapping[str, Any]) -> Finding | None:
    """Return the finding for a libcuda of another version than the module. A cuda-compat library differs on
    purpose."""
    version, module = parse_libcuda_version(saw), saw.get("kernel_module")
    if not version or not module or version == module or "compat" in (saw.get("libcuda") or ""):
        return None
    return make_finding(
        "libcuda_differs_from_module",
        _list_driver_evidence(saw),
        confidence="possible",
        library=version,
        module=module,
    )


def judge_runtime(report: run_probe.ProbeReport, unopened: Callable[[str], Finding | None]) -> Judgement:
    """Judge stage 2. `unopened` returns the cause of a message of the loader."""
    died = _judge_death(report, "runtime")
    if died:
        return died
    record = find_record(report, "runtime")
    if record is None and report.malformed:
        return Judgement(status="fail", detail=str(report.death), evidence=report.words())
    if record is None:
        return Judgement(status="skip", detail="the environment contains no CUDA runtime")
    saw = record["values"]
    memory = status_causes.list_memory(saw)
    if record["failed"]:
        finding = status_causes.explain_cuda_call(record["failed"], saw, read_stage(report, "driver"))
        if finding is None and record["failed"].get("code") is None:
            words = status_causes.describe_call(record["failed"])
            evidence = (Evidence(text=words, source="libcudart"),)
            finding = unopened(words) or message_causes.explain_loader_message(words, evidence)
        return Judgement(
            status="fail",
            detail=status_causes.describe_call(record["failed"]),
            evidence=memory,
            findings=(finding,) if finding else (),
        )
    free = ", ".join(f"{m['free_mib']} of {m['total_mib']} MiB free" for m in saw["memory"])
    detail = f"CUDA runtime {saw['version']}: {free}"
    where = Evidence(text=saw["libcudart"], source="libcudart")
    if find_low_memory(report) is None:
        return Judgement(status="pass", detail=detail, evidence=(where, *memory))
    finding = status_causes.explain_memory(f"Little GPU memory is free: {free}", saw, memory, "possible")
    return Judgement(status="warn", detail=detail, evidence=(where, *memory), findings=(finding,))


def find_low_memory(report: run_probe.ProbeReport) -> Mapping[str, Any] | None:
    """Return the values of stage 2 if little GPU memory is free, else None."""
    saw = read_stage(report, "runtime")
    return saw if any(m["free_mib"] < LOW_MEMORY_MIB for m in saw.get("memory", ())) else None


def judge_cudnn(
    report: run_probe.ProbeReport, roots: Sequence[str], owned: Container[str], bundled: str | None
) -> Judgement:
    """Judge stage 4. `bundled` is the environment's libcudnn, or None.

    `owned` are the resolved paths of the environment's libraries, because uv can link them from its cache.
    """
    died = _judge_death(report, "cudnn")
    if died:
        return died
    record = find_record(report, "cudnn")
    if record is None:
        return Judgement(
            status="fail",
            detail=report.death or "cuDNN was not tested, because an earlier step failed",
            evidence=report.words(),
        )
    saw = record["values"]
    files = [p for p, _ in saw["mapped"]]
    elsewhere = [p for p in files if not is_inside(p, roots) and os.path.realpath(p) not in owned]
    foreign = tuple(p for p in elsewhere if bundled and os.path.basename(p).startswith("libcudnn"))
    evidence = tuple(Evidence(text=p, source="mapped") for p in files if "libcudnn" in p)
    if record["failed"]:
        return _judge_cudnn_call(report, record["failed"], evidence, foreign)
    if foreign:
        finding = make_finding("cudnn_from_outside", evidence, library=foreign[0])
        return fail_with(finding, foreign)
    return Judgement(
        status="pass",
        detail=f"cuDNN {format_cudnn_version(saw['number'])}: a convolution through ctypes gives the correct result",
        evidence=evidence,
    )


def _judge_cudnn_call(
    report: run_probe.ProbeReport,
    failed: Mapping[str, Any],
    evidence: tuple[Evidence, ...],
    foreign: tuple[str, ...],
) -> Judgement:
    finding = status_causes.explain_cudnn_call(failed, report.complaints(), find_low_memory(report))
    return Judgement(
        status="fail",
        detail=status_causes.describe_call(failed),
        evidence=report.complaints() + evidence,
        findings=(finding,) if finding else (),
        foreign=foreign,
    )


def is_wrong(report: run_probe.ProbeReport, judged: Judgement) -> bool:
    """Return whether stage 4 computed wrong numbers, or used another cuDNN than the environment's."""
    failed = (find_record(report, "cudnn") or {"failed": {"call": ""}})["failed"]
    return (
        bool(judged.foreign)
        if failed is None
        else failed["call"] == "cudnnConvolutionForward" and not failed["code"]
    )


# --- hardware that only the environment reports ---


def check_driver_claims(saw: Mapping[str, Any], machine: Machine) -> Judgement | None:
    """Return a failure if stage 1 reports other GPUs or another driver than gpuenv reads, else None."""
    uuids = [d["uuid"] for d in saw.get("devices", ())] + list(saw.get("mig", ()))
    return _check_uuids("the environment's Python", uuids, machine) or _check_driver_version(
        saw, machine.driver
    )


def check_framework_claims(name: str, saw: Mapping[str, Any], machine: Machine) -> Judgement | None:
    """Return a failure if a framework reports GPUs that gpuenv does not read, else None.

    JAX and TensorFlow report no UUIDs.
    """
    return _check_uuids(name, [d["uuid"] for d in saw.get("devices", ()) if d["uuid"]], machine)


def _check_uuids(who: str, uuids: Collection[str], machine: Machine) -> Judgement | None:
    known = {_strip_uuid(u) for g in machine.gpus for u in (g.uuid, *g.mig) if u}
    unread = sum(g.uuid is None for g in machine.gpus)  # GPUs that gpuenv may not read
    strange = [u for u in dict.fromkeys(uuids) if _strip_uuid(u) not in known]
    if len(strange) <= unread:
        return None
    read = ", ".join(str(g.uuid) for g in machine.gpus) or machine.driver.problem or "no GPU"
    return _judge_contradiction(
        f"{who} reports the GPU {strange[0]}, which this machine does not have", ", ".join(strange), read
    )


def _strip_uuid(uuid: str) -> str:
    """Return the digits of a UUID: CUDA and NVML write different prefixes.

    Drivers before R470 name a MIG device by its card.
    """
    match = re.search(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", uuid.lower())
    return match.group(0) if match else uuid


def _check_driver_version(saw: Mapping[str, Any], driver: Driver) -> Judgement | None:
    """Compare the reported kernel module and libcuda with the machine's. A cuda-compat libcuda has another
    version on purpose."""
    module, library = saw.get("kernel_module"), parse_libcuda_version(saw)
    if (driver.kernel_module or module) and module != (driver.kernel_module or driver.library):
        return _judge_other_driver(f"the kernel module {module}" if module else "no kernel module", driver)
    compat = any("compat" in (path or "") for path in (saw.get("libcuda"), driver.libcuda))
    if library and driver.library and library not in (driver.library, driver.kernel_module) and not compat:
        return _judge_other_driver(f"libcuda {library}", driver)
    return None


def _judge_other_driver(reported: str, driver: Driver) -> Judgement:
    read = driver.kernel_module or driver.library or "none"
    return _judge_contradiction(
        f"the environment's Python reports {reported}; this machine's driver is {read}",
        reported,
        f"driver {read}",
    )


def _judge_contradiction(title: str, reported: str, read: str) -> Judgement:
    return fail_with(
        make_finding(
            "hardware_not_of_machine",
            (Evidence(text=reported, source="reported"), Evidence(text=read, source="read by gpuenv")),
            confidence="certain",
            difference=title[0].upper() + title[1:],
        )
    )
