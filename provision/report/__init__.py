"""One text to paste into an issue: what is known of gpuenv, the machine and an environment, with nothing in
it that says whose they are. Values in, text out; nothing here reads a file."""

from __future__ import annotations

from ..model import Report
from .hiding import Whose, hidden
from .sections import Known, written

__all__ = ["Known", "Whose", "report"]


def report(known: Known, whose: Whose) -> Report:
    """The text, and what was left out of it."""
    text, counts = hidden(written(known), whose)
    return Report(gpuenv=known.gpuenv, text=text, hidden=counts)
