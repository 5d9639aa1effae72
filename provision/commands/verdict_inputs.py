"""What a verdict depends on, and what it means to whoever asked."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..errors import GpuenvError

if TYPE_CHECKING:
    from ..model import CreateResult, Device, Emit, Lock, Machine, Plan, Verdict
    from ..request.options import Choices


def machine_for_verdict(*, seconds: float = 30.0) -> Machine:
    """What a verdict depends on: driver, GPUs, the variables that matter."""
    from .. import detect

    return detect.detect({"driver", "gpus", "environment"}, seconds=seconds)


def is_outdated(plan: Plan | None, choices: Choices) -> str | None:
    """What this machine has and an environment for the CPU leaves idle, though nobody asked for the CPU; None
    where it is as it should be. Raises MachineError where NVIDIA hardware shows and its driver does not work."""
    elsewhere = choices.elsewhere or choices.platform
    if plan is None or plan.device != "cpu" or choices.device != "auto" or elsewhere:
        return None
    from .. import detect

    machine = detect.detect({"driver", "gpus", "context", "hardware", "environment"})
    device, why = detect.judge_device("auto", machine)
    return why if device == "cuda" else None


def can_prove(lock: Lock, machine: Machine | None, emit: Emit) -> bool:
    """Whether this machine can prove the environment: not one that was made for another machine's GPU, where
    this one has none."""
    from ..model import Event

    if lock.plan.device == "cpu" or machine is not None:
        return True
    here = machine_for_verdict()
    if here.gpus and not here.driver.problem:
        return True
    told = "unproven on this machine: the environment is for the GPU of another machine, and this machine has no GPU"
    emit(Event(kind="warning", stage="verify", text=told))
    return False


@contextlib.contextmanager
def get_planned_device(device: Device) -> Iterator[None]:
    """Note on an error within the block what its environment is for."""
    try:
        yield
    except GpuenvError as error:
        error.device = error.device or device
        raise


def is_expected(verdict: Verdict, device: str | None, *, asked_cpu: bool = False) -> bool:
    """Whether a verdict is what an environment was made for; `cpu` is only where that was the device."""
    return verdict.verdict == "works" or (verdict.verdict == "cpu" and (asked_cpu or device == "cpu"))


def is_good(result: CreateResult) -> bool:
    """Whether an environment is there, and its verdict, if it has one, is what it was made for."""
    if result.environment is None:
        return False
    device = result.plan.device if result.plan else None
    return result.verdict is None or is_expected(result.verdict, device)
