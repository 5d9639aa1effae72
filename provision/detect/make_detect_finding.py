"""Make a finding of detect. The profiles are read only then: a machine that works has no finding."""

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
    from ..profiles import findings

    return findings.make_finding(
        name, evidence, confidence=confidence, cause=None, in_container=in_container, **facts
    )
