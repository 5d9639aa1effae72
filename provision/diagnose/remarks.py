"""What diagnose says beside its findings."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Remarks:
    """Sentences for notes, filled in by the stage. `crash`: a crash without a finding, and what decides its cause."""

    crash: str | None = None
