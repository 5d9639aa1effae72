"""The stack of an environment or a lock, which a change keeps: its target, device, CUDA and Python."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from ..config.options import Choices
from ..environment import place, record
from ..errors import BuildError, MachineError, ResolveError, UsageError
from ..model import Emit, Lock, Plan, RequestContext
from ..system.versions import minor
from .formats import get_format
from .request import make_request

RECREATE = "rebuild the environment with --recreate. The old environment is kept until the new one works"


def read_same_stack_request(
    choices: Choices, plan: Plan, emit: Emit, *, no_code: bool = False
) -> RequestContext:
    """Return the request on the device, CUDA and Python of `plan`, unless the options name others.

    With `no_code` no source code runs. If this machine has another device, the target of `plan` is used. Raises UsageError, MachineError.
    """
    kept = _add_stack(choices, plan)
    try:
        context = make_request(kept, emit, no_code=no_code)
    except MachineError:
        if plan.device != "cuda" or kept.elsewhere:
            raise
        context = None
    if context and (context.request.device == plan.device or kept.elsewhere):
        return context
    return make_request(apply_target(kept, plan), emit, no_code=no_code)


def apply_target(choices: Choices, plan: Plan) -> Choices:
    """Return the options for the target, device, CUDA and Python of `plan`, regardless of this machine."""
    machine = dict.fromkeys(("target", "driver", "driver_os", "gpus", "platform", "glibc"))
    kept = dataclasses.replace(choices, gpu=[], **machine)  # type: ignore[arg-type]  # each may be None
    return _add_stack(dataclasses.replace(kept, planned=plan.target, device=plan.device), plan)


def _add_stack(choices: Choices, plan: Plan) -> Choices:
    """Return the options with Python and CUDA of `plan`, unless they name others. The conda solver keeps CUDA
    similar."""
    planned = get_format(plan.manager).OF_WHEELS
    cuda = _cuda(plan) if planned and choices.device != "cpu" else None
    return dataclasses.replace(choices, python=choices.python or plan.python, cuda=choices.cuda or cuda)


def _cuda(plan: Plan) -> str | None:
    """Return the CUDA version of all builds of a plan in the form of `--cuda`, or None."""
    versions = {minor(b.cuda) for b in plan.builds if b.cuda}
    return versions.pop() if len(versions) == 1 else plan.cuda_major if versions else None


def is_of_plan(plan: Plan | None, option: str, value: str | None) -> bool:
    """Return whether a value of --device, --cuda or --python is that of the plan."""
    if plan is None:
        return False
    if option == "device":
        return value in ("auto", plan.device)
    if value is None:
        return True
    if option == "python":  # a plan has only the minor version
        return plan.python == minor(value)
    return bool(plan.builds) and all(f"{b.cuda}.".startswith(f"{value}.") for b in plan.builds)


def explain_other_stack(plan: Plan, choices: Choices) -> str | None:
    """Return why a lock's plan does not have the requested Python or CUDA, or None if it has."""
    if not is_of_plan(plan, "python", choices.python):
        return f"it is for Python {plan.python}, not {choices.python}"
    if not is_of_plan(plan, "cuda", choices.cuda):
        return f"it is for CUDA {_cuda(plan) or 'none'}, not {choices.cuda}"
    return None


def refuse_other_stack(env: Path, old: Plan, new: Plan) -> None:
    """Raise UsageError if a change of packages would also change device, CUDA or Python."""
    had = {b.framework: b.cuda for b in old.builds}
    differ = [("device", old.device, new.device), ("Python", old.python, new.python)]
    differ += [
        (f"CUDA for {b.framework}", had[b.framework], b.cuda) for b in new.builds if b.framework in had
    ]
    changed = [
        f"{name} {was or 'none'}, but needs {now or 'none'}" for name, was, now in differ if was != now
    ]
    if changed:
        raise UsageError(
            f"{env} has {'; '.join(changed)}. This cannot be changed in an existing environment",
            hint=RECREATE,
        )


def refuse_cuda_for_cpu(old: Plan, new: Plan, change: str) -> None:
    """Raise ResolveError if a change of packages would replace CPU builds by CUDA builds, gigabytes to download."""
    had = {b.framework for b in old.builds if b.cuda is None}
    found = next((b for b in new.builds if b.cuda and b.framework in had), None)
    if old.device == "cpu" and found:
        raise ResolveError(
            f"{change} only the CUDA {found.cuda} build of {found.framework} {found.version} fits, and the project has CPU builds",
            hint="set GPUENV_INDEX_PYTORCH to a mirror, or pass CPU wheels with --find-links. "
            "To allow CUDA builds, run `gpuenv lock` after you edit the project's file",
        )


def refuse_idle_gpu(env: Path, choices: Choices, context: RequestContext) -> None:
    """Raise UsageError if --recreate would replace a GPU environment by a CPU one without a request."""
    if choices.device != "auto" or context.request.device != "cpu" or not place.made_by_gpuenv(env):
        return
    try:
        plan = record.read_plan(env)
    except BuildError:
        return  # --recreate replaces a damaged environment
    if plan is not None and plan.device == "cuda":
        raise UsageError(
            f"{env} is for a GPU, but no GPU can be used on this machine: {context.reason}",
            hint="--device cpu builds it for the CPU; --target, or --driver and --gpu, for another machine's GPU",
        )


def apply_lock(choices: Choices, lock: Lock) -> Choices:
    """Return the options for the target of a lock, with its device, CUDA and Python unless others are
    requested."""
    return dataclasses.replace(
        apply_target(choices, lock.plan),
        device=lock.plan.device if choices.device == "auto" else choices.device,
    )
