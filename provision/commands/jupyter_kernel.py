"""`gpuenv create --kernel`: the environment as a kernel of Jupyter.

Jupyter starts the kernel through `gpuenv run --exec`, and not the environment's Python by itself: what in
LD_LIBRARY_PATH shadows the environment's libraries is only known when the kernel starts, in Jupyter's own
environment. With `--exec` gpuenv becomes the kernel: Jupyter's interrupt and its termination reach it without
a process in between, and a kernel whose server was killed sees that its parent is gone (ipykernel holds the
process that started it against JPY_PARENT_PID) and gives the GPU free.
"""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

from ..environment import kernel, place, state
from ..errors import GpuenvError
from ..model import CreateResult, Emit, Event, Plan, StepFailure
from ..request import recorded_options
from ..request.options import Choices
from .create_options import CreateOptions
from .create_steps import create
from .verdict_inputs import is_good

# What `python -m provision` would do, without the folder that Jupyter runs in on the module path: a notebook's
# neighbour named json.py is nothing that gpuenv should import.
_BARE = "import sys; del sys.path[0]; from provision.__main__ import main; main()"


def create_with_kernel(emit: Emit, path: Path, choices: Choices, how: CreateOptions) -> CreateResult | Plan:
    """`create`, with a kernel where one is wanted or the environment has one already."""
    if not how.kernel and not (path / place.MARK / recorded_options.KERNEL).exists():
        return create(emit, path, choices, how)
    if not kernel.named(choices.with_):
        choices = dataclasses.replace(choices, with_=[*choices.with_, kernel.PACKAGE])
    made = create(emit, path, choices, how)
    if not isinstance(made, CreateResult) or not is_good(made):
        return made
    try:
        name = _registered(path)
    except GpuenvError as error:
        hint = f"; {error.hint}" if error.hint else ""
        told = f"no Jupyter kernel was made: {error.message}{hint}"
        emit(Event(kind="warning", stage="kernel", text=told))
        return dataclasses.replace(
            made, kernel_error=StepFailure(name=error.name, message=error.message, hint=error.hint)
        )
    emit(Event(kind="note", stage="kernel", text=f"Jupyter kernel: {name}"))
    return dataclasses.replace(made, kernel=name)


def _registered(env: Path) -> str:
    plan = state.plan_of(env)
    made_of = ", ".join(f"{b.framework} {b.version}" for b in plan.builds) if plan else ""
    name = kernel.register(env, str(state.interpreter(env)), made_of, [*_ourselves(), "run", "--exec"])
    state.write(env, recorded_options.KERNEL, {"name": name})
    return name


def _ourselves() -> list[str]:
    """How to start this gpuenv from anywhere."""
    script = Path(sys.executable).parent / "gpuenv"
    return [str(script)] if script.is_file() else [sys.executable, "-c", _BARE]
