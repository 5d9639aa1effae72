"""Judges stages 1, 2 and 4 from the report of the low-level probe."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any

from ..model import Evidence, Finding
from ..profiles.failure_findings import make_finding
from . import message_causes, run_probe, status_causes
from .prefetch import LOW_MEMORY_MIB
from .read_libraries import is_inside, pick_library
from .verification import Judgement, fail_with


def choose_libraries(files: Sequence[str], *, major: str | None, system: bool) -> dict[str, Any]:
    """Return the libraries that stages 2 and 4 load. `major` is the CUDA major version of the environment.

    `system` allows the loader's libcudart and libcudnn if the environment contains none.
    """
    cudnn = pick_library(files, "libcudnn")
    cudart = pick_library(files, "libcudart", major) or pick_library(files, "libcudart")
    sonames = {"13": "libcudart.so.13", "12": "libcudart.so.12", "11": "libcudart.so.11.0"}
    fallback = [s for m, s in sonames.items() if system and major in (None, m)]
    return {
        "libcudart": [cudart] if cudart else fallback,
        "libcudnn": cudnn or ("libcudnn.so.9" if system else None),
        "helpers": [
            p for f in ("libnvrtc", "libcublasLt", "libcublas") if (p := pick_library(files, f, major))
        ],
    }


def find_record(report: run_probe.ProbeReport, stage: str) -> run_probe.Record | None:
    return next((r for r in report.all("stage") if r["stage"] == stage), None)


def read_stage(report: run_probe.ProbeReport, stage: str) -> Mapping[str, Any]:
    """Return the values that a stage reported; empty if it was not reached."""
    record = find_record(report, stage)
    return record["told"] if record else {}


def _died(report: run_probe.ProbeReport, stage: str) -> Judgement | None:
    """Judge a stage in which the process exited early, was killed by a signal, or reached the deadline."""
    if report.death is None or report.stage != stage or find_record(report, stage):
        return None
    finding = _death_cause(report, stage)
    return Judgement(
        status="fail", detail=report.death, evidence=report.words(), findings=(finding,) if finding else ()
    )


def _death_cause(report: run_probe.ProbeReport, stage: str) -> Finding | None:
    evidence = (Evidence(text=report.death or "", source=stage), *report.words(3))
    if stage == "cudnn" and report.finished.signal == "SIGBUS":
        return make_finding("cudnn_file_truncated", evidence)
    if stage in ("driver", "runtime") and report.finished.timed_out:
        return make_finding("driver_does_not_answer", evidence, confidence="possible")
    return None


def judge_driver(report: run_probe.ProbeReport, ordinal: int | None) -> Judgement:
    """Judge stage 1."""
    died = _died(report, "driver")
    if died:
        return died
    record = find_record(report, "driver")
    if record is None:
        return Judgement(
            status="fail", detail=report.death or "the test process reported nothing", evidence=report.words()
        )
    saw = record["told"]
    evidence = _driver_evidence(saw)
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
        return _no_ordinal(ordinal, saw, evidence)
    names = ", ".join(f"{d['name']} ({d['capability']})" for d in devices)
    mismatch = _mismatch(saw)
    return Judgement(
        status="warn" if mismatch else "pass",
        detail=f"driver {saw['kernel_module'] or parse_libcuda_version(saw) or 'of unknown version'}, "
        f"CUDA {saw['cuda']}: {names}",
        evidence=evidence,
        findings=(mismatch,) if mismatch else (),
    )


def _driver_evidence(saw: Mapping[str, Any]) -> tuple[Evidence, ...]:
    rows = [
        (saw.get("libcuda"), "libcuda.so.1"),
        (saw.get("kernel_module"), "/proc/driver/nvidia/version"),
    ]
    if saw.get("visible") is not None:
        rows.append((f"CUDA_VISIBLE_DEVICES={saw['visible']}", "environment"))
    rows += [(f["problem"], f["path"]) for f in saw.get("files", ()) if f["problem"]]
    return tuple(Evidence(text=text, source=where) for text, where in rows if text)


def _no_ordinal(ordinal: int, saw: Mapping[str, Any], evidence: tuple[Evidence, ...]) -> Judgement:
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


def _mismatch(saw: Mapping[str, Any]) -> Finding | None:
    """Return the finding for a libcuda of another version than the module. A cuda-compat library differs on
    purpose."""
    version, module = parse_libcuda_version(saw), saw.get("kernel_module")
    if not version or not module or version == module or "compat" in (saw.get("libcuda") or ""):
        return None
    return make_finding(
        "libcuda_differs_from_module",
        _driver_evidence(saw),
        confidence="possible",
        library=version,
        module=module,
    )


def judge_runtime(report: run_probe.ProbeReport, unopened: Callable[[str], Finding | None]) -> Judgement:
    """Judge stage 2. `unopened` returns the cause of a message of the loader."""
    died = _died(report, "runtime")
    if died:
        return died
    record = find_record(report, "runtime")
    if record is None and report.malformed:
        return Judgement(status="fail", detail=str(report.death), evidence=report.words())
    if record is None:
        return Judgement(status="skip", detail="the environment contains no CUDA runtime")
    saw = record["told"]
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
    died = _died(report, "cudnn")
    if died:
        return died
    record = find_record(report, "cudnn")
    if record is None:
        return Judgement(
            status="fail",
            detail=report.death or "cuDNN was not tested, because an earlier step failed",
            evidence=report.words(),
        )
    saw = record["told"]
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


def format_cudnn_version(value: Any) -> str | None:
    """Return cuDNN's version number in three parts: 8907 is 8.9.7, 91002 is 9.10.2.

    Some frameworks report a list, [9, 19, 0], or a string.
    """
    if value is None:
        return None
    if isinstance(value, (list, tuple)):
        return ".".join(str(v) for v in value)
    if isinstance(value, str):
        return value
    if value >= 90000:
        return f"{value // 10000}.{value // 100 % 100}.{value % 100}"
    return f"{value // 1000}.{value // 100 % 10}.{value % 100}"


def shorten_version(version: str | None) -> str | None:
    """Return the three parts of a cuDNN version on which plan and loaded library must agree."""
    return None if version is None else ".".join(version.split(".")[:3])
