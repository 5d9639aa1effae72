"""The verdict of a verification, and the stages that are added to it afterwards."""

from __future__ import annotations

import dataclasses
import re
import resource
import shlex
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from ..model import Environment, Evidence, Finding, NodeVerdict, Outcome, StageResult, Verdict
from ..profiles.findings import make_finding
from ..system.redaction import clean, clean_line
from . import run_probe

if TYPE_CHECKING:
    from .verification_state import Verification

_PROOFS = ("runtime", "cudnn", "framework", "convolution")
"""The stages that run something of the environment. Without one that passed there is no verdict of success."""
_WITHOUT_FRAMEWORK = "Install a framework in this environment, or create one with a framework: gpuenv create {env} --framework torch."
_ORDER = {"certain": 0, "likely": 1, "possible": 2}


def add_stages(
    verdict: Verdict, stages: Sequence[StageResult], findings: Sequence[Finding], *, strict: bool = False
) -> Verdict:
    """Return the verdict with more stages and their findings.

    A failed stage makes the verdict `fails`, with the fix of that stage. A verdict that was no success does not
    change.
    """
    bad = ("fail", "warn") if strict else ("fail",)
    failed = next((s for s in stages if s.status in bad), None)
    broken = verdict.verdict in ("wrong", "fails")
    outcome: Outcome = "fails" if failed and not broken else verdict.verdict
    first = [*findings, *verdict.findings] if failed and not broken else [*verdict.findings, *findings]
    merged = merge_causes(sorted(first, key=lambda f: _ORDER[f.confidence]))
    hint = verdict.hint
    if failed and not broken:
        fix = next((f.fix for f in findings if f.fix), None)
        hint = fix or f"The {failed.stage} stage failed: {failed.detail}."
    return dataclasses.replace(
        verdict, verdict=outcome, stages=(*verdict.stages, *stages), findings=merged, hint=hint
    )


