"""Run the stages of `create` in order, or report an up-to-date environment."""

from __future__ import annotations

import contextlib
import dataclasses
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

from .. import detect
from ..bundle import install
from ..config import options as where, project as inproject, record, request, rows
from ..config.grants import read_user_grants
from ..config.options import Choices
from ..config.project import find_project_folder
from ..config.sources import is_current, read_locked_sources
from ..environment import compare_locks, describe_changes, interrupted, manager, place, registry, state, venv
from ..errors import BuildError, LockError, ResolveError, UsageError
from ..index.places import name_configured
from ..lock.accept import accept_lock, name_hosts, read_lock
from ..lock.changes import foresee, list_differences, read_lock_inside
from ..lock.context import (
    RECREATE,
    apply_lock,
    get_locking,
    is_kept,
    judge_request,
    read_same_stack_request,
    refuse_idle_gpu,
    refuse_other_stack,
)
from ..lock.formats import locking
from ..lock.project import list_watched_files, lock_name, renew_project_lock, solve_or_read_lock
from ..lock.update import solve_like
from ..model import (
    CreateResult,
    Emit,
    Event,
    Lock,
    Machine,
    PackageSources,
    Plan,
    RequestContext,
    find_lock_manager,
    make_lock_name,
)
from ..system.scratch import make_scratch
from ..wheels import pylock
from .build import BuildJob, BuildStep, read_kept_verdict, replace_environment, settle
from .create_options import CreateOptions
from .resolve import add_notes, explain_cpu_choice
from .up_to_date import finish_creation, make_record
from .verify import is_good, is_outdated, machine_for_verdict

# Options that can change without a new environment: packages, and bounds of the same frameworks.
_MOVES = {
    "with_", "requirement", "project", "extra", "group", "config", "find_links", "indexes", "index", "only_binary",
    "python_bounds",
}  # fmt: skip


def create(emit: Emit, env: Path, choices: Choices, how: CreateOptions) -> CreateResult | Plan:
    """Run all stages of `create`, or report that the environment is up to date."""
    env = where.make_absolute(env)
    place.check_place(env)
    read_user_grants(choices)
    if how.lock is None or choices.target:
        choices = inproject.apply_project(choices)
    choices = dataclasses.replace(choices, manager=find_lock_manager(how.lock, choices.manager))
    get_locking(choices).require()
    if how.dry_run:
        return _preview(emit, env, choices, how)
    with place.lock_place(env, emit, wait=True):
        place.recover(env)
        with interrupted.describe_by(interrupted.remember_state(env).look):
            if how.recreate or not place.made_by_gpuenv(env):
                return _build_new(emit, env, choices, how)
            lock = require_lock(env, choices, how, emit)
            return in_place(emit, env, choices, how, lock)


def _preview(emit: Emit, env: Path, choices: Choices, how: CreateOptions) -> Plan:
    """Return the plan, and emit what `create` would install. No source code runs."""
    lock = require_lock(env, choices, how, emit)
    if lock is None:
        context = judge_request(choices, emit, reading=True)
        plan, lock = solve_or_read_lock(
            context, choices, emit, read_lock_inside(env), allow_md5=how.allow_md5
        )
        if lock is None:
            return plan
        plan = add_notes(plan, context, choices)
    else:
        lock = name_hosts(lock, choices, emit)
        sources = read_locked_sources(choices, lock)
        plan = name_configured(lock.plan, sources, ())
    foresee(emit, env, lock)
    return plan


def in_place(emit: Emit, env: Path, choices: Choices, how: CreateOptions, lock: Lock | None) -> CreateResult:
    """Report that an existing environment is up to date, or change its packages.

    Raises UsageError if it was built with other options.
    """
    before = state.read(env, "request.json") or {}
    wanted = make_record(choices, lock, (before.get("files") or {}).get("names", []))
    if lock is not None and not choices.framework:
        matches = (state.read(env, "lock.json") or {}).get("digest") == state.lock_digest(lock)
    else:
        # An invalid option is reported before a damaged environment.
        request.read_named(choices, rows.load_all(choices))
        matches = record.is_same(before, wanted)
    if state.find_python(env) is None or not matches:
        if state.find_python(env) is not None and _can_change_in_place(env, choices, before, wanted):
            return change_in_place(emit, env, choices, how, lock)
        raise _refuse_other_options(env, before, wanted)
    if lock is None and (why := is_outdated(state.read_plan(env), choices)):
        raise UsageError(
            f"{env} was created for the CPU, because no GPU was found. {why}",
            hint="rebuild the environment for the GPU with --recreate. The old environment is kept until the new one works",
        )
    if before.get("given") != wanted["given"] and state.is_vouched(env):
        state.write_vouched(env, "request.json", {**before, "given": wanted["given"]})
    return _reuse_or_build(emit, env, choices, how)


