"""The report of `gpuenv report`: its text without changes."""

from __future__ import annotations

from ..model import Report
from .screen import Screen, clean


def show_report(screen: Screen, report: Report) -> None:
    """Show the text."""
    screen.line(clean(report.text).rstrip("\n"))


def remark_on_report(screen: Screen, report: Report) -> None:
    """Say what is hidden in the text."""
    if report.hidden:
        kinds = ", ".join(report.hidden)
        for row in screen.fold(f"note: hidden in it: {kinds}; read it before you paste it", first=""):
            screen.say(row)
