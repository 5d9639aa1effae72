"""Judges from a verdict whether the machine has a fault of its own, which every job on it would meet."""

from __future__ import annotations

from collections.abc import Collection

from ..model import Finding, NodeVerdict, StageResult, Verdict
from . import run_probe

_STAGES = ("driver", "runtime", "libraries", "cudnn")
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
        return NodeVerdict(fault=False, text=one_line(driver), verdict=verdict)
    finding = next(iter(verdict.findings), None)
    cause = finding.cause if finding else failed.stage
    fault = failed.stage in _STAGES and cause not in of_jobs and not failed.detail.startswith(_SAYS_NOTHING)
    return NodeVerdict(fault=fault, text=_text(failed, finding), cause=cause, verdict=verdict)


def _text(failed: StageResult, finding: Finding | None) -> str:
    if finding is None:
        return one_line(f"{failed.stage}: {failed.detail}")
    return one_line(f"{finding.cause}: {finding.title}")


def one_line(text: str) -> str:
    """The text on one line of fewer than 80 characters."""
    words = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return words if len(words) <= _WIDTH else words[: _WIDTH - 3].rstrip() + "..."
