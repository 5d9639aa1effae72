"""The results of compare_with_uv.py for each set, the table of them and its summary."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from lock_times import Times, median_ratio, spread

_NO_BUILD, _NO_LOCK = 5, 6
CLOSED = re.compile(
    "failed to fetch|error sending request|request failed|could not connect|connection refused|dns error|tunnel error|"
    "failed to (clone|download)|git operation failed|does not (answer|respond)|cannot be (reached|resolved)|timed out",
    re.IGNORECASE,
)
"""What uv and gpuenv write of an index, page or repository that cannot be reached."""


@dataclass(kw_only=True)
class Compared:
    """What both tools did with one set, and their times.

    `exit` is gpuenv's exit code, None where it gave no answer in time. `error` and `uv_error` are the messages of
    the tools that gave no versions. `uv` are the times of the lines as the project writes them, `uv_binding` those
    with the packages first that need a framework; there are none if that order is the same. `with_reason`,
    `follows` (not named, decided by a build or by what is held back) and `without_reason` are the packages that gpuenv locks in older
    releases than uv. `other` are the times of another checkout, `other_error` its message; `same` is true if both
    wrote the same lock. `solves` counts gpuenv's runs of uv, and `notes` are its notes and warnings.
    """

    name: str
    frameworks: list[str] = field(default_factory=list)
    python: str = ""
    packages: int = 0
    solves: int = 0
    exit: int | None = None
    error: str = ""
    uv_error: str = ""
    mine: Times = field(default_factory=Times)
    uv: Times = field(default_factory=Times)
    uv_binding: Times = field(default_factory=Times)
    other: Times = field(default_factory=Times)
    other_error: str = ""
    same: bool | None = None
    notes: list[str] = field(default_factory=list)
    held_back: dict[str, str] = field(default_factory=dict)
    with_reason: list[str] = field(default_factory=list)
    follows: list[str] = field(default_factory=list)
    without_reason: list[str] = field(default_factory=list)

    @property
    def closed(self) -> bool:
        """Whether a source of the set cannot be reached from here, so that the set proves nothing."""
        return bool(CLOSED.search(self.uv_error) or (self.exit != 0 and CLOSED.search(self.error)))

    @property
    def state(self) -> str:
        """The result in two words at most. Capitals mean a fault of gpuenv.

        Exit code 5 is right: a measured row forbids what uv solves. The row shows its message.
        """
        if self.closed:
            return "closed"
        if self.exit == 0:
            return "only gpuenv" if self.uv_error else "OLDER" if self.without_reason else "ok"
        if self.exit == _NO_BUILD:
            return "forbidden"
        return "neither" if self.uv_error and self.exit == _NO_LOCK else "NO LOCK"

    @property
    def ok(self) -> bool:
        """Whether gpuenv did what it has to."""
        return not self.state.isupper()

    @property
    def faster(self) -> Times:
        """The times of uv with the order of lines that is faster."""
        timed = [t for t in (self.uv, self.uv_binding) if t.seconds[1:]]
        return min(timed, key=lambda t: statistics.median(t.seconds[1:])) if timed else self.uv

    @property
    def ratio(self) -> float | None:
        """How many times as long as uv gpuenv takes."""
        return median_ratio(self.mine.seconds, self.faster.seconds)

    @property
    def ratio_to_other(self) -> float | None:
        """How many times as long as the other checkout this one takes."""
        return median_ratio(self.mine.seconds, self.other.seconds)

    def row(self) -> str:
        """Return one line of the table."""
        uv = self.faster
        ratios = (self.ratio, median_ratio(self.mine.cpu, uv.cpu), self.ratio_to_other)
        shown = [f"{r:5.1f}" if r else "    -" for r in ratios]
        first = f"{self.mine.seconds[0]:.1f}" if self.mine.seconds else "-"
        times = [f"{statistics.median(t[1:]):.1f}" if t[1:] else "-" for t in (self.mine.seconds, uv.seconds)]
        same = "" if self.same is None else ", same lock" if self.same else ", other lock"
        return (
            f"{self.name:30} {self.python:6} {self.packages:5} {self.solves:3} {first:>6} {times[0]:>6} {times[1]:>6} "
            f"{shown[0]} {spread(self.mine.seconds, uv.seconds):>9} {shown[1]} {shown[2]} "
            f"{len(self.with_reason):4} {len(self.without_reason):4}  {self.state}{same}"
        )

    def details(self) -> Iterator[str]:
        """Yield the lines below the row: faults, reasons and messages."""
        yield from (f"without reason: {text}" for text in self.without_reason)
        for text in self.with_reason:
            yield f"with reason: {text}"
            if because := self.held_back.get(text.partition(" ")[0]):
                yield f"  {because}"
        if self.follows:
            yield f"not named, with them: {', '.join(text.partition(' ')[0] for text in self.follows)}"
        if self.error:
            yield f"gpuenv, {f'exit {self.exit}' if self.exit else 'stopped'}: {self.error}"
        if self.uv_error:
            yield f"uv: {self.uv_error}"
        if self.other_error:
            yield f"other checkout: {self.other_error}"


HEAD = f"{'set':30} {'python':6} {'named':>5} {'N':>3} {'first':>6} {'s':>6} {'uv s':>6} {'ratio':>5} {'spread':>9} "
HEAD += f"{'cpu':>5} {'other':>5} {'why':>4} {'old':>4}  result"


def show(result: Compared) -> None:
    """Print the row of a set, and what is to be said about it."""
    print("\n    ".join((result.row(), *result.details())), flush=True)


def summary(results: Sequence[Compared]) -> Iterator[str]:
    """Yield the lines of the summary. Closed sets are in their own line only."""
    here = [r for r in results if not r.closed]
    by_uv, by_gpuenv = [r for r in here if not r.uv_error], [r for r in here if r.exit == 0]
    yield from (
        _line("sets", results, f"{sum(len(r.frameworks) > 1 for r in results)} with several frameworks"),
        _line("solved by uv", by_uv),
        _line("solved by gpuenv", by_gpuenv, f"{sum(not r.uv_error for r in by_gpuenv)} of those that uv solves"),
        _line("forbidden by a row", forbidden := [r for r in here if r.state == "forbidden"], _names(forbidden)),
        _line("not solved, but by uv", [r for r in here if r.state == "NO LOCK" and not r.uv_error]),
        _line("solved by neither", neither := [r for r in here if r.state == "neither"], _names(neither)),
        _line("older with reason", [r for r in here if r.with_reason], _packages([r.with_reason for r in here])),
        _line("older without reason", [r for r in here if r.without_reason],
              _packages([r.without_reason for r in here])),
        _line("closed", closed := [r for r in results if r.closed], _names(closed)),
    )  # fmt: skip
    for name, ratios in (
        ("ratio to uv", [r.ratio for r in here]),
        ("ratio to other checkout", [r.ratio_to_other for r in here]),
    ):
        if known := [ratio for ratio in ratios if ratio]:
            yield f"{name:24} median {statistics.median(known):.2f}, largest {max(known):.2f}, of {len(known)} sets"
    if wrong := [r.name for r in results if not r.ok]:
        yield f"faults: {', '.join(wrong)}"


def _names(results: Sequence[Compared]) -> str:
    return ", ".join(r.name for r in results)


def _line(name: str, results: Sequence[Compared], more: str = "") -> str:
    return f"{name:24} {len(results):4}  {more}".rstrip()


def _packages(older: Sequence[Sequence[str]]) -> str:
    return f"{sum(map(len, older))} packages"
