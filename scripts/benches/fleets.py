"""Measure processor time and peak memory of `gpuenv resolve` for many simulated targets."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from simulate_fleet import hosts

from .ground import Ground
from .measuring import GPUENV, PEAK, Row, used_by_children

_SECONDS = {1_000: 2.0, 10_000: 5.0, 100_000: 30.0}
_MIB = 500.0
_SEED = 1
_ARGS = ("resolve", "--framework", "torch", "--json", "--target", "-")


def fleets(ground: Ground) -> Iterator[Row]:
    """Measure each size in all rounds, the largest once, and its memory in another run."""
    for count, limit in _SECONDS.items():
        runs = 1 if count == max(_SECONDS) else ground.runs
        took = statistics.median(resolved(ground, count) for _ in range(runs))
        yield Row("fleet", f"resolve, {count:,} hosts", "", took, limit, unit="processor seconds", runs=runs)
    peak = ground.folder / "peak"
    resolved(ground, max(_SECONDS), [sys.executable, "-c", PEAK, str(peak)])
    most = int(peak.read_text(encoding="utf-8")) / 1024
    yield Row("fleet", f"resolve, {max(_SECONDS):,} hosts", "", most, _MIB, unit="MiB")


def resolved(ground: Ground, count: int, program: list[str] | None = None) -> float:
    """Return the processor seconds of one run for that many hosts."""
    with simulated(ground, count).open("rb") as lines:
        before = used_by_children()
        done = subprocess.run(
            [*(program or [GPUENV]), *_ARGS], stdin=lines, capture_output=True, cwd=ground.folder, env=ground.env,
            check=False,
        )  # fmt: skip
        took = used_by_children() - before
    if done.returncode not in (0, 5):  # 5: some hosts have no plan
        sys.exit(f"{done.stderr.decode()[-2000:]}\nexit {done.returncode}")
    return took


def simulated(ground: Ground, count: int) -> Path:
    """Return a file with that many hosts, one on each line."""
    path = ground.place("fleets") / f"{count}.jsonl"
    if not path.exists():
        with path.open("w", encoding="utf-8") as file:
            file.writelines(json.dumps(host) + "\n" for host in hosts(count, _SEED))
    return path
