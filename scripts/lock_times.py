"""Time two programs in alternating rounds, so that other load affects both alike.

A ratio is computed within each round, and the median of the rounds is used. So a slow round does not change
it. The first run of each program fills its caches and does not count.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

Result = TypeVar("Result")


@dataclass(kw_only=True)
class Times:
    """Seconds of the runs of one program, wall clock and processor, children included; the first run is a warm-up."""

    seconds: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)

    def run(
        self, argv: Sequence[str], folder: Path, environ: Mapping[str, str], timeout: float
    ) -> subprocess.CompletedProcess[str]:
        """Run a program and note its times. Raises subprocess.TimeoutExpired."""
        return self.measure(lambda: _run(argv, folder, {**os.environ, **environ}, timeout))

    def measure(self, run: Callable[[], Result]) -> Result:
        """Call a function that starts a program and waits for it, and note the times."""
        began, before = time.monotonic(), _used()
        result = run()
        self.seconds.append(round(time.monotonic() - began, 2))
        self.cpu.append(round(_used() - before, 2))
        return result

    def clear(self) -> None:
        """Forget all runs."""
        self.seconds.clear()
        self.cpu.clear()


def _run(
    argv: Sequence[str], folder: Path, environ: Mapping[str, str], timeout: float
) -> subprocess.CompletedProcess[str]:
    pipe = subprocess.PIPE
    with subprocess.Popen(argv, cwd=folder, env=environ, stdout=pipe, stderr=pipe, text=True) as child:
        try:
            output, errors = child.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            child.terminate()  # gpuenv then stops uv; killed, it would leave uv running beside the next set
            child.communicate()
            raise
    return subprocess.CompletedProcess(argv, child.returncode, output, errors)


def median_ratio(first: Sequence[float], other: Sequence[float]) -> float | None:
    """Return the median of the ratios of the rounds; None without a round. The first of each is a warm-up."""
    ratios = [a / b for a, b in zip(first[1:], other[1:], strict=False) if b]
    return round(statistics.median(ratios), 2) if ratios else None


def spread(first: Sequence[float], other: Sequence[float]) -> str:
    """Return the smallest and the largest ratio of the rounds, "" without a round."""
    ratios = [a / b for a, b in zip(first[1:], other[1:], strict=False) if b]
    return f"{min(ratios):.1f}-{max(ratios):.1f}" if ratios else ""


def in_rounds(number: int, runs: Sequence[Callable[[], object]]) -> None:
    """Call each function once in each round. Each round begins with another one."""
    for turn in range(number):
        first = turn % len(runs)
        for run in (*runs[first:], *runs[:first]):
            run()


def _used() -> float:
    """Return the processor seconds of the children that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
