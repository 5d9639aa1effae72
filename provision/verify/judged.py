"""How a stage came out, before it is written into the verdict."""

from __future__ import annotations

from dataclasses import dataclass

from ..model import Evidence, Finding, Status


@dataclass(frozen=True, kw_only=True, slots=True)
class Judged:
    """How a stage came out; `foreign` are libraries of others that would be or were used."""

    status: Status
    detail: str
    evidence: tuple[Evidence, ...] = ()
    findings: tuple[Finding, ...] = ()
    foreign: tuple[str, ...] = ()


def failing(finding: Finding, foreign: tuple[str, ...] = ()) -> Judged:
    """A stage that failed for a known cause: the cause's title and evidence are the stage's."""
    return Judged(
        status="fail", detail=finding.title, evidence=finding.evidence, findings=(finding,), foreign=foreign
    )
