"""The words of a finding: a row of the table `findings` of the profiles."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class FindingText:
    """A situation that `detect` or `verify` finds, and its cause. A text of None is that of the cause.

    In `title` and `fix`, {name} is a fact; a part in [[double brackets]] is left out for an unknown fact.
    """

    finding: str
    cause: str
    title: str | None = None
    fix: str | None = None
