"""The results of compare_with_uv.py for each set, and the table of them."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field

from lock_times import Times, median_ratio, spread


@dataclass(kw_only=True)
class Compared:
    """The releases that both tools selected for one set, and their times.

    `error` states why gpuenv found no lock, and `passed_over` why uv gave no answer. `stopped` is the old
    release that gpuenv refused; the comparison then uses --allow-old. `needed` are the seconds of the slowest
    run of uv for gpuenv's last question. `other` are the times of another checkout; `same` is true if both
    wrote the same lock.
    """

    name: str
    python: str = ""
    packages: int = 0
    solves: int = 0
    mine: Times = field(default_factory=Times)
    uv: Times = field(default_factory=Times)
    needed: list[float] = field(default_factory=list)
    held_back: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    error: str = ""
    passed_over: str = ""
    stopped: str = ""
    other: Times = field(default_factory=Times)
    same: bool | None = None

    @property
    def ok(self) -> bool:
        """Whether there is no fault and no error."""
        return not (self.faults or self.error)

    def row(self) -> str:
        """Return one line of the table."""
        uv, needed = self.uv.seconds, self.needed
        pairs = [(self.mine.seconds, uv), (self.mine.seconds, needed), (self.mine.cpu, self.uv.cpu)]
        pairs += [(self.other.seconds, uv), (self.other.seconds, needed)]
        ratios = [f"{r:5.1f}" if (r := median_ratio(*pair)) else "    -" for pair in pairs]
        first = f"{self.mine.seconds[0]:.1f}" if self.mine.seconds else "-"
        times = [f"{statistics.median(t[1:]):.1f}" if t[1:] else "-" for t in (self.mine.seconds, uv)]
        state = (
            "no lock" if self.error else "passed over" if self.passed_over else "ok" if self.ok else "FAULT"
        )
        same = "" if self.same is None else ", same lock" if self.same else ", OTHER LOCK"
        return (
            f"{self.name:32} {self.python:6} {self.packages:5} {self.solves:3} {first:>6} {times[0]:>6} {times[1]:>6} "
            f"{ratios[0]} {spread(*pairs[0]):>9} {ratios[1]} {ratios[2]} {ratios[3]} {ratios[4]} {len(self.held_back):4}  "
            f"{state}{same}"
        )


HEAD = f"{'set':32} {'python':6} {'named':>5} {'N':>3} {'first':>6} {'s':>6} {'uv s':>6} {'ratio':>5} {'spread':>9} "
HEAD += f"{'need':>5} {'cpu':>5} {'other':>5} {'need':>5} {'held':>4}  result"


def show(result: Compared) -> None:
    """Print the row of a set, and its faults."""
    print(result.row(), flush=True)
    for text in filter(None, (*result.faults, result.error, result.passed_over)):
        print(f"    {text}", flush=True)
    if result.stopped:
        print(f"    without --allow-old: {result.stopped}", flush=True)
    for name, text in result.held_back.items():
        if any(n.startswith(f"{name} ") for n in result.notes):
            print(f"    held back: {text}", flush=True)
