"""The project's lock: used where it matches the requirements, otherwise solved again near to it."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path

from ..config import recall, rows
from ..config.env import find_project_folder
from ..config.options import BuildOptions, Choices
from ..config.project import add_inputs, apply_project, is_same_inputs, list_files, read_requirements
from ..config.sources import has_same_limit
from ..environment import place, record
from ..errors import LockError, OtherPlatformError, ResolveError
from ..model import Emit, Event, Lock, Plan, RequestContext, make_lock_name
from ..model.values import Value
from ..system.files import is_edited
from . import solve_near
from .accept import accept_lock, check_lock, read_lock
from .changes import list_differences, refuse_differences
from .formats import check_choices, get_format
from .request import make_request
from .stack import apply_lock, explain_other_stack, is_of_plan, read_same_stack_request


def read_or_solve_lock(
    context: RequestContext,
    choices: Choices,
    emit: Emit,
    near: Lock | None = None,
    *,
    allow_md5: bool,
) -> tuple[Plan, Lock | None]:
    """Return the plan and the project's lock if it matches, otherwise a new lock near to it or to `near`.

    Raises LockError, ResolveError.
    """
    project_lock = _read_project_lock(choices, context.target.platform) if choices.config else None
    files = list_files(choices, context.requirements)
    same = project_lock is not None and is_same_inputs(project_lock.inputs, choices, files)
    if project_lock and same and has_same_limit(choices, project_lock):
        why = _explain_unfit(project_lock, choices, context)
        if why is None:
            get_format(choices.manager).check_hashes(project_lock, lock_name(choices), allow_md5=allow_md5)
            return project_lock.plan, project_lock
        emit(Event("warning", "lock", f"{lock_name(choices)} is not used: {why}"))
        project_lock = None
    elif project_lock:
        emit(Event("note", "lock", f"{lock_name(choices)} is for other requirements: solving again"))
    plan, new_lock = solve_near(context, choices, emit, near or project_lock)
    if new_lock is None:
        return plan, None
    get_format(choices.manager).check_hashes(new_lock, "the channel's index", allow_md5=allow_md5)
    return plan, add_inputs(new_lock, choices, context.requirements)


def renew_project_lock(choices: Choices, lock: Lock, emit: Emit) -> bool:
    """Write the project's lock after a build whose requirements are newer than it, and say what changed.

    It stays where the command line chose other packages, or where it is for another machine. Return whether it was
    written. Raises LockError.
    """
    old = (
        _read_project_lock(choices, lock.plan.platform)
        if choices.config and not _OWN.intersection(choices.typed or {})
        else None
    )
    if old is None or old.inputs == lock.inputs:
        return False
    name = lock_name(choices)
    if old.target != lock.target or old.plan.device != lock.plan.device:
        text = f"{name} is for another machine and for other requirements. To update it: gpuenv lock"
        emit(Event("warning", "lock", text))
        return False
    changed = list_differences(old, lock)
    get_format(choices.manager).write_lock(find_project_folder() / name, lock)
    emit(Event("note", "lock", f"{name} is renewed: {', '.join(changed) or 'the same packages'}"))
    return True


_OWN = frozenset(
    {"with_", "requirement", "extra", "group", "framework", "project", "cuda", "python", "device"}
)
"""Options that choose other packages than those of the project's file."""


def _read_project_lock(choices: Choices, platform: str | None = None) -> Lock | None:
    """Return the project's lock, or None if it has nothing for the platform. Raises LockError."""
    path = find_project_folder() / lock_name(choices)
    try:
        return read_lock(path, choices, platform) if path.exists() else None
    except OtherPlatformError:
        return None


def _explain_unfit(lock: Lock, choices: Choices, context: RequestContext) -> str | None:
    """Return why a lock does not fit the requested target, or None if it fits."""
    if lock.plan.device != context.request.device:
        return f"it is for {lock.plan.device}, but {context.request.device} is needed on this machine"
    if why := explain_other_stack(lock.plan, choices):
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
    """Return the files whose changes require another environment: the project's files and its lock."""
    files = list_files(choices, context.requirements)
    return [*files, str(find_project_folder() / lock_name(choices))] if choices.config else files


class SolvedRequest(Value):
    """A solved lock that is not written to `path` yet, because the project's file must be written first.

    `project_lock` is the existing lock.
    """

    lock: Lock
    choices: Choices
    context: RequestContext
    path: Path
    project_lock: Lock | None = None

    def write(self) -> Lock:
        """Write the lock with the digest of the project's current requirements, and return it."""
        now = apply_project(self.choices)
        digested = add_inputs(self.lock, now, self.context.requirements)
        get_format(now.manager).write_lock(self.path, digested)
        return digested