def _reuse_or_build(emit: Emit, env: Path, choices: Choices, how: CreateOptions) -> CreateResult:
    """Return the existing environment with its verdict."""
    machine, built = machine_for_verdict(), pylock.read_in(env / place.MARK)
    settle(built.manager, env, emit)  # an earlier run may have been killed before this step
    job = BuildJob(
        env=env, lock=built, choices=choices, sources=PackageSources(), emit=emit, verify=how.verify,
        checks=how.checks,
        machine=None if choices.elsewhere else machine,
    )  # fmt: skip
    verdict = read_kept_verdict(job, machine)
    environment = state.read_environment(env, changed=False)
    if verdict is None:
        from ..verify import drift

        environment = dataclasses.replace(environment, drift=drift.find_drift(env, built).changes)
    plan = state.read_plan(env)
    value = CreateResult(machine=machine, plan=plan, lock=built, environment=environment, verdict=verdict)
    return finish_creation(emit, value, env)


def _refuse_other_options(env: Path, before: dict[str, Any], wanted: dict[str, Any]) -> UsageError:
    """Return the error for an existing environment with other options. It lists the options that differ."""
    have = state.read_plan(env)
    words = ", ".join(f"{b.framework} {b.version}" for b in have.builds) if have else "unfinished"
    old, new = before.get("choices") or {}, wanted["choices"]
    differ = [
        f"{name.rstrip('_')}: {_format_value(old.get(name))}, now {_format_value(new.get(name))}"
        for name in sorted(record.list_differing(before, wanted) - {"config"})
    ]
    refusal = f"{env} ({words}) was built with other options"
    return UsageError(
        f"{refusal}: {'; '.join(differ)}" if differ and old else refusal,
        hint=RECREATE,
    )


def _format_value(value: object) -> str:
    return ", ".join(map(str, value)) if value and isinstance(value, list) else str(value or "none")


def _build_new(emit: Emit, env: Path, choices: Choices, how: CreateOptions) -> CreateResult:
    """Build from the lock to install or from a solved one, and replace an existing environment."""
    lock = require_lock(env, choices, how, emit)
    way = manager(choices.manager)
    way.begin()
    job = _job(emit, env, choices, how, lock)
    if isinstance(job, CreateResult):
        return job
    work = BuildStep(do=lambda prefix: way.install(job.local_lock, prefix, job.how))
    try:
        result = replace_environment(
            job, work, rolled_back=f"the new environment failed. {env} was not changed"
        )
        return _renewed(job, result)
    finally:
        with contextlib.suppress(BuildError):  # the next run at this path tries again
            registry.remove_unused_pythons(env)


# Six parameters: `fixed_lock` and `old` exclude each other, and the other four are those of every step here.
def _job(
    emit: Emit,
    env: Path,
    choices: Choices,
    how: CreateOptions,
    fixed_lock: Lock | None,
    old: Lock | None = None,
) -> BuildJob | CreateResult:
    """Return the build of `fixed_lock`, or of a solved lock that is as similar to `old` as possible.

    Return a CreateResult without an environment if no build fits.
    """
    files: list[str] = []
    context: RequestContext | None = None
    if fixed_lock is None:
        note: tuple[str, ...] = ()
        if old:
            context = read_same_stack_request(choices, old.plan, emit)
        else:
            context = judge_request(choices, emit)
            refuse_idle_gpu(env, choices, context)
            note = _announce(context, choices, emit)
        plan, lock = solve_or_read_lock(context, choices, emit, old, allow_md5=how.allow_md5)
        if lock is None:
            return CreateResult(machine=context.machine, plan=plan)
        lock = dataclasses.replace(lock, plan=dataclasses.replace(plan, notes=(*plan.notes, *note)))
        machine, sources, files = context.machine, context.sources, list_watched_files(choices, context)
    else:
        machine, lock = accept_lock(fixed_lock, how.compared(choices)), fixed_lock
        sources = read_locked_sources(choices, fixed_lock)
    lock = lock if choices.bundle else name_hosts(lock, choices, emit)
    if not any(b.index_urls for b in lock.plan.builds):
        # The lock of a file is installed by hash, from the indexes that are configured now.
        plan = name_configured(lock.plan, sources, ())
        lock = dataclasses.replace(lock, plan=plan)
    return BuildJob(
        env=env, lock=lock, choices=choices, sources=sources, emit=emit, machine=machine, verify=how.verify,
        checks=how.checks,
        remembered=make_record(choices, fixed_lock, files), distrust=how.recreate, context=context,
        python=lambda: _python_for(lock.plan, machine, choices, env, emit),
    )  # fmt: skip


