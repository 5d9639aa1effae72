"""A verdict with the stages that follow the proof of the frameworks. They report, and roll nothing back."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from ..model import Finding, Outcome, StageResult, Verdict

_ORDER = {"certain": 0, "likely": 1, "possible": 2}


def with_stages(
    verdict: Verdict, stages: Sequence[StageResult], findings: Sequence[Finding], *, strict: bool = False
) -> Verdict:
    """The verdict with more stages and what they found. A stage that fails makes it `fails`, with the fix of that
    stage; a verdict that was no success stays what it was."""
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
    """One finding per cause, the surest, with the evidence of all."""
    causes: dict[str, Finding] = {}
    for finding in findings:
        first = causes.setdefault(finding.cause, finding)
        evidence = tuple(dict.fromkeys(first.evidence + finding.evidence))
        causes[finding.cause] = dataclasses.replace(first, evidence=evidence)
    return tuple(causes.values())
