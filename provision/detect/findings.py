"""Findings of detect. The profiles are read for a finding only: a machine that works has none."""

from __future__ import annotations

from ..model import Confidence, Evidence, Finding


def make_finding(
    name: str,
    evidence: tuple[Evidence, ...] = (),
    /,
    *,
    confidence: Confidence = "certain",
    in_container: bool = False,
    **facts: object,
) -> Finding:
    """Return the finding of a row of profiles/failures.yaml, as `profiles.findings.make_finding` does."""
    from ..profiles import make_failure_finding

    return make_failure_finding.make_finding(
        name, evidence, confidence=confidence, cause=None, in_container=in_container, **facts
    )