def merge_causes(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """Return one finding per cause: the surest, with the evidence of all."""
    causes: dict[str, Finding] = {}
    for finding in findings:
        first = causes.setdefault(finding.cause, finding)
        evidence = tuple(dict.fromkeys(first.evidence + finding.evidence))
        causes[finding.cause] = dataclasses.replace(first, evidence=evidence)
    return tuple(causes.values())


def make_verdict(run: Verification) -> Verdict:
    """Return the verdict of all stages that ran."""
    from .judge_lowlevel import find_low_memory

    outcome: Outcome = "cpu" if run.device == "cpu" else "works"
    if not any(s.stage in _PROOFS and s.status == "pass" for s in run.stages):
        outcome = "unproven"
    bad = ("fail", "warn") if run.options.strict else ("fail",)
    if any(s.status in bad for s in run.stages):
        outcome = "wrong" if run.wrong else "fails"
    memory_is_low = run.lowlevel is not None and find_low_memory(run.lowlevel) is not None
    explained = explain_address_limit(run.stages, run.findings, memory_is_low=memory_is_low)
    findings = merge_causes(sorted(explained, key=lambda f: _ORDER[f.confidence]))
    return Verdict(
        env=run.env.path,
        python=run.env.python,
        verdict=outcome,
        stages=tuple(run.stages),
        frameworks=tuple(run.verdicts),
        findings=findings,
        hint=_make_hint(run, outcome, findings),
        drift=run.drift,
    )


def _make_hint(run: Verification, outcome: Outcome, findings: Sequence[Finding]) -> str | None:
    """Return one sentence that says what to do."""
    if outcome in ("works", "cpu"):
        return None
    if findings and findings[0].fix:
        return findings[0].fix
    first = next((s for s in run.stages if s.status == "fail"), None)
    if first is None and outcome == "unproven":
        if run.paths.frameworks:
            return "No code from the environment was run. To test its framework, verify without --quick."
        return _suggest_framework(run.env)
    if first is None:
        return "There are only warnings. To accept warnings, verify without --strict."
    if first.stage == "framework" and not run.paths.frameworks:
        return _suggest_framework(run.env)
    return f"The {first.stage} stage failed: {first.detail}. Run gpuenv diagnose --env {shlex.quote(run.env.path)}."


def _suggest_framework(env: Environment) -> str:
    """Return what to do about an environment without a framework. Where another tool made it, create would refuse its
    path."""
    return _WITHOUT_FRAMEWORK.format(env=shlex.quote(env.path) if env.made_by_gpuenv else "NEW")


# --- limits of address space ---

LIMIT_CAUSE = "process_limit_reached"
_MEMORY_CAUSES = ("gpu_memory_exhausted", "preallocation_leaves_no_memory")
_REFUSED = re.compile(
    r"out of memory|OUT_OF_MEMORY|RESOURCE_EXHAUSTED|MemoryAllocation|MemoryError|bad_alloc|[Cc]annot allocate memory"
    r"(?! in static TLS)|failed to map segment|not enough memory|can't start new thread|[Rr]esource temporarily unavailable|Memory allocation still failed"
)
_ENDED = re.compile(r"ended by SIG(ABRT|SEGV|BUS|KILL|TRAP)")


def read_address_limit() -> int | None:
    """Return the bytes of address space that a process may use (`ulimit -v`), or None without a limit."""
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if soft == resource.RLIM_INFINITY else soft


def explain_address_limit(
    stages: Sequence[StageResult], findings: Sequence[Finding], *, memory_is_low: bool
) -> list[Finding]:
    """Return the findings. The limit comes first where a stage failed for lack of memory under it.

    CUDA reserves tens of GiB of addresses that take no memory. Under such a limit a GPU refuses a context although
    all its memory is free, so the limit is the cause. With `memory_is_low` it is not the only one.
    """
    allowed, failed = read_address_limit(), next((s for s in stages if s.status == "fail"), None)
    if allowed is None or failed is None or memory_is_low:
        return list(findings)
    texts = [failed.detail, *(e.text for e in failed.evidence)]
    shown = next((t for t in texts if _REFUSED.search(t)), None)
    ended = next((t for t in texts if _ENDED.search(t)), None)
    if shown is None and (ended is None or findings):
        return list(findings)
    finding = make_finding(
        "address_space_limited",
        (
            Evidence(text=clean(shown or ended or "", 300), source=failed.stage),
            Evidence(text=f"RLIMIT_AS is {allowed} bytes", source="getrlimit"),
        ),
        confidence="likely" if shown else "possible",
        size=allowed >> 20,
    )
    return [finding, *(f for f in findings if f.cause not in _MEMORY_CAUSES)]


# --- whether the machine has a fault of its own, which each job on it would meet ---

_NODE_STAGES = ("driver", "runtime", "libraries", "cudnn")
"""The stages that a machine and an environment of its administrator are responsible for."""
_SAYS_NOTHING = (run_probe.NO_ANSWER, f"{run_probe.ENDED_BY} SIGKILL", f"{run_probe.ENDED_BY} SIGTERM")
"""How a child ends that is slow, or that the system or a person killed: the machine may be in order."""
_WIDTH = 79


def judge_node(verdict: Verdict, of_jobs: Collection[str]) -> NodeVerdict:
    """Return whether the first stage that failed shows a fault of the machine. `of_jobs` are the causes that come and
    go with the jobs on it."""
    failed = next((s for s in verdict.stages if s.status == "fail"), None)
    if failed is None:
        driver = next((s.detail for s in verdict.stages if s.stage == "driver"), verdict.verdict)
        return NodeVerdict(fault=False, text=shorten_line(driver), verdict=verdict)
    finding = next(iter(verdict.findings), None)
    cause = finding.cause if finding else failed.stage
    fault = (
        failed.stage in _NODE_STAGES and cause not in of_jobs and not failed.detail.startswith(_SAYS_NOTHING)
    )
    return NodeVerdict(fault=fault, text=_describe_fault(failed, finding), cause=cause, verdict=verdict)


def _describe_fault(failed: StageResult, finding: Finding | None) -> str:
    if finding is None:
        return shorten_line(f"{failed.stage}: {failed.detail}")
    return shorten_line(f"{finding.cause}: {finding.title}")


def shorten_line(text: str) -> str:
    """Return the text as one line of fewer than 80 characters."""
    return clean_line(text, _WIDTH)
