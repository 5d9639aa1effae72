"""Device, CUDA and Python of an environment or a lock: kept while its packages change."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

from ..environment import place, state
from ..errors import BuildError, MachineError, UsageError
from ..managers.protocol import locking
from ..model import Plan, RequestContext
from ..request.options import Choices

Judge = Callable[[Choices], RequestContext]
RECREATE = "rebuild it: --recreate; the old one stays until the new one works"


def read_same_stack_request(choices: Choices, plan: Plan, judge: Judge) -> RequestContext:
    """What is asked for, on the device, CUDA and Python of `plan` where the options leave them open. Where
    this machine is judged another device, the target of `plan` takes its place. Raises UsageError,
    MachineError."""
    kept = _with_stack(choices, plan)
    try:
        asked = judge(kept)
    except MachineError:
        if plan.device != "cuda" or kept.elsewhere:
            raise
        asked = None
    if asked and (asked.request.device == plan.device or kept.elsewhere):
        return asked
    return judge(apply_target(kept, plan))


def apply_target(choices: Choices, plan: Plan) -> Choices:
    """The options for the target and the stack of `plan`, whatever this machine is."""
    machine = dict.fromkeys(("target", "driver", "driver_os", "gpus", "platform", "glibc"))
    kept = dataclasses.replace(choices, gpu=[], **machine)  # type: ignore[arg-type]  # all of them may be None
    return _with_stack(dataclasses.replace(kept, planned=plan.target, device=plan.device), plan)


def _with_stack(choices: Choices, plan: Plan) -> Choices:
    """The options with Python and CUDA of `plan` where none is named. A solver that chooses builds keeps CUDA near."""
    planned = locking(plan.manager).PLANS_FIRST
    cuda = _cuda(plan) if planned and choices.device != "cpu" else None
    return dataclasses.replace(choices, python=choices.python or plan.python, cuda=choices.cuda or cuda)


def _cuda(plan: Plan) -> str | None:
    """The CUDA that all builds of a plan have, as `--cuda` takes it; None for a plan without one."""
    found = {".".join(b.cuda.split(".")[:2]) for b in plan.builds if b.cuda}
    return found.pop() if len(found) == 1 else plan.cuda_major if found else None


def is_kept(plan: Plan | None, option: str, value: str | None) -> bool:
    """Whether a value of --device, --cuda or --python is what a plan has already."""
    if plan is None:
        return False
    if option == "device":
        return value in ("auto", plan.device)
    if value is None:
        return True
    if option == "python":  # a plan has the minor version alone
        return plan.python == ".".join(value.split(".")[:2])
    return bool(plan.builds) and all(f"{b.cuda}.".startswith(f"{value}.") for b in plan.builds)


def explain_unfit(plan: Plan, choices: Choices) -> str | None:
    """Why a lock's plan has not the Python or the CUDA that is named; None where it has."""
    if not is_kept(plan, "python", choices.python):
        return f"it is for Python {plan.python}, not {choices.python}"
    if not is_kept(plan, "cuda", choices.cuda):
        return f"it is for CUDA {_cuda(plan) or 'none'}, not {choices.cuda}"
    return None


def refuse_other_stack(env: Path, old: Plan, new: Plan) -> None:
    """Raise UsageError where a change of packages would change device, CUDA or Python too."""
    had = {b.framework: b.cuda for b in old.builds}
    differ = [("device", old.device, new.device), ("Python", old.python, new.python)]
    differ += [
        (f"CUDA for {b.framework}", had[b.framework], b.cuda) for b in new.builds if b.framework in had
    ]
    changed = [
        f"{name} was {was or 'none'}, but needs {now or 'none'}" for name, was, now in differ if was != now
    ]
    if changed:
        raise UsageError(
            f"{env} has {'; '.join(changed)}. This cannot be changed in an existing environment",
            hint=RECREATE,
        )


def refuse_idle_gpu(env: Path, choices: Choices, context: RequestContext) -> None:
    """Raise UsageError where --recreate would make a CPU environment of one for a GPU, unasked."""
    if choices.device != "auto" or context.request.device != "cpu" or not place.made_by_gpuenv(env):
        return
    try:
        plan = state.plan_of(env)
    except BuildError:
        return  # a damaged one is what --recreate is for
    if plan is not None and plan.device == "cuda":
        raise UsageError(
            f"{env} is for a GPU, but no GPU can be used on this machine: {context.reason}",
            hint="--device cpu builds it for the CPU; --target, or --driver and --gpu, for another machine's GPU",
        )