def _announce(context: RequestContext, choices: Choices, emit: Emit) -> tuple[str, ...]:
    """Emit the target of the environment. Return the note on a CPU that was not requested."""
    if warning := explain_cpu_choice(context, choices):
        emit(Event(kind="warning", stage="resolve", text=warning))
        return (warning,)
    if context.request.device == "cuda":
        emit(Event(kind="note", stage="resolve", text=f"for a GPU: {context.reason}"))
    return ()


def _python_for(plan: Plan, machine: Machine | None, choices: Choices, env: Path, emit: Emit) -> str:
    """Return the interpreter to build with: an installed one, otherwise one that uv downloads. Raises
    BuildError."""
    installed = detect.find_python(
        plan.python or "", machine, where.get_cache_dir(choices), exact=choices.python
    )
    if installed:
        return installed
    wanted = choices.python or plan.python or ""
    if packed := install.unpack_python(choices, plan, env, emit):
        return packed
    if choices.offline:
        raise BuildError(
            f"Python {wanted} is not on this machine, and --offline forbids downloading it",
            hint="install it, or choose another version with --python",
        )
    emit(Event(kind="start", stage="build", text=f"downloading Python {wanted}"))
    return venv.fetch_python(wanted)


# --- change in place ----------------------------------------------------------------------------


def _can_change_in_place(env: Path, choices: Choices, before: dict[str, Any], wanted: dict[str, Any]) -> bool:
    """Return whether the new options need only other packages.

    Frameworks, Python, device and manager must be the same.
    """
    if not before.get("choices"):
        return False
    old, new, plan = before["choices"], wanted["choices"], state.read_plan(env)
    differs = record.list_differing(before, wanted)
    differs -= {k for k in ("device", "cuda", "python") if is_kept(plan, k, new.get(k))}
    if choices.config and _names(old) == _names(new):
        differs.discard("framework")
    return differs <= _MOVES


def _names(choices: dict[str, Any]) -> set[str]:
    return {Requirement(f).name for f in choices.get("framework", [])}


def change_in_place(
    emit: Emit, env: Path, choices: Choices, how: CreateOptions, lock: Lock | None
) -> CreateResult:
    """Solve again, as similar to the environment's lock as possible, and change only what differs."""
    state.require_vouched(env)
    old = pylock.read_in(env / place.MARK)
    job = _job(emit, env, choices, how, lock, old)
    if isinstance(job, CreateResult):
        return job
    refuse_other_stack(env, old.plan, job.lock.plan)
    changed = describe_changes(old, job.lock)
    note = f"updating the environment in place: {', '.join(changed)}" if changed else "nothing to install"
    emit(Event(kind="note", stage="build", text=note))
    return _install_changes(job, old) if compare_locks(old, job.lock) else _record_options(job)


def solve_near(emit: Emit, env: Path, choices: Choices, old: Lock) -> Lock:
    """Return the lock that `change_in_place` would install. Raises ResolveError if no build fits."""
    job = _job(emit, env, choices, CreateOptions(), None, old)
    if isinstance(job, CreateResult):
        raise ResolveError("no build fits", hint=job.plan.hint if job.plan else None)
    return job.lock


def _install_changes(job: BuildJob, old: Lock) -> CreateResult:
    """Change the environment to its new lock. The old packages stay if the proof fails."""
    way, new = manager(job.lock.manager), job.local_lock
    work = BuildStep(
        do=lambda prefix: way.change(old, new, prefix, job.how),
        copied=True,
        packages=compare_locks(old, new).into,
    )
    rolled_back = f"{job.env} failed with these changes. Its previous packages were restored"
    return _renewed(job, replace_environment(job, work, rolled_back=rolled_back))


