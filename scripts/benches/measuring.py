"""Measure medians of interleaved runs, and compare them with limits."""

from __future__ import annotations

import dataclasses
import os
import resource
import statistics
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

BIN = Path(sysconfig.get_path("scripts"))
GPUENV = str(BIN / "gpuenv")
UV = str(BIN / "uv")
PASS = [sys.executable, "-c", "pass"]
# The peak of this process alone, as the kernel has it when the command ends: what getrusage tells can be a child's.
PEAK = """
import sys
out, sys.argv = sys.argv[1], ["gpuenv", *sys.argv[2:]]
from provision.__main__ import main
try:
    main()
finally:
    with open("/proc/self/status") as status, open(out, "w") as file:
        file.write(next(row.split()[1] for row in status if row.startswith("VmHWM")))
"""
HERE = f"{sys.version_info[0]}.{sys.version_info[1]}"


@dataclasses.dataclass(frozen=True)
class Row:
    """One row of the table: a measured value, what it is compared with, and its limit.

    A `limit` of None means none. `unit` is "s" (a ratio of two times), "MiB", or "" for yes (0) or no (1).
    """

    part: str
    name: str
    against: str
    found: float
    limit: float | None
    own_time: float = 0.0
    other: float = 0.0
    unit: str = "s"
    runs: int = 1
    note: str = ""

    @property
    def ok(self) -> bool:
        return self.limit is None or self.found <= self.limit

    def text(self) -> str:
        """Return the row for a terminal."""
        mark = "ok" if self.ok else "OVER"
        most = f"{'no limit':14}" if self.limit is None else f"at most {self.limit:<6.4g}"
        if self.unit == "s":
            what = f"{self.found:9.3g}x of {self.against:32} {most} {mark:4} {self._times()}"
        elif self.unit:
            what = f"{self.found:9.4g} {self.unit:33} {most} {mark:4}"
        else:
            what = f"{'no' if self.ok else 'YES':>9} {self.against:36} {mark}"
        return f"{self.name:36} {what} {self.note}".rstrip()

    def _times(self) -> str:
        return f"({_seconds(self.own_time)} / {_seconds(self.other)}, {self.runs} runs)" if self.other else ""


def _seconds(value: float) -> str:
    return f"{value:.1f} s" if value >= 10 else f"{value * 1000:.0f} ms"


def environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the variables for both sides, with default settings. The programs themselves are byte-compiled."""
    env = {**os.environ, **(more or {})}
    for name in ("VIRTUAL_ENV", "PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX", "UV_COMPILE_BYTECODE"):
        env.pop(name, None)
    return env


def ran(argv: Sequence[str], folder: Path, env: Mapping[str, str], *, codes: Sequence[int] = (0,)) -> str:
    """Return a program's stdout. A failure ends the benchmark."""
    done = subprocess.run(argv, cwd=folder, env=dict(env), capture_output=True, text=True, check=False)
    if done.returncode not in codes:
        sys.exit(f"{' '.join(argv)}\n{done.stdout}{done.stderr}\nexit {done.returncode}")
    return done.stdout


def timed(argv: Sequence[str], folder: Path, env: Mapping[str, str], *, codes: Sequence[int] = (0,)) -> float:
    """Return the seconds of one run."""
    began = time.perf_counter()
    ran(argv, folder, env, codes=codes)
    return time.perf_counter() - began


def processor_time(argv: Sequence[str], folder: Path, env: Mapping[str, str]) -> float:
    """Return the processor seconds of one run with its children, which other programs of the machine change little."""
    before = used_by_children()
    ran(argv, folder, env)
    return used_by_children() - before


def used_by_children() -> float:
    """Return the processor seconds of all children that ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def interleaved(sides: Sequence[Callable[[], float]], runs: int, *, warm: bool = True) -> list[float]:
    """Return the median of each side over several rounds, after one round that does not count.

    Each round runs every side once and starts with another side.
    """
    if warm:
        for side in sides:
            side()
    times: list[list[float]] = [[] for _ in sides]
    for first in range(runs):
        for turn in range(len(sides)):
            i = (first + turn) % len(sides)
            times[i].append(sides[i]())
    return [statistics.median(t) for t in times]
