"""Texts of findings: rows of the table `findings` of the profiles."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class FindingText:
    """A situation that `detect` or `verify` finds, and its cause. A text of None means that of the cause.

    In `title` and `fix`, {name} is a fact. A part in [[double brackets]] is omitted for an unknown fact.
    """

    finding: str
    cause: str
    title: str | None = None
    fix: str | None = None
