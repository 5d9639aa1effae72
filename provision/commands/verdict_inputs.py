"""Read what a verdict depends on, and compare it with the environment's device."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..errors import GpuenvError

if TYPE_CHECKING:
    from ..config.options import Choices
    from ..model import CreateResult, Device, Emit, Lock, Machine, Plan, Verdict


def machine_for_verdict(*, seconds: float = 30.0) -> Machine:
    """Return what a verdict depends on: driver, GPUs and relevant variables."""
    from .. import detect

    return detect.detect({"driver", "gpus", "environment"}, seconds=seconds)


def explain_no_gpu(*, seconds: float = 30.0) -> str | None:
    """Return why the CPU is all that this machine has, or None if it has an NVIDIA GPU or its driver, working or not."""
    from .. import detect
    from ..detect.device import explain_cpu, list_nvidia_traces

    machine = detect.detect({"driver", "gpus", "context", "hardware", "environment"}, seconds=seconds)
    return None if machine.gpus or list_nvidia_traces(machine) else explain_cpu(machine)


def is_outdated(plan: Plan | None, choices: Choices) -> str | None:
    """Return why an unrequested CPU environment should use this machine's GPU, or None.

    Raises MachineError if NVIDIA hardware is present and its driver does not work.
    """
    elsewhere = choices.elsewhere or choices.platform
    if plan is None or plan.device != "cpu" or choices.device != "auto" or elsewhere:
        return None
    from .. import detect

    machine = detect.detect({"driver", "gpus", "context", "hardware", "environment"})
    device, why = detect.judge_device("auto", machine)
    return why if device == "cuda" else None


def can_prove(lock: Lock, machine: Machine | None, emit: Emit) -> bool:
    """Return whether this machine can prove the environment.

    It cannot if the environment is for the GPU of another machine and this machine has none.
    """
    from ..model import Event

    if lock.plan.device == "cpu" or machine is not None:
        return True
    here = machine_for_verdict()
    if here.gpus and not here.driver.problem:
        return True
    warning = "unproven on this machine: the environment is for the GPU of another machine, and this machine has no GPU"
    emit(Event(kind="warning", stage="verify", text=warning))
    return False


@contextlib.contextmanager
def get_planned_device(device: Device) -> Iterator[None]:
    """Set the device of the environment on errors in the block."""
    try:
        yield
    except GpuenvError as error:
        error.device = error.device or device
        raise


def is_expected(verdict: Verdict, device: str | None, *, asked_cpu: bool = False) -> bool:
    """Return whether a verdict matches the device of the environment's lock. `cpu` does not for a GPU environment, unless
    the CPU was requested."""
    return verdict.verdict == "works" or (verdict.verdict == "cpu" and (asked_cpu or device != "cuda"))


def is_good(result: CreateResult) -> bool:
    """Return whether the environment exists and its verdict, if any, matches its device."""
    if result.environment is None:
        return False
    device = result.plan.device if result.plan else None
    return result.verdict is None or is_expected(result.verdict, device)
