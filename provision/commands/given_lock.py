"""The lock that `create` is given: by --locked, --frozen or --lock, or an environment's own."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from ..environment import place
from ..errors import LockError
from ..managers.protocol import locking
from ..model import Emit, Event, Lock
from ..request import facts, upload_limits
from ..request import project_options as inproject
from ..request.options import Choices
from ..wheels import locks
from . import same_stack
from .accepting import read
from .asking import judged
from .create_options import CreateOptions
from .lock import Upgrade, differences, lock_name, locked_like


def lock_for(env: Path, choices: Choices, how: CreateOptions, emit: Emit) -> Lock | None:
    """The lock to install; None where packages are to be solved. Raises LockError."""
    if not (how.lock or how.locked or how.frozen):
        return locks.read_in(env / place.MARK) if names_nothing(env, choices) else None
    path = how.lock or Path.cwd() / lock_name(choices)
    if not how.lock:
        require(path, env / place.MARK / locking(choices.manager).LOCK_NAME, how)
    given = read(path, dataclasses.replace(choices, platform=None))  # it is installed here
    locking(choices.manager).check_hashes(given, str(path), allow_md5=how.allow_md5)
    if how.locked and not how.lock:
        refuse_stale(path, given, choices, emit)
    return given


def names_nothing(env: Path, choices: Choices) -> bool:
    """Whether neither options nor files say what an environment of gpuenv is made of: its lock does."""
    named = (
        choices.config, choices.framework, choices.with_, choices.requirement, choices.project, choices.bundle,
    )  # fmt: skip
    return not any(named) and place.is_settled(env) and place.made_by_gpuenv(env)


def require(path: Path, own: Path, how: CreateOptions) -> None:
    """Raise LockError where the lock that --locked or --frozen installs is missing."""
    if path.exists():
        return
    option = "--locked" if how.locked else "--frozen"
    hint = "write it: gpuenv lock"
    if own.exists():
        hint += f"; or install the environment's own: --lock {own}"
    raise LockError(f"{path.name} is missing in {path.parent}: {option} installs that lock", hint=hint)


def refuse_stale(path: Path, given: Lock, choices: Choices, emit: Emit) -> None:
    """Raise LockError where a lock is no longer what the project asks for. Digests say so without a solve;
    where they differ, a lock for the same target is solved and compared."""
    if not (choices.config or choices.requirement or choices.project):
        return
    demands = inproject.demanded(choices, facts.known(choices), given.plan.target)
    files = inproject.files_of(choices, demands)
    limited = upload_limits.still_holds(choices, given)
    if limited and _fits_options(given, choices) and inproject.same_inputs(given.inputs, choices, files):
        return
    told = f"{path.name} was made for other requirements: comparing it with what is asked for now"
    emit(Event(kind="note", stage="lock", text=told))
    hint = "gpuenv lock writes it anew; --frozen takes it unchecked"
    try:
        fresh = _solved(choices, given, emit)
    except LockError as error:
        raise LockError(
            f"{path} cannot be compared with what is asked for now: {error.message}", log=error.log, hint=hint
        ) from error
    if drift := differences(given, fresh):
        raise LockError(
            f"{path} is no longer what the project asks for ({len(drift)} packages differ)",
            log="\n".join(drift), hint=hint,
        )  # fmt: skip


def _fits_options(given: Lock, choices: Choices) -> bool:
    """Whether device, CUDA and Python that options or gpuenv.yaml name are those of the lock."""
    named = {"device": choices.device, "cuda": choices.cuda, "python": choices.python}
    return all(same_stack.keeps(given.plan, option, value) for option, value in named.items())


def _solved(choices: Choices, given: Lock, emit: Emit) -> Lock:
    """What would be locked now, for the lock's own target and as near to it as can be. Raises LockError."""
    asked = judged(at_lock(choices, given), emit)
    plan, fresh = locked_like(asked, choices, emit, given, Upgrade())
    if fresh is None:
        raise LockError(f"no build fits what is asked for: {plan.hint or 'see gpuenv resolve --explain'}")
    return fresh


def at_lock(choices: Choices, given: Lock) -> Choices:
    """The options for the target of a lock; device, CUDA and Python are the lock's where they are not named."""
    return dataclasses.replace(
        same_stack.at_target(choices, given.plan),
        device=given.plan.device if choices.device == "auto" else choices.device,
    )
