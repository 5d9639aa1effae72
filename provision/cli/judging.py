"""What a verdict depends on, and what it means to whoever asked."""

from __future__ import annotations

from ..model import Machine, Verdict


def machine_for_verdict() -> Machine:
    """What a verdict depends on: driver, GPUs, the variables that matter."""
    from .. import detect

    return detect.detect({"driver", "gpus", "environment"})


def exit_code(verdict: Verdict, device: str | None, *, asked_cpu: bool = False) -> int:
    """The exit code of a verdict on an environment made for a device: cpu is fine only where it was meant."""
    if verdict.verdict == "works":
        return 0
    return 0 if verdict.verdict == "cpu" and (asked_cpu or device == "cpu") else 8
