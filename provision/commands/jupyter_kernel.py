"""Register the environment as a Jupyter kernel (`gpuenv create --kernel`).

Jupyter starts the kernel through `gpuenv run --exec`, not through the environment's Python. Only in Jupyter's
own environment is it known which entries of LD_LIBRARY_PATH override the environment's libraries. With
`--exec` gpuenv becomes the kernel, so Jupyter's interrupt and termination signals reach it directly. If the
server is killed, ipykernel sees through JPY_PARENT_PID that its parent is gone, and frees the GPU.
"""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

from ..config import record
from ..config.options import Choices
from ..environment import kernel, state
from ..errors import GpuenvError
from ..model import CreateResult, Emit, Event, Plan, StepFailure
from .create_options import CreateOptions
from .create_steps import create
from .verify import is_good

# `python -m provision` without the current folder on the module path: gpuenv must not import a file named
# json.py beside a notebook.
_BARE = "import sys; del sys.path[0]; from provision.__main__ import main; main()"


def create_with_kernel(emit: Emit, path: Path, choices: Choices, how: CreateOptions) -> CreateResult | Plan:
    """Run `create`, and register a kernel if one is requested or exists already."""
    if not how.kernel and not state.read_vouched(path, record.KERNEL):
        return create(emit, path, choices, how)
    if not kernel.named(choices.with_):
        choices = dataclasses.replace(choices, with_=[*choices.with_, kernel.PACKAGE])
    result = create(emit, path, choices, how)
    if not isinstance(result, CreateResult) or not is_good(result):
        return result
    try:
        name = _registered(path)
    except GpuenvError as error:
        hint = f"; {error.hint}" if error.hint else ""
        warning = f"no Jupyter kernel was made: {error.message}{hint}"
        emit(Event(kind="warning", stage="kernel", text=warning))
        return dataclasses.replace(
            result, kernel_error=StepFailure(name=error.name, message=error.message, hint=error.hint)
        )
    emit(Event(kind="note", stage="kernel", text=f"Jupyter kernel: {name}"))
    return dataclasses.replace(result, kernel=name)


def _registered(env: Path) -> str:
    plan = state.read_plan(env)
    made_of = ", ".join(f"{b.framework} {b.version}" for b in plan.builds) if plan else ""
    name = kernel.register(env, str(state.find_python(env)), made_of, [*_ourselves(), "run", "--exec"])
    state.write_vouched(env, record.KERNEL, {"name": name})
    return name


def _ourselves() -> list[str]:
    """Return the command that starts this gpuenv from any folder."""
    script = Path(sys.executable).parent / "gpuenv"
    return [str(script)] if script.is_file() else [sys.executable, "-c", _BARE]
