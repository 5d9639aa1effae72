"""The report of `gpuenv report`: a text as it stands."""

from __future__ import annotations

from ..model import Report
from .screen import Screen, clean


def show_report(screen: Screen, report: Report) -> None:
    screen.line(clean(report.text).rstrip("\n"))
