"""The lock that is there: that of the project, which `create` takes where it fits, the one with the packages of
`add`, and the one that `create` is given by --locked, --frozen or --lock."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path

from ..environment import place
from ..errors import LockError, OtherPlatformError, ResolveError
from ..managers.protocol import locking
from ..model import Emit, Event, Lock, Plan, RequestContext
from ..request import load_profiles, project_options as inproject, recorded_options, upload_limits
from ..request.options import Choices
from ..request.project_folder import find_project_folder
from ..wheels import pylock
from . import kept_build
from .create_options import CreateOptions
from .lock import list_differences, lock_name
from .lock_acceptance import accept_lock, check_lock, read_lock, virtual_packages
from .lock_preferences import Upgrade, solve_like
from .read_request import get_locking, judge_request

Write = Callable[[Lock], None]


def solve_or_read_lock(
    context: RequestContext,
    choices: Choices,
    emit: Emit,
    like: Lock | None = None,
    *,
    allow_md5: bool = False,
) -> tuple[Plan, Lock | None]:
    """The project's own lock where it is for what is asked and fits this machine, else a fresh one, as near to it (or
    to `like`) as can be. The plan has the notes for this machine too. Raises LockError, ResolveError."""
    held = _held(choices, context.target.platform) if choices.config else None
    files = inproject.list_files(choices, context.demands)
    same = held is not None and inproject.is_same_inputs(held.inputs, choices, files)
    if held and same and upload_limits.is_current(choices, held):
        why = _unfit(held, choices, context)
        if why is None:
            get_locking(choices).check_hashes(held, lock_name(choices), allow_md5=allow_md5)
            return held.plan, held
        emit(Event(kind="warning", stage="lock", text=f"{lock_name(choices)} is not used: {why}"))
        held = None
    elif held:
        told = f"{lock_name(choices)} is for other requirements: solving again (update it with gpuenv lock)"
        emit(Event(kind="note", stage="lock", text=told))
    plan, made = solve_like(context, choices, emit, like or held, Upgrade())
    if made is None:
        return plan, None
    get_locking(choices).check_hashes(made, "the channel's index", allow_md5=allow_md5)
    return plan, dataclasses.replace(made, inputs=inproject.digest_inputs(choices, files))


def _held(choices: Choices, platform: str | None = None) -> Lock | None:
    """The project's lock that is there, None where it holds nothing for the platform. Raises LockError."""
    path = find_project_folder() / lock_name(choices)
    try:
        return read_lock(path, choices, platform) if path.exists() else None
    except OtherPlatformError:
        return None


def _unfit(lock: Lock, choices: Choices, context: RequestContext) -> str | None:
    """Why a lock is not for the target asked for; None where it is."""
    if lock.plan.device != context.request.device:
        return f"it is for {lock.plan.device}, but this machine requires {context.request.device}"
    if why := kept_build.explain_unfit(lock.plan, choices):
        return why
    if choices.elsewhere and lock.plan.platform != context.target.platform:
        return f"it is for {lock.plan.platform}, not {context.target.platform}"
    try:
        if choices.elsewhere:
            check_lock(lock, choices, context.target, context.machine)
        else:
            accept_lock(lock, choices)
    except LockError as error:
        return error.message
    return None


def list_watched_files(choices: Choices, context: RequestContext) -> list[str]:
    """The files whose change means another environment: the project's own, and its lock."""
    files = inproject.list_files(choices, context.demands)
    return [*files, str(find_project_folder() / lock_name(choices))] if choices.config else files


@dataclasses.dataclass(frozen=True, kw_only=True)
class SolvedRequest:
    """A solved lock that is not written yet: the project's file has to have the packages first. `held` is the one that
    is there."""

    made: Lock
    choices: Choices
    asked: RequestContext
    put: Write
    held: Lock | None = None

    def write(self) -> Lock:
        """Write the lock with the digest of what the project asks for now, and return it."""
        now = inproject.apply_project(self.choices)
        digest = inproject.digest_inputs(now, inproject.list_files(now, self.asked.demands))
        digested = dataclasses.replace(self.made, inputs=digest)
        self.put(digested)
        return digested


def with_packages(
    mine: Choices, own: Lock | None, chosen: Callable[[Sequence[str]], list[str]], told: str, emit: Emit
) -> SolvedRequest:
    """The project's lock with other packages, near to the one that is there, else to the environment's `own`.
    `mine` are the options of the environment, `chosen` returns the packages for those that there are, and `told`
    names the change. Raises LockError, ResolveError."""
    of_env = inproject.apply_project(mine)
    way = get_locking(of_env)
    way.require()
    held = _held(of_env)
    own = own if own and own.manager == of_env.manager else None
    before = _for_all(mine, held)
    now = inproject.apply_project(before)
    now = dataclasses.replace(now, with_=chosen(now.with_))
    asked = _judged(now, held, own, lambda c: judge_request(c, emit))
    plan, made = solve_like(asked, now, emit, held or own, Upgrade())
    if made is None:
        raise ResolveError(f"{told} no build fits", hint=plan.hint)
    path, virtual = find_project_folder() / lock_name(now), virtual_packages(asked, now)
    return SolvedRequest(
        made=made,
        choices=before,
        asked=asked,
        put=lambda made: way.write_lock(path, made, virtual),
        held=held,
    )


