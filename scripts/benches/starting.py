"""Measure commands that build nothing."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from .ground import JAX, Ground
from .measuring import GPUENV, PASS, Row, interleaved, processor_time
from .watched import watched

_THERE = ("resolve", "-f", "torch", "--driver", "550.54.15", "--gpu", "8.0")


def start(ground: Ground) -> Iterator[Row]:
    """Compare the processor time of each command with that of a Python that starts and does nothing."""
    folder = ground.jax_env.parent
    rows = {
        "--version": (["--version"], 3),
        "list": (["list"], 10),
        "detect": (["detect"], 10),
        "resolve, another machine": (_THERE, 15),
        "resolve, this machine": (["resolve", *JAX], 15),
        "create, all in place": (["create", "env", *JAX], 12),
    }
    sides = [partial(processor_time, [GPUENV, *args], folder, ground.env) for args, _ in rows.values()]
    runs = ground.runs * 3
    *ours, nothing = interleaved([*sides, partial(processor_time, PASS, folder, ground.env)], runs)
    for took, (name, (_, limit)) in zip(ours, rows.items(), strict=True):
        yield Row("start", name, "python -c pass", took / nothing, limit, took, nothing, runs=runs)
    for name, (args, _) in rows.items():
        faults, means = watched(args, folder, ground.env)
        what = "network, child or heavy import"
        yield Row("start", name, what, len(faults), 0, unit="", note=f"({means}) {'; '.join(faults)}")