def _renewed(job: BuildJob, result: CreateResult) -> CreateResult:
    """Renew the project's lock after a build that succeeded, if its requirements are newer than the lock."""
    if job.context and is_good(result) and renew_project_lock(job.choices, job.context, job.lock, job.emit):
        files = list_watched_files(job.choices, job.context)
        state.write_vouched(job.env, "request.json", make_record(job.choices, None, files))
    return result


def _record_options(job: BuildJob) -> CreateResult:
    """Record the options of this run. The packages stay as they are."""
    with make_scratch("record") as draft:
        (draft / place.MARK).mkdir()
        job.write_record(draft)
        state.vouch(job.env.resolve(), state.digest_record(draft))
    job.record(job.env)
    verdict = read_kept_verdict(job, machine_for_verdict())
    return _renewed(job, finish_creation(job.emit, job.created(verdict, changed=False), job.env))


def require_lock(env: Path, choices: Choices, how: CreateOptions, emit: Emit) -> Lock | None:
    """Return the lock to install, or None if packages must be solved. Raises LockError."""
    if not (how.lock or how.locked or how.frozen):
        # The environment's own lock is compared with what is there. It is installed only if it counts.
        own = _names_nothing(env, choices) and (not how.recreate or state.is_vouched(env))
        return pylock.read_in(env / place.MARK) if own else None
    path = how.lock or find_project_folder() / lock_name(choices)
    if not how.lock:
        _require(path, env, choices, how)
    lock = read_lock(path, dataclasses.replace(choices, platform=None))  # it is installed on this machine
    locking(choices.manager).check_hashes(lock, str(path), allow_md5=how.allow_md5)
    if how.locked and not how.lock:
        _refuse_stale(path, lock, choices, emit)
    return lock


def _names_nothing(env: Path, choices: Choices) -> bool:
    """Return whether neither options nor files name contents for an environment that gpuenv made. Then its
    lock does."""
    named = (
        choices.config, choices.framework, choices.with_, choices.requirement, choices.project, choices.bundle,
    )  # fmt: skip
    return not any(named) and place.is_undisturbed(env) and place.made_by_gpuenv(env)


def _require(path: Path, env: Path, choices: Choices, how: CreateOptions) -> None:
    """Raise LockError if the lock that --locked or --frozen installs is missing."""
    if path.exists():
        return
    option = "--locked" if how.locked else "--frozen"
    hint = "write it: gpuenv lock"
    env_lock = env / place.MARK / make_lock_name(choices.manager)
    if env_lock.exists() and state.is_vouched(env):
        hint += f"; or install the environment's own: --lock {env_lock}"
    raise LockError(
        f"{path.name} is missing in {path.parent}, and {option} installs from this lock file", hint=hint
    )


def _refuse_stale(path: Path, lock: Lock, choices: Choices, emit: Emit) -> None:
    """Raise LockError if a lock is older than the project's requirements.

    Equal digests need no solve. Otherwise a lock for the same target is solved and compared.
    """
    if not (choices.config or choices.requirement or choices.project):
        return
    demands = inproject.read_requirements(choices, rows.load_all(choices), lock.plan.target)
    files = inproject.list_files(choices, demands)
    limited = is_current(choices, lock)
    if limited and _fits_options(lock, choices) and inproject.is_same_inputs(lock.inputs, choices, files):
        return
    note = f"{path.name} is for other requirements: comparing it with the current ones"
    emit(Event(kind="note", stage="lock", text=note))
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
            f"{path} is out of date ({len(drift)} package{'s differ' if len(drift) > 1 else ' differs'})",
            log="\n".join(drift), hint=hint,
        )  # fmt: skip


def _fits_options(lock: Lock, choices: Choices) -> bool:
    """Return whether the requested device, CUDA and Python are those of the lock."""
    named = {"device": choices.device, "cuda": choices.cuda, "python": choices.python}
    return all(is_kept(lock.plan, option, value) for option, value in named.items())


def _solved(choices: Choices, lock: Lock, emit: Emit) -> Lock:
    """Return a new lock for the same target, as similar to `lock` as possible. Raises LockError."""
    context = judge_request(apply_lock(choices, lock), emit)
    plan, fresh = solve_like(context, choices, emit, lock)
    if fresh is None:
        raise LockError(f"no build fits: {plan.hint or 'see gpuenv resolve --explain'}")
    return fresh
