"""Shows the results of a fleet as text: one row for each host."""

from __future__ import annotations

from collections import Counter

from ..model import FleetResults
from .table import show_table
from .terminal_output import Screen

_HEADS = ("HOST", "CLASS", "PLAN", "VERDICT", "CAUSE", "SECONDS")


def show_fleet_results(screen: Screen, results: FleetResults) -> None:
    """Show the number of hosts for each result, then all hosts."""
    counts = Counter(h.verdict.replace("_", " ") for h in results.hosts)
    said = ", ".join(f"{number:,} {name}" for name, number in counts.most_common())
    plural = "" if len(results.hosts) == 1 else "s"
    screen.line(f"{len(results.hosts):,} host{plural}" + (f": {said}" if said else ""))
    if results.hosts:
        show_table(
            screen, _HEADS,
            [
                [h.host, h.class_ or "", h.plan or "", h.verdict.replace("_", " "), h.cause or "",
                 "" if h.seconds is None else f"{h.seconds:.1f}"]
                for h in results.hosts
            ],
            whole=True,
        )  # fmt: skip
