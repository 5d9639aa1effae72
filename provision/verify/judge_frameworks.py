"""Judges stages 5, 6 and 7 from the report of a framework's process."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..model import FRAMEWORKS, Environment, Evidence, Finding, FrameworkVerdict, Lock
from ..profiles.findings import make_finding
from ..system.redaction import clean
from . import judge_loaded, message_causes, run_probe, status_causes
from .read_libraries import format_cudnn_version, is_inside
from .verification_state import FrameworkContext, Judgement, fail_with


@dataclass(frozen=True, kw_only=True, slots=True)
class FrameworkOutcome:
    """The three stages of a framework, in order, and its verdict.

    `wrong` is true if numbers were wrong, or another cuDNN than the environment's ran.
    """

    name: str
    stages: tuple[tuple[str, Judgement], ...]
    verdict: FrameworkVerdict
    wrong: bool

    @property
    def failed(self) -> bool:
        return any(j.status == "fail" for _, j in self.stages)

    @property
    def findings(self) -> tuple[Finding, ...]:
        return tuple(f for _, j in self.stages for f in j.findings)

    @property
    def foreign(self) -> tuple[str, ...]:
        return tuple(p for _, j in self.stages for p in j.foreign)


def judge_framework(
    name: str,
    report: run_probe.ProbeReport,
    context: FrameworkContext,
) -> FrameworkOutcome:
    """Judge the three stages of one framework."""
    device = context.device
    libraries = judge_loaded.list_mapped(report, context.roots, context.owners, device)
    first = _compare_with_lock(name, report, _judge_framework_stage(name, report, context), context)
    second = _judge_convolutions(report, context)
    third = _judge_death(report, "loaded", context) or judge_loaded.judge_loaded(
        name, report, libraries, context
    )
    if first.status == "fail":
        second = Judgement(status="skip", detail="the framework stage failed")
    if first.status == "fail" or second.status == "fail":
        before = "framework" if first.status == "fail" else "convolution"
        third = Judgement(status="skip", detail=f"the {before} stage failed", foreign=third.foreign)
    verdict = judge_loaded.make_framework_verdict(name, report, device, libraries, context.devices)
    numbers = any(not c.ok for d in verdict.devices for c in d.convolutions)
    ran = device != "cpu" and second.status == "pass" and any("libcudnn" in p for p in third.foreign)
    return FrameworkOutcome(
        name=name,
        stages=(("framework", first), ("convolution", second), ("loaded", third)),
        verdict=verdict,
        wrong=numbers or ran,
    )


def judge_import(name: str, report: run_probe.ProbeReport, context: FrameworkContext) -> Judgement:
    """Judge the stage `framework` of a probe that only imported the framework.

    An import from outside the environment is a failure if the lock has another version. Another version inside
    the environment is left to the stage `lock`.
    """
    judged = _judge_framework_stage(name, report, context)
    as_locked = _compare_with_lock(name, report, judged, context)
    return as_locked if as_locked.status == "fail" else judged


def describe_no_framework(env: Environment) -> str:
    """Return the detail of a stage that found no framework."""
    return f"no {', '.join(FRAMEWORKS[:-1])} or {FRAMEWORKS[-1]} in {env.path}"


def _judge_death(
    report: run_probe.ProbeReport,
    stage: str,
    context: FrameworkContext,
) -> Judgement | None:
    """Judge the stage in which the process ended badly. A process that reached no stage failed in `framework`."""
    if report.death is None or (report.stage or "framework") != stage:
        return None
    evidence = (Evidence(text=report.death, source=stage), *report.complaints(), *report.words())
    last = clean(report.finished.stderr)[-4000:]
    finding = message_causes.explain_setting(last, evidence[:1]) or context.explain_unloaded(
        f"{report.death}\n{last}"
    )
    finding = finding or message_causes.explain_loader_message(last, evidence[:1])
    if (
        finding is None and context.low_memory
    ):  # some calls into CUDA end the process where they get no memory
        finding = status_causes.explain_cudnn_call(
            {"call": report.death}, report.complaints(), context.low_memory
        )
    finding = finding or message_causes.explain_signal(report.finished, evidence)
    return Judgement(
        status="fail", detail=report.death, evidence=evidence, findings=(finding,) if finding else ()
    )


def _judge_exception(
    report: run_probe.ProbeReport,
    stage: str,
    context: FrameworkContext,
) -> Judgement | None:
    """Judge the stage in which the framework raised an exception."""
    failed = next((r for r in report.all("failed") if r["stage"] == stage), None)
    if failed is None:
        return None
    text = failed["text"]
    evidence = (Evidence(text=clean(text, 2000), source=stage), *report.complaints(), *report.words(4))
    record = {"call": failed["error"], "text": text}
    saw = report.last("framework") or {}
    finding = context.explain_unloaded(text) or message_causes.explain_message(text, saw, evidence)
    if finding is None or (finding.cause == "cpu_only_build" and saw.get("cuda")):
        # JAX's exception only says that there is no GPU. The reason is in its log.
        stderr = report.finished.stderr
        finding = message_causes.explain_message(
            clean(stderr)[-8000:], saw, evidence
        ) or message_causes.explain_no_gpu(report, saw, stage, context.explain_unloaded(stderr))
    # With little free memory, any status of cuDNN and an invisible GPU mean that memory ran out.
    if finding is None or (
        context.low_memory and finding.cause in ("gpu_memory_exhausted", "visible_devices_invalid")
    ):
        finding = status_causes.explain_cudnn_call(
            record, report.complaints(), context.low_memory
        ) or context.explain_unloaded(report.finished.stderr)
    detail = clean(text.splitlines()[0], 300) if text else failed["error"]
    return Judgement(status="fail", detail=detail, evidence=evidence, findings=(finding,) if finding else ())


def _judge_framework_stage(
    name: str,
    report: run_probe.ProbeReport,
    context: FrameworkContext,
) -> Judgement:
    bad = _judge_death(report, "framework", context) or _judge_exception(report, "framework", context)
    if bad:
        return bad
    saw = report.last("framework")
    if saw is None:
        return Judgement(status="fail", detail=f"{name} reported nothing", evidence=report.words())
    evidence = [Evidence(text=saw["file"], source="imported from")]
    if context.device == "cpu":
        return Judgement(status="pass", detail=f"{name} {saw['version']}", evidence=tuple(evidence))
    if not saw["cuda"]:
        finding = make_finding(
            "framework_for_cpu", tuple(evidence), confidence="certain", framework=f"{name} {saw['version']}"
        )
        return fail_with(finding)
    if not saw["devices"]:
        return fail_with(
            message_causes.explain_unseen_gpu(
                report, f"{name} {saw['version']}", context.explain_unloaded(report.finished.stderr)
            )
        )
    first = "; call onnxruntime.preload_dlls() before the first session" if saw.get("preloaded") else ""
    return Judgement(
        status="pass",
        detail=f"{name} {saw['version']}, CUDA {saw['cuda']}, cuDNN {format_cudnn_version(saw.get('cudnn')) or 'not reported'}, "
        f"{len(saw['devices'])} GPU{'s' if len(saw['devices']) > 1 else ''}{first}",
        evidence=tuple(evidence),
    )


def _compare_with_lock(
    name: str, report: run_probe.ProbeReport, judged: Judgement, context: FrameworkContext
) -> Judgement:
    """Compare a framework that works with the lock. Another version in the environment is a warning. A framework that is
    imported from outside the environment is a failure."""
    locked = _find_locked_version(name, context.lock) if context.lock else None
    saw = report.last("framework")
    if not locked or not saw or judged.status != "pass":
        return judged
    if locked.split("+")[0] == saw["version"].split("+")[0]:
        return judged
    return dataclasses.replace(
        judged,
        status="warn" if is_inside(saw["file"], context.roots) else "fail",
        detail=f"{name} {saw['version']} was imported, but the lock has {locked}",
    )


def _find_locked_version(framework: str, lock: Lock) -> str | None:
    """Return the version of a framework in a lock. Its package can have another name, as onnxruntime-gpu."""
    package = next((b.package_name for b in lock.plan.builds if b.framework == framework), framework)
    return next((p.version for p in lock.packages if p.name == package), None)


def _judge_convolutions(
    report: run_probe.ProbeReport,
    context: FrameworkContext,
) -> Judgement:
    bad = _judge_death(report, "convolution", context) or _judge_exception(report, "convolution", context)
    if bad:
        return bad
    rows = report.all("convolution")
    unserved = [
        Evidence(text=f"{r['case']} {r['dtype']}: {r['reason']}", source="not checked")
        for r in report.all("unserved")
    ]
    reasons = {r["dtype"]: f"at most {r['tolerance']:g}: {r['reason']}" for r in rows}
    evidence = tuple(Evidence(text=text, source=f"tolerance of {dtype}") for dtype, text in reasons.items())
    wrong = [r for r in rows if not r["ok"]]
    if not rows:
        return Judgement(status="fail", detail="no convolution was run", evidence=report.words())
    if report.last("done") is None:  # code in it ended the process with status 0
        detail = f"the process ended after {len(rows)} results, before the test was complete"
        return Judgement(status="fail", detail=detail, evidence=report.words())
    if wrong:
        return _judge_wrong(wrong, len(rows), evidence, context.device)
    worst = max(rows, key=lambda r: r["error"] / r["tolerance"])
    return Judgement(
        status="pass",
        detail=f"{len(rows)} convolutions correct; largest error {worst['error']:.2g} (limit {worst['tolerance']:.0e})",
        evidence=(*evidence, *unserved),
    )


def _describe_row(r: Mapping[str, Any]) -> str:
    error = "not a number" if r["error"] is None else f"off by {r['error']:.2g}"
    return f"{r['case']} {r['dtype']} {r['which']}: {error}, at most {r['tolerance']:g}"


def _judge_wrong(
    wrong: Sequence[Mapping[str, Any]], many: int, evidence: tuple[Evidence, ...], device: str
) -> Judgement:
    rows = tuple(Evidence(text=_describe_row(r), source=f"device {r['device']}") for r in wrong[:12])
    finding = make_finding(
        "framework_gives_wrong_numbers",
        rows,
        confidence="possible",
        gpus=None if device == "cpu" else "several GPUs",
    )
    return Judgement(
        status="fail",
        detail=f"{len(wrong)} of {many} results are wrong; first: {_describe_row(wrong[0])}",
        evidence=(*rows, *evidence),
        findings=(finding,),
    )
