"""Notes of diagnose that are not findings."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Remarks:
    """Texts of notes, set by the stage. `crash` describes a crash without a finding, with the next command.

    `environment` names the environment that was read, or why it was not used. `elsewhere` says that this machine's driver
    works, against the first finding of a log.
    """

    crash: str | None = None
    environment: str | None = None
    elsewhere: str | None = None
