"""lock and resolve with --manager conda, and the lock that create installs."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Callable
from pathlib import Path

from ..errors import GpuenvError, LockError, ResolveError, UsageError
from ..managers.conda import engine as door
from ..managers.conda import lock_file as conda_file
from ..managers.conda import question as conda_target
from ..managers.conda import search as conda_search
from ..managers.conda.search import Near
from ..model import Emit, Event, Lock, Plan
from ..request import ask
from ..request import project_options as inproject
from ..request.options import Choices
from ..system.output_file import is_stream, refuse_to_replace
from . import conda_given, same_stack
from .judging import made_for
from .locking import Upgrade, checked


def lock_name(choices: Choices) -> str:
    """The name of the project's lock file: conda-lock.yml, of a named target NAME.conda-lock.yml, as
    conda-lock knows its own files by how their names end."""
    return f"{choices.target_name}.{conda_file.NAME}" if choices.target_name else conda_file.NAME


def locked(
    asked: ask.Asked, choices: Choices, emit: Emit, near: Near | None = None
) -> tuple[Lock, tuple[str, ...]]:
    """The lock, as near to one that is there as can be, and what the environment variables overrode.
    Raises LockError, ResolveError."""
    with made_for(asked.request.device):
        return _locked(asked, choices, emit, near or Near())


def _locked(asked: ask.Asked, choices: Choices, emit: Emit, near: Near) -> tuple[Lock, tuple[str, ...]]:
    question, said = conda_target.question(asked, choices)
    asked = dataclasses.replace(asked, target=question.target)
    for words in said:
        emit(Event(kind="note", stage="resolve", text=words))
    made = conda_search.settled(asked, question, emit, near)
    for build in made.plan.builds:
        if build.cuda and build.cudnn and asked.target.gpus:
            bounds = conda_target.cudnn_bounds(question, asked.profiles, build.cuda, build.cudnn)
            if bounds:
                told = f"cuDNN {build.cudnn} has no kernels for a GPU of the target; solving with cudnn {bounds[0]}"
                emit(Event(kind="note", stage="resolve", text=told))
                again = dataclasses.replace(
                    question, bounds=dataclasses.replace(question.bounds, cudnn=bounds)
                )
                return conda_search.settled(asked, again, emit, near), said
    return made, said


def show_plan(emit: Emit, choices: Choices, *, explain: bool = False) -> Plan:
    """`gpuenv resolve --manager conda`: what the solver would take."""
    asked = conda_target.judged(choices, emit, reading=True)
    try:
        made, notes = locked(asked, choices, emit)
    except ResolveError as error:
        if error.log and explain:
            emit(Event(kind="log", stage="resolve", text=error.log))
        return _no_plan(asked, error)
    return dataclasses.replace(made.plan, notes=(*made.plan.notes, *notes))


def _no_plan(asked: ask.Asked, error: GpuenvError) -> Plan:
    return Plan(
        builds=(), python=asked.request.python, platform=asked.target.platform, manager="conda",
        device=asked.request.device, target=asked.target, notes=(error.message,), hint=error.hint,
    )  # fmt: skip


# --- lock ----------------------------------------------------------------------------------------


def make_lock(
    emit: Emit, choices: Choices, *, check: bool, output: Path | None, upgrade: Upgrade, force: bool
) -> Lock:
    """`gpuenv lock --manager conda`: write conda-lock.yml, or say whether it still holds."""
    door.require("rattler", "conda_lock")
    output = output or Path(lock_name(choices))
    if not check:
        refuse_to_replace(output, force=force)
    asked = conda_target.judged(choices, emit)
    held = _held(output, asked, strict=check)
    made, _ = locked(asked, choices, emit, _near(held, upgrade))
    files = inproject.files_of(choices, asked.demands)
    made = dataclasses.replace(made, inputs=inproject.inputs(choices, files))
    if check and held:
        if inproject.same_inputs(held.inputs, choices, files):
            held = dataclasses.replace(held, inputs=made.inputs)
        return checked(emit, made, held, output, _next(choices, output))
    conda_file.write(output, made, conda_target.question(asked, choices)[0].virtual)
    emit(Event(kind="next", stage="lock", text=_next(choices, output)))
    return made


def _next(choices: Choices, output: Path) -> str:
    """What installs the lock: on the machine that it is for, or here for that machine."""
    told = choices.target_name or choices.target
    named = f" --target {shlex.quote(str(told))}" if told else ""
    manager = " --manager conda" if not choices.config else ""
    own = f"--locked{manager}" if output.name == lock_name(choices) else f"--lock {shlex.quote(str(output))}"
    return f"gpuenv create {own}{named}  # installs exactly {output.name}"


def _held(path: Path, asked: ask.Asked, *, strict: bool) -> Lock | None:
    """The lock that is there, None where it holds nothing for the target's platform. One that cannot be
    read is written anew, except where it is checked."""
    if not strict and (not path.exists() or is_stream(path)):
        return None
    try:
        return conda_given.read(path, asked.target.platform, asked.profiles, allow_md5=True)
    except LockError:
        if strict:
            raise
        return None


def _near(held: Lock | None, upgrade: Upgrade) -> Near:
    """What of a lock stays. Raises UsageError for packages to upgrade that it does not have."""
    if held is None or upgrade.all:
        return Near()
    names = {p.name for p in held.packages}
    for name in upgrade.names:
        if name not in names:
            raise UsageError(f"--upgrade {name}: the lock has no such package")
    return Near(held, frozenset(upgrade.names))


def lock_of(
    asked: ask.Asked, choices: Choices, emit: Emit, like: Lock | None = None
) -> tuple[Lock, tuple[str, ...]]:
    """The project's own lock where it is for what is asked and fits this machine, else a fresh one, as
    near to it (or to `like`) as can be; and what the environment variables overrode."""
    path = Path.cwd() / lock_name(choices)
    held = _held(path, asked, strict=False) if choices.config and path.exists() else None
    files = inproject.files_of(choices, asked.demands)
    if held and inproject.same_inputs(held.inputs, choices, files):
        why = _unfit(held, asked, choices)
        if why is None:
            return held, ()
        emit(Event(kind="warning", stage="lock", text=f"{path.name} is not used: {why}"))
        held = None
    elif held:
        told = f"{path.name} was made for other requirements: solving again (gpuenv lock renews it)"
        emit(Event(kind="note", stage="lock", text=told))
    made, said = locked(asked, choices, emit, Near(like or held))
    return dataclasses.replace(made, inputs=inproject.inputs(choices, files)), said


def _unfit(held: Lock, asked: ask.Asked, choices: Choices) -> str | None:
    """Why a lock is not for the target asked for; None where it is."""
    if held.plan.device != asked.request.device:
        return f"it is for {held.plan.device}, and this machine is judged {asked.request.device}"
    if why := same_stack.unfit(held.plan, choices):
        return why
    try:
        conda_given.accepted(held, choices)
    except LockError as error:
        return error.message
    return None


def files_watched(choices: Choices, asked: ask.Asked) -> list[str]:
    """The files whose change means another environment: the project's own, and its lock."""
    files = inproject.files_of(choices, asked.demands)
    return [*files, str(Path.cwd() / lock_name(choices))] if choices.config else files


def with_more(
    asked: ask.Asked, choices: Choices, near: Lock | None, emit: Emit
) -> tuple[Lock, Callable[[Lock], None]]:
    """What is asked for, solved as near to a lock as can be, and what writes it as the project's lock. Raises
    LockError, ResolveError."""
    door.require("rattler", "conda_lock")
    path = Path.cwd() / lock_name(choices)
    made, _ = locked(asked, choices, emit, Near(near))
    virtual = conda_target.question(asked, choices)[0].virtual
    return made, lambda lock: conda_file.write(path, lock, virtual)
