"""create as a command: the stages in their order, or the news that everything is in place."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

from ..environment import place, state
from ..environment.repair import changed_packages, difference
from ..errors import BuildError, ResolveError, UsageError
from ..managers import venv
from ..managers.protocol import manager, name_of
from ..model import CreateResult, Emit, Event, Lock, Machine, PackageSources, Plan, RequestContext
from ..request import (
    environment_paths as where,
    load_profiles,
    project_options as inproject,
    read_options,
    recorded_options,
)
from ..request.options import Choices
from ..wheels import pylock
from . import create_from_bundle, interrupted_run, kept_build, read_request
from .build_transaction import BuildJob, BuildStep, read_kept_verdict, replace_environment, settle
from .create_options import CreateOptions
from .existing_lock import list_watched_files, require_lock, solve_or_read_lock
from .lock_acceptance import accept_lock
from .preview_changes import foresee
from .resolve import explain_cpu_choice, show_plan
from .up_to_date import finish_creation, make_record
from .verdict_inputs import is_outdated, machine_for_verdict

# What a project may ask for anew without a new environment: packages, and bounds of the same frameworks.
_MOVES = {
    "with_", "requirement", "project", "extra", "group", "config", "find_links", "indexes", "index", "only_binary",
    "python_bounds",
}  # fmt: skip


def create(emit: Emit, env: Path, choices: Choices, how: CreateOptions) -> CreateResult | Plan:
    """All stages, or the news that everything is in place."""
    env = where.make_absolute(env)
    place.check_place(env)
    if how.lock is None or choices.target:
        choices = inproject.apply_project(choices)
    choices = dataclasses.replace(choices, manager=name_of(how.lock, choices.manager))
    read_request.get_locking(choices).require()
    if how.dry_run:
        given = require_lock(env, choices, how, emit)
        plan = show_plan(emit, choices) if given is None else given.plan
        foresee(emit, env, plan, given, choices)
        return plan
    with place.held(env, emit):
        place.recover(env)
        with interrupted_run.describe_by(interrupted_run.remember_state(env).look):
            if how.recreate or not place.made_by_gpuenv(env):
                return _build_new(emit, env, choices, how)
            place.refuse_half_changed(env)
            given = require_lock(env, choices, how, emit)
            return in_place(emit, env, choices, how, given)


def in_place(emit: Emit, env: Path, choices: Choices, how: CreateOptions, lock: Lock | None) -> CreateResult:
    """An environment is there: the news that it is what was asked for, a change of its packages, or UsageError."""
    before = state.read(env, "request.json") or {}
    wanted = make_record(choices, lock, (before.get("files") or {}).get("names", []))
    if lock is not None and not choices.framework:
        matches = (state.read(env, "lock.json") or {}).get("digest") == state.lock_digest(lock)
    else:
        # An invalid option is reported before a damaged environment.
        read_options.read_named(choices, load_profiles.load_all(choices))
        matches = recorded_options.is_same(before, wanted)
    if state.interpreter(env) is None or not matches:
        if state.interpreter(env) is not None and _can_change_in_place(env, choices, before, wanted):
            return change_in_place(emit, env, choices, how, lock)
        raise _refuse_other_options(env, before, wanted)
    if lock is None and (why := is_outdated(state.plan_of(env), choices)):
        raise UsageError(
            f"{env} was created for the CPU, because no GPU was found. {why}",
            hint="rebuild it for the GPU: --recreate; the old one stays until the new one works",
        )
    if before.get("given") != wanted["given"]:
        state.write(env, "request.json", {**before, "given": wanted["given"]})
    return _reuse_or_build(emit, env, choices, how)


def _reuse_or_build(emit: Emit, env: Path, choices: Choices, how: CreateOptions) -> CreateResult:
    """The environment that is there already, with its verdict."""
    machine, built = machine_for_verdict(), pylock.read_in(env / place.MARK)
    settle(built.manager, env, emit)  # a run may have been killed just before this
    job = BuildJob(
        env=env, lock=built, choices=choices, sources=PackageSources(), emit=emit, verify=how.verify,
        checks=how.checks,
        machine=None if choices.elsewhere else machine,
    )  # fmt: skip
    verdict = read_kept_verdict(job, machine)
    made = state.environment(env, changed=False)
    if verdict is None:
        from ..verify.drift import compare_wheels

        made = dataclasses.replace(made, drift=compare_wheels.find_drift(env, built).changes)
    plan = state.plan_of(env)
    value = CreateResult(machine=machine, plan=plan, lock=built, environment=made, verdict=verdict)
    return finish_creation(emit, value, env)


def _refuse_other_options(env: Path, before: dict[str, Any], wanted: dict[str, Any]) -> UsageError:
    """The refusal to make another environment of one that is there, with the options that differ."""
    have = state.plan_of(env)
    words = ", ".join(f"{b.framework} {b.version}" for b in have.builds) if have else "unfinished"
    old, new = before.get("choices") or {}, wanted["choices"]
    differ = [
        f"{name.rstrip('_')}: {old.get(name) or 'none'}, now {new.get(name) or 'none'}"
        for name in sorted(recorded_options.list_differing(before, wanted) - {"config"})
    ]
    told = f"{env} ({words}) was built with other options"
    return UsageError(f"{told}: {'; '.join(differ)}" if differ and old else told, hint=kept_build.RECREATE)


def _build_new(emit: Emit, env: Path, choices: Choices, how: CreateOptions) -> CreateResult:
    """Build from a given lock or a solved one, in place of the environment that may be there."""
    given = require_lock(env, choices, how, emit)
    way = manager(choices.manager)
    way.begin()
    job = _job(emit, env, choices, how, given)
    if isinstance(job, CreateResult):
        return job
    work = BuildStep(do=lambda prefix: way.install(job.local_lock, prefix, job.how))
    return replace_environment(job, work, rolled_back=f"the new environment failed. {env} was not changed")


def _job(
    emit: Emit, env: Path, choices: Choices, how: CreateOptions, given: Lock | None, old: Lock | None = None
) -> BuildJob | CreateResult:
    """Return the build of a given lock, or of one that is solved as near to `old` as can be; what is found out where
    no build fits."""
    files: list[str] = []
    if given is None:
        note: tuple[str, ...] = ()
        if old:
            asked = kept_build.read_same_stack_request(
                choices, old.plan, lambda c: read_request.judge_request(c, emit)
            )
        else:
            asked = read_request.judge_request(choices, emit)
            kept_build.refuse_idle_gpu(env, choices, asked)
            note = _announce(asked, choices, emit)
        plan, lock = solve_or_read_lock(asked, choices, emit, old, allow_md5=how.allow_md5)
        if lock is None:
            return CreateResult(machine=asked.machine, plan=plan)
        lock = dataclasses.replace(lock, plan=dataclasses.replace(plan, notes=(*plan.notes, *note)))
        machine, sources, files = asked.machine, asked.sources, list_watched_files(choices, asked)
    else:
        machine, lock = accept_lock(given, how.compared(choices)), given
        sources = read_options.read_locked_sources(choices, given)
    return BuildJob(
        env=env, lock=lock, choices=choices, sources=sources, emit=emit, machine=machine, verify=how.verify,
        checks=how.checks,
        remembered=make_record(choices, given, files), distrust=how.recreate,
        python=lambda: _python_for(lock.plan, machine, choices, emit),
    )  # fmt: skip


def _announce(context: RequestContext, choices: Choices, emit: Emit) -> tuple[str, ...]:
    """Say what the environment is for, and return the note on a CPU that nobody asked for."""
    if told := explain_cpu_choice(context, choices):
        emit(Event(kind="warning", stage="resolve", text=f"target: {told}"))
        return (told,)
    if context.request.device == "cuda":
        emit(Event(kind="note", stage="resolve", text=f"for a GPU: {context.reason}"))
    return ()


def _python_for(plan: Plan, machine: Machine | None, choices: Choices, emit: Emit) -> str:
    """The interpreter to build with: one that is there, else one that uv fetches. Raises BuildError."""
    found = read_request.find_interpreter(
        plan.python or "", machine, choices.python, where.get_cache_dir(choices)
    )
    if found:
        return found
    wanted = choices.python or plan.python or ""
    if packed := create_from_bundle.unpack_python(choices, emit):
        return packed
    if choices.offline:
        raise BuildError(
            f"Python {wanted} is not on this machine, and --offline forbids downloading it",
            hint="install it, or choose another version with --python",
        )
    emit(Event(kind="start", stage="build", text=f"downloading Python {wanted}"))
    return venv.fetch_python(wanted)


# --- changed in place ---------------------------------------------------------------------------


def _can_change_in_place(env: Path, choices: Choices, before: dict[str, Any], wanted: dict[str, Any]) -> bool:
    """Whether the difference to what the environment was made for can be made up in place: the same
    frameworks on the same Python, device and manager."""
    if not before.get("choices"):
        return False
    old, new, plan = before["choices"], wanted["choices"], state.plan_of(env)
    differs = recorded_options.list_differing(before, wanted)
    differs -= {k for k in ("device", "cuda", "python") if kept_build.is_kept(plan, k, new.get(k))}
    if choices.config and _names(old) == _names(new):
        differs.discard("framework")
    return differs <= _MOVES


def _names(choices: dict[str, Any]) -> set[str]:
    return {Requirement(f).name for f in choices.get("framework", [])}


def change_in_place(
    emit: Emit, env: Path, choices: Choices, how: CreateOptions, lock: Lock | None
) -> CreateResult:
    """Solve anew, as near to the environment's lock as can be, and change only what differs."""
    place.refuse_half_changed(env)
    old = pylock.read_in(env / place.MARK)
    job = _job(emit, env, choices, how, lock, old)
    if isinstance(job, CreateResult):
        return job
    kept_build.refuse_other_stack(env, old.plan, job.lock.plan)
    changed = changed_packages(old, job.lock)
    told = f"in place: {', '.join(changed)}" if changed else "the options changed; the packages are the same"
    emit(Event(kind="note", stage="build", text=told))
    return _install_changes(job, old) if difference(old, job.lock) else _record_options(job)


def solve_near(emit: Emit, env: Path, choices: Choices, old: Lock) -> Lock:
    """Return the lock that `change` would install. Raises ResolveError where no build fits."""
    job = _job(emit, env, choices, CreateOptions(), None, old)
    if isinstance(job, CreateResult):
        raise ResolveError("no build fits", hint=job.plan.hint if job.plan else None)
    return job.lock


def _install_changes(job: BuildJob, old: Lock) -> CreateResult:
    """Bring the environment to its new lock; the old packages stay where the proof fails."""
    way, new = manager(job.lock.manager), job.local_lock
    work = BuildStep(
        do=lambda prefix: way.change(old, new, prefix, job.how),
        copied=True,
        packages=difference(old, new).into,
    )
    told = f"{job.env} failed with these changes. Its previous packages were restored"
    return replace_environment(job, work, rolled_back=told)


def _record_options(job: BuildJob) -> CreateResult:
    """Record the options of this run. The packages stay as they are."""
    job.record(job.env)
    verdict = read_kept_verdict(job, machine_for_verdict())
    return finish_creation(job.emit, job.created(verdict, changed=False), job.env)