def solve_with_packages(
    env_choices: Choices,
    env_lock: Lock | None,
    chosen: Callable[[Sequence[str]], list[str]],
    change: str,
    emit: Emit,
) -> SolvedRequest:
    """Solve the project's lock with other packages, similar to its current lock, otherwise to `env_lock`.

    It is for the lock's own target, otherwise for that of the environment, otherwise for that of the options.

    `env_choices` are the options of the environment. `chosen` returns the new packages for the current ones.
    `change` describes the change in errors. Raises LockError, ResolveError.
    """
    of_env = apply_project(env_choices)
    check_choices(of_env)
    get_format(of_env.manager).require()
    project_lock = _read_project_lock(of_env)
    env_lock = env_lock if env_lock and env_lock.manager == of_env.manager else None
    before = _share_options(env_choices, project_lock)
    now = apply_project(before)
    now = dataclasses.replace(now, with_=chosen(now.with_))
    near = project_lock or env_lock
    if project_lock and not now.target_name:
        context = make_request(apply_lock(now, project_lock), emit)
    elif near:
        context = read_same_stack_request(now, near.plan, emit)
    else:
        context = make_request(now, emit)
    plan, new_lock = solve_near(context, now, emit, near)
    if new_lock is None:
        raise ResolveError(f"{change} no build fits", hint=plan.hint)
    return SolvedRequest(
        lock=new_lock,
        choices=before,
        context=context,
        path=find_project_folder() / lock_name(now),
        project_lock=project_lock,
    )


def _share_options(env_choices: Choices, lock: Lock | None) -> Choices:
    """Return the options to solve the project's lock with.

    Options of this environment alone (machine, kernel, packages of command lines) are left out. They stay if
    the lock was solved with the same ones.
    """
    if lock is None:
        return recall.without_own_packages(env_choices)
    plain = recall.without_machine(env_choices)
    now = apply_project(plain)
    requirements = read_requirements(now, rows.load(now), lock.plan.target)
    same = is_same_inputs(lock.inputs, now, list_files(now, requirements))
    return plain if same else recall.without_own_packages(plain)


def lock_name(choices: Choices) -> str:
    """Return the name of the project's lock file, or of that of the named target."""
    return make_lock_name(choices.manager, choices.target_name)


# --- the lock that `create` installs ---------------------------------------------------------------


def find_named_lock(
    options: BuildOptions, env: Path, choices: Choices, file: Path | None, emit: Emit
) -> Lock | None:
    """Return the lock that decides what is installed, or None where the options do, which have to be solved.

    It is that of `file` (--lock, --bundle), otherwise the project's (--locked, --frozen), otherwise the lock inside the environment
    if nothing else names its contents. Raises LockError.
    """
    if not (file or options.locked or options.frozen):
        # `is_current` compares it with what is there; `--recreate` installs it if the registry vouches for it.
        named = (
            choices.config, choices.framework, choices.with_, choices.requirement, choices.project,
        )  # fmt: skip
        own = not any(named) and place.is_undisturbed(env) and place.made_by_gpuenv(env)
        return record.read_lock(env) if own and (not options.recreate or record.is_vouched(env)) else None
    path = file or find_project_folder() / lock_name(choices)
    if not file and not path.exists():
        hint = " ".join(["write it: gpuenv lock", *(f"-f {shlex.quote(f)}" for f in choices.framework)])
        env_lock = env / place.MARK / make_lock_name(choices.manager)
        if env_lock.exists() and record.is_vouched(env):
            hint += f"; or install the environment's own: --lock {env_lock}"
        option = "--locked" if options.locked else "--frozen"
        raise LockError(
            f"{path.name} is missing in {path.parent}, and {option} installs from this lock file", hint=hint
        )
    lock = read_lock(path, dataclasses.replace(choices, platform=None))  # it is installed on this machine
    get_format(choices.manager).check_hashes(lock, str(path), allow_md5=options.allow_md5)
    if options.locked and not file:
        _refuse_outdated(path, lock, choices, emit)
    return lock


def _refuse_outdated(path: Path, lock: Lock, choices: Choices, emit: Emit) -> None:
    """Raise LockError if a lock is older than the project's requirements.

    Equal digests of an unedited lock need no solve. Otherwise a lock for the same target is solved and compared.
    """
    if not (choices.config or choices.requirement or choices.project):
        return
    requirements = read_requirements(choices, rows.load(choices), lock.plan.target)
    files = list_files(choices, requirements)
    options = {"device": choices.device, "cuda": choices.cuda, "python": choices.python}
    fits = all(is_of_plan(lock.plan, option, value) for option, value in options.items())
    edited = is_edited(path)
    if not edited and has_same_limit(choices, lock) and fits and is_same_inputs(lock.inputs, choices, files):
        return
    why = "was edited after gpuenv wrote it" if edited else "is for other requirements"
    note = f"{path.name} {why}: comparing it with the current ones"
    emit(Event("note", "lock", note))
    hint = "update it: gpuenv lock; or install it unchecked: --frozen"
    try:
        plan, fresh = solve_near(make_request(apply_lock(choices, lock), emit), choices, emit, lock)
    except LockError as error:
        failure = error
    else:
        if fresh is not None:
            refuse_differences(path, lock, fresh, hint)
            return
        failure = LockError(f"no build fits: {plan.hint or 'see gpuenv resolve --explain'}")
    raise LockError(
        f"{path} cannot be compared with the current requirements: {failure.message}",
        log=failure.log,
        hint=hint,
    )
