"""Judges stages 5, 6 and 7 from the report of a framework's process."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..model import FRAMEWORKS, Environment, Evidence, Finding, FrameworkVerdict, Lock
from ..profiles.failure_findings import make_finding
from . import judge_loaded, message_causes, run_probe, status_causes
from .judge_lowlevel import format_cudnn_version
from .read_libraries import LibraryPackage, is_inside
from .verification import Judgement, fail_with

# With --deep. JAX and TensorFlow are channels-last and autotuned as they come.


@dataclass(frozen=True, kw_only=True, slots=True)
class FrameworkOutcome:
    """A framework's three stages, in order, with what was proved; `wrong` where numbers were wrong or
    another cuDNN than the environment's ran."""

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


# TensorFlow's log then names the libraries that it opens and those that it does not find.


def judge_framework(
    name: str,
    report: run_probe.ProbeReport,
    *,
    device: str,
    roots: Sequence[str],
    owners: Mapping[str, LibraryPackage],
    own_families: Sequence[str],
    devices: Sequence[Mapping[str, Any]],
    lock: Lock | None,
    low: Mapping[str, Any] | None,
    unopened: Callable[[str], Finding | None] = lambda _: None,
) -> FrameworkOutcome:
    """The three stages of one framework. `owners` says whose each library file is, `own_families` which
    families the environment itself brings, `devices` what stage 1 saw, `low` what stage 2 saw where little
    GPU memory is free, `unopened` what of NVIDIA's the loader did not find, by its words."""
    libraries = judge_loaded.list_mapped(report, roots, owners, device)
    first = _as_locked(name, report, _framework(name, report, device, low, unopened), lock, roots)
    second = _convolutions(report, device, low, unopened)
    third = _died(report, "loaded", low, unopened) or judge_loaded.judge_loaded(
        name, report, libraries, device, own_families, lock
    )
    if first.status == "fail":
        second = Judgement(status="skip", detail="the framework stage failed")
    if first.status == "fail" or second.status == "fail":
        before = "framework" if first.status == "fail" else "convolution"
        third = Judgement(status="skip", detail=f"the {before} stage failed", foreign=third.foreign)
    verdict = judge_loaded.make_framework_verdict(name, report, device, libraries, devices)
    numbers = any(not c.ok for d in verdict.devices for c in d.convolutions)
    ran = device != "cpu" and second.status == "pass" and any("libcudnn" in p for p in third.foreign)
    return FrameworkOutcome(
        name=name,
        stages=(("framework", first), ("convolution", second), ("loaded", third)),
        verdict=verdict,
        wrong=numbers or ran,
    )


def judge_import(
    name: str,
    report: run_probe.ProbeReport,
    *,
    lock: Lock | None,
    roots: Sequence[str],
    unopened: Callable[[str], Finding | None],
) -> Judgement:
    """The stage `framework` where nothing but the import was asked for. A locked framework that is imported from
    elsewhere is a failure; another version of it is what the stage `lock` warns of."""
    found = _framework(name, report, "cpu", None, unopened)
    as_locked = _as_locked(name, report, found, lock, roots)
    return as_locked if as_locked.status == "fail" else found


def describe_no_framework(env: Environment) -> str:
    """The detail of a stage that found no framework to prove."""
    return f"no {', '.join(FRAMEWORKS[:-1])} or {FRAMEWORKS[-1]} in {env.path}"


def _died(
    report: run_probe.ProbeReport,
    stage: str,
    low: Mapping[str, Any] | None,
    unopened: Callable[[str], Finding | None],
) -> Judgement | None:
    """The stage in which the process ended badly; before any stage counts as the framework's."""
    if report.death is None or (report.stage or "framework") != stage:
        return None
    evidence = (Evidence(text=report.death, source=stage), *report.complaints(), *report.words())
    last = report.finished.stderr[-4000:]
    finding = message_causes.explain_setting(last, evidence[:1]) or unopened(f"{report.death}\n{last}")
    finding = finding or message_causes.explain_loader_message(last, evidence[:1])
    if finding is None and low:  # some calls into CUDA end the process where they get no memory
        finding = status_causes.explain_cudnn_call({"call": report.death}, report.complaints(), low)
    finding = finding or message_causes.explain_signal(report.finished, evidence)
    return Judgement(
        status="fail", detail=report.death, evidence=evidence, findings=(finding,) if finding else ()
    )


