"""What diagnose says beside its findings."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Remarks:
    """Sentences for notes, filled in by the stage. `crash`: a crash without a finding, and what decides its cause.
    `environment`: the environment whose files gave facts, or why they did not."""

    crash: str | None = None
    environment: str | None = None
