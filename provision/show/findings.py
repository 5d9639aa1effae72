"""Findings for people: the likeliest whole, the others short, on one screen."""

from __future__ import annotations

from ..model import Finding, Findings
from .screen import Screen
from .verdict import show_finding


def show_findings(screen: Screen, found: Findings) -> None:
    """The first finding with its evidence; of the others what would decide, or their fix."""
    if not found.findings:
        screen.line("nothing here that gpuenv knows")
        return
    first, *others = found.findings
    show_finding(screen, first)
    if others:
        screen.line("  or, less likely:")
    for finding in others:
        _short(screen, finding)


def _short(screen: Screen, finding: Finding) -> None:
    screen.wrapped(
        f"{finding.cause} ({finding.confidence}): {finding.title}", indent="      ", first="    - "
    )
    decides = next((e.text for e in finding.evidence if e.source == "to check"), None)
    last = decides or (f"fix: {finding.fix}" if finding.fix else None)
    if last:
        screen.wrapped(last, indent="        ", first="      ")
