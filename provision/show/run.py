"""A run for people: the program has said the rest; on standard error why it failed."""

from __future__ import annotations

from ..model import Findings, Run
from .findings import show_findings
from .screen import Screen

_SHOWN = 3


def show_run(screen: Screen, ran: Run) -> None:
    """Show the likeliest causes of a failure; nothing where none was found."""
    if not ran.findings:
        return
    how = ran.signal or f"exit code {ran.code}"
    screen.say(f"gpuenv: {ran.command[0]} failed ({how}); gpuenv diagnose says:", always=True)
    errors = Screen(environ=screen.environ, out=screen.err, err=screen.err)
    show_findings(errors, Findings(findings=ran.findings[:_SHOWN]))