def _for_all(mine: Choices, lock: Lock | None) -> Choices:
    """The options that the project's lock is solved with. What only this environment has (its machine, a kernel,
    packages of command lines) is left out, unless the lock was made with the very same."""
    if lock is None:
        return recorded_options.without_own_packages(mine)
    plain = recorded_options.without_machine(mine)
    now = inproject.apply_project(plain)
    demands = inproject.read_requirements(now, load_profiles.load_all(now), lock.plan.target)
    same = inproject.is_same_inputs(lock.inputs, now, inproject.list_files(now, demands))
    return plain if same else recorded_options.without_own_packages(plain)


def _judged(now: Choices, lock: Lock | None, own: Lock | None, judge: kept_build.Judge) -> RequestContext:
    """What the lock is solved for: its own target, else that of the environment, else as options say."""
    if lock and not now.target_name:
        return judge(_at_lock(now, lock))
    near = lock or own
    return kept_build.read_same_stack_request(now, near.plan, judge) if near else judge(now)


# --- given to create -----------------------------------------------------------------------------


def require_lock(env: Path, choices: Choices, how: CreateOptions, emit: Emit) -> Lock | None:
    """The lock to install; None where packages are to be solved. Raises LockError."""
    if not (how.lock or how.locked or how.frozen):
        return pylock.read_in(env / place.MARK) if _names_nothing(env, choices) else None
    path = how.lock or find_project_folder() / lock_name(choices)
    if not how.lock:
        _require(path, env / place.MARK / locking(choices.manager).LOCK_NAME, how)
    given = read_lock(path, dataclasses.replace(choices, platform=None))  # it is installed here
    locking(choices.manager).check_hashes(given, str(path), allow_md5=how.allow_md5)
    if how.locked and not how.lock:
        _refuse_stale(path, given, choices, emit)
    return given


def _names_nothing(env: Path, choices: Choices) -> bool:
    """Whether neither options nor files say what an environment of gpuenv is made of: its lock does."""
    named = (
        choices.config, choices.framework, choices.with_, choices.requirement, choices.project, choices.bundle,
    )  # fmt: skip
    return not any(named) and place.is_settled(env) and place.made_by_gpuenv(env)


def _require(path: Path, own: Path, how: CreateOptions) -> None:
    """Raise LockError where the lock that --locked or --frozen installs is missing."""
    if path.exists():
        return
    option = "--locked" if how.locked else "--frozen"
    hint = "write it: gpuenv lock"
    if own.exists():
        hint += f"; or install the environment's own: --lock {own}"
    raise LockError(f"{path.name} is missing in {path.parent}: {option} installs that lock", hint=hint)


def _refuse_stale(path: Path, lock: Lock, choices: Choices, emit: Emit) -> None:
    """Raise LockError where a lock is no longer what the project asks for. Digests say so without a solve;
    where they differ, a lock for the same target is solved and compared."""
    if not (choices.config or choices.requirement or choices.project):
        return
    demands = inproject.read_requirements(choices, load_profiles.load_all(choices), lock.plan.target)
    files = inproject.list_files(choices, demands)
    limited = upload_limits.is_current(choices, lock)
    if limited and _fits_options(lock, choices) and inproject.is_same_inputs(lock.inputs, choices, files):
        return
    told = f"{path.name} is for other requirements: comparing it with the current ones"
    emit(Event(kind="note", stage="lock", text=told))
    hint = "update it: gpuenv lock; or install it unchecked: --frozen"
    try:
        fresh = _solved(choices, lock, emit)
    except LockError as error:
        raise LockError(
            f"{path} cannot be compared with the current requirements: {error.message}",
            log=error.log,
            hint=hint,
        ) from error
    if drift := list_differences(lock, fresh):
        raise LockError(
            f"{path} is out of date ({len(drift)} packages differ)",
            log="\n".join(drift), hint=hint,
        )  # fmt: skip


def _fits_options(lock: Lock, choices: Choices) -> bool:
    """Whether device, CUDA and Python that options or gpuenv.yaml name are those of the lock."""
    named = {"device": choices.device, "cuda": choices.cuda, "python": choices.python}
    return all(kept_build.is_kept(lock.plan, option, value) for option, value in named.items())


def _solved(choices: Choices, lock: Lock, emit: Emit) -> Lock:
    """What would be locked now, for the lock's own target and as near to it as can be. Raises LockError."""
    asked = judge_request(_at_lock(choices, lock), emit)
    plan, fresh = solve_like(asked, choices, emit, lock, Upgrade())
    if fresh is None:
        raise LockError(f"no build fits: {plan.hint or 'see gpuenv resolve --explain'}")
    return fresh


def _at_lock(choices: Choices, lock: Lock) -> Choices:
    """The options for the target of a lock; device, CUDA and Python are the lock's where they are not named."""
    return dataclasses.replace(
        kept_build.apply_target(choices, lock.plan),
        device=lock.plan.device if choices.device == "auto" else choices.device,
    )