def _raised(
    report: run_probe.ProbeReport,
    stage: str,
    low: Mapping[str, Any] | None,
    unopened: Callable[[str], Finding | None],
) -> Judgement | None:
    """The stage in which the framework raised an exception."""
    failed = next((r for r in report.all("failed") if r["stage"] == stage), None)
    if failed is None:
        return None
    text = failed["text"]
    evidence = (Evidence(text=text[:2000], source=stage), *report.complaints(), *report.words(4))
    record = {"call": failed["error"], "text": text}
    saw = report.last("framework") or {}
    finding = unopened(text) or message_causes.explain_message(text, saw, evidence)
    if finding is None or (finding.cause == "cpu_only_build" and saw.get("cuda")):
        # JAX says that there is no GPU, and the reason only in its log
        stderr = report.finished.stderr
        finding = message_causes.explain_message(
            stderr[-8000:], saw, evidence
        ) or message_causes.explain_no_gpu(report, saw, stage, unopened(stderr))
    # With little memory left any of cuDNN's statuses, and no GPU to be seen, mean just that.
    if finding is None or (low and finding.cause in ("gpu_memory_exhausted", "visible_devices_invalid")):
        finding = status_causes.explain_cudnn_call(record, report.complaints(), low) or unopened(
            report.finished.stderr
        )
    detail = text.splitlines()[0][:300] if text else failed["error"]
    return Judgement(status="fail", detail=detail, evidence=evidence, findings=(finding,) if finding else ())


def _framework(
    name: str,
    report: run_probe.ProbeReport,
    device: str,
    low: Mapping[str, Any] | None,
    unopened: Callable[[str], Finding | None],
) -> Judgement:
    bad = _died(report, "framework", low, unopened) or _raised(report, "framework", low, unopened)
    if bad:
        return bad
    saw = report.last("framework")
    if saw is None:
        return Judgement(status="fail", detail=f"{name} reported nothing", evidence=report.words())
    evidence = [Evidence(text=saw["file"], source="imported from")]
    if device == "cpu":
        return Judgement(status="pass", detail=f"{name} {saw['version']}", evidence=tuple(evidence))
    if not saw["cuda"]:
        finding = make_finding(
            "framework_for_cpu", tuple(evidence), confidence="certain", framework=f"{name} {saw['version']}"
        )
        return fail_with(finding)
    if not saw["devices"]:
        return fail_with(
            message_causes.explain_unseen_gpu(
                report, f"{name} {saw['version']}", unopened(report.finished.stderr)
            )
        )
    first = "; call onnxruntime.preload_dlls() before the first session" if saw.get("preloaded") else ""
    return Judgement(
        status="pass",
        detail=f"{name} {saw['version']}, CUDA {saw['cuda']}, cuDNN {format_cudnn_version(saw.get('cudnn')) or 'not reported'}, "
        f"{len(saw['devices'])} GPU{'s' if len(saw['devices']) > 1 else ''}{first}",
        evidence=tuple(evidence),
    )


def _as_locked(
    name: str, report: run_probe.ProbeReport, judged: Judgement, lock: Lock | None, roots: Sequence[str]
) -> Judgement:
    """Compare a framework that works with the lock. Another version in the environment is a warning. A framework that is
    imported from outside the environment is a failure."""
    locked = _locked_version(name, lock) if lock else None
    saw = report.last("framework")
    if not locked or not saw or judged.status != "pass":
        return judged
    if locked.split("+")[0] == saw["version"].split("+")[0]:
        return judged
    return dataclasses.replace(
        judged,
        status="warn" if is_inside(saw["file"], roots) else "fail",
        detail=f"{name} {saw['version']} was imported, but the lock has {locked}",
    )


def _locked_version(framework: str, lock: Lock) -> str | None:
    """Return the version of a framework in a lock. Its package can have another name, as onnxruntime-gpu."""
    package = next((b.package_name for b in lock.plan.builds if b.framework == framework), framework)
    return next((p.version for p in lock.packages if p.name == package), None)


def _convolutions(
    report: run_probe.ProbeReport,
    device: str,
    low: Mapping[str, Any] | None,
    unopened: Callable[[str], Finding | None],
) -> Judgement:
    bad = _died(report, "convolution", low, unopened) or _raised(report, "convolution", low, unopened)
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
    if report.last("done") is None:  # something in it ended the process, and said that all is well
        detail = f"the process ended after {len(rows)} results, before the test was complete"
        return Judgement(status="fail", detail=detail, evidence=report.words())
    if wrong:
        return _wrong(wrong, len(rows), evidence, device)
    worst = max(rows, key=lambda r: r["error"] / r["tolerance"])
    return Judgement(
        status="pass",
        detail=f"{len(rows)} results are correct; the one closest to its limit is {_row(worst)}",
        evidence=(*evidence, *unserved),
    )


def _row(r: Mapping[str, Any]) -> str:
    error = "not a number" if r["error"] is None else f"off by {r['error']:.2g}"
    return f"{r['case']} {r['dtype']} {r['which']}: {error}, at most {r['tolerance']:g}"


def _wrong(
    wrong: Sequence[Mapping[str, Any]], many: int, evidence: tuple[Evidence, ...], device: str
) -> Judgement:
    rows = tuple(Evidence(text=_row(r), source=f"device {r['device']}") for r in wrong[:12])
    finding = make_finding(
        "framework_gives_wrong_numbers",
        rows,
        confidence="possible",
        gpus=None if device == "cpu" else "several GPUs",
    )
    return Judgement(
        status="fail",
        detail=f"{len(wrong)} of {many} results are wrong; first: {_row(wrong[0])}",
        evidence=(*rows, *evidence),
        findings=(finding,),
    )
