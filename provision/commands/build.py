"""Build, change or repair an environment in one transaction, for both managers.

`prepare` decides what is installed. `build_environment` does the work, records it, proves it, and commits or rolls back.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

from ..config import record
from ..config.file import read_config
from ..config.options import Choices
from ..config.rows import load
from ..config.sources import read_locked_sources
from ..detect import explain_idle_gpu, machine_for_verdict
from ..environment import guard, place, registry, state
from ..environment.managers import compare_locks, describe_changes, manager
from ..environment.uv_install import hint_dependencies_alone
from ..errors import BuildError, GpuenvError, UsageError
from ..index.places import name_configured
from ..lock.accept import accept_lock, name_hosts
from ..lock.changes import foresee, read_lock_inside
from ..lock.project import list_watched_files, renew_project_lock, solve_or_read_lock
from ..lock.request import judge_request, read_named
from ..lock.stack import (
    RECREATE,
    is_kept,
    read_same_stack_request,
    refuse_idle_gpu,
    refuse_other_stack,
)
from ..model import (
    CreateResult,
    Emit,
    Event,
    Lock,
    LockedPackage,
    PackageSources,
    Plan,
    Verdict,
    is_expected,
    is_good,
)
from ..resolve.extras import disagreements_of
from ..system.scratch import make_scratch
from ..wheels import pylock
from .job import BuildJob
from .resolve import add_notes, explain_cpu_choice, warn_of_host_compiler

# Options that can change without a new environment: packages, and bounds of the same frameworks.
_MOVES = {
    "with_", "requirement", "project", "extra", "group", "config", "find_links", "indexes", "index", "only_binary",
    "python_bounds",
}  # fmt: skip


# --- what is built ---------------------------------------------------------------------------------


def preview(
    emit: Emit, env: Path, choices: Choices, lock: Lock | None, *, anew: bool, allow_md5: bool
) -> Plan:
    """Return the plan, and emit what `create` would install: all of it for an environment built `anew`.

    No source code runs.
    """
    old = None if anew else read_lock_inside(env)
    if lock:
        lock = name_hosts(lock, choices, emit)
        plan = name_configured(lock.plan, read_locked_sources(choices, lock), ())
    else:
        context = judge_request(choices, emit, reading=True)
        plan, lock = solve_or_read_lock(context, choices, emit, old, allow_md5=allow_md5)
        if lock is None:
            return plan
        plan = add_notes(plan, context, choices)
    foresee(emit, env, old, lock)
    return plan


def find_change(env: Path, choices: Choices, lock: Lock | None) -> Lock | None:
    """Return the lock of an existing environment whose packages have to change, or None if it is as the options say.

    Raises UsageError if it was built with other options than those of packages.
    """
    before = state.read(env, "request.json") or {}
    wanted = record.make_record(choices, lock, (before.get("files") or {}).get("names", []))
    if lock and not choices.framework:
        matches = (state.read(env, "lock.json") or {}).get("digest") == state.lock_digest(lock)
    else:
        # An invalid option is reported before a damaged environment.
        read_named(choices, load(choices))
        matches = record.is_same(before, wanted)
    works = place.find_python(env) is not None
    if not works or not matches:
        if works and _can_change(env, choices, before, wanted):
            state.require_vouched(env)
            return pylock.read_in(env / place.MARK)
        raise _refuse_other_options(env, before, wanted)
    elsewhere = bool(choices.elsewhere or choices.platform)
    plan = state.read_plan(env)
    if lock is None and (why := explain_idle_gpu(plan, choices.device, elsewhere=elsewhere)):
        raise UsageError(
            f"{env} was created for the CPU, because no GPU was found. {why}",
            hint="rebuild the environment for the GPU with --recreate. The old environment is kept until the new one works",
        )
    if before.get("given") != wanted["given"] and state.is_vouched(env):
        state.write_vouched(env, "request.json", {**before, "given": wanted["given"]})
    return None


def _can_change(env: Path, choices: Choices, before: dict[str, Any], wanted: dict[str, Any]) -> bool:
    """Return whether the new options need only other packages.

    Frameworks, Python, device and manager must be the same.
    """
    if not before.get("choices"):
        return False
    old, new, plan = before["choices"], wanted["choices"], state.read_plan(env)
    differs = record.list_differing(before, wanted)
    differs -= {k for k in ("device", "cuda", "python") if is_kept(plan, k, new.get(k))}
    names = [{Requirement(f).name for f in one.get("framework", [])} for one in (old, new)]
    if choices.config and names[0] == names[1]:
        differs.discard("framework")
    return differs <= _MOVES


def _refuse_other_options(env: Path, before: dict[str, Any], wanted: dict[str, Any]) -> UsageError:
    """Return the error for an existing environment with other options. It lists the options that differ."""

    def show(value: object) -> str:
        return ", ".join(map(str, value)) if value and isinstance(value, list) else str(value or "none")

    have = state.read_plan(env)
    words = ", ".join(f"{b.framework} {b.version}" for b in have.builds) if have else "unfinished"
    old, new = before.get("choices") or {}, wanted["choices"]
    differ = [
        f"{name.rstrip('_')}: {show(old.get(name))}, now {show(new.get(name))}"
        for name in sorted(record.list_differing(before, wanted) - {"config"})
    ]
    refusal = f"{env} ({words}) was built with other options"
    if not old:
        refusal = f"{env} ({words}) is incomplete: the record of its options is missing, or its Python does not start"
    return UsageError(f"{refusal}: {'; '.join(differ)}" if differ and old else refusal, hint=RECREATE)


def prepare(
    emit: Emit,
    env: Path,
    choices: Choices,
    fixed_lock: Lock | None,
    old: Lock | None,
    *,
    verify: bool | None = None,
    quick: bool = False,
    checks: bool = True,
    recreate: bool = False,
    frozen: bool = False,
    allow_md5: bool = False,
) -> BuildJob | CreateResult:
    """Return the build of `fixed_lock`, or of a solved lock that is as similar to `old` as possible.

    `old` is the lock of an environment that changes in place. With `frozen` the lock decides the frameworks. Return a
    CreateResult without an environment if no build fits.
    """
    context, files = None, list[str]()
    if fixed_lock:
        accepted = dataclasses.replace(choices, framework=[]) if frozen else choices
        machine, lock = accept_lock(fixed_lock, accepted), fixed_lock
        sources = read_locked_sources(choices, lock)
    else:
        if old:
            context, why = read_same_stack_request(choices, old.plan, emit), None
        else:
            context = judge_request(choices, emit)
            refuse_idle_gpu(env, choices, context)
            why = explain_cpu_choice(context, choices)
            if why:
                emit(Event(kind="warning", stage="resolve", text=why))
            elif context.request.device == "cuda":
                emit(Event(kind="note", stage="resolve", text=f"for a GPU: {context.reason}"))
        plan, solved = solve_or_read_lock(context, choices, emit, old, allow_md5=allow_md5)
        if solved is None:
            return CreateResult(machine=context.machine, plan=plan)
        notes = (*plan.notes, why) if why else plan.notes
        lock = dataclasses.replace(solved, plan=dataclasses.replace(plan, notes=notes))
        machine, sources, files = context.machine, context.sources, list_watched_files(choices, context)
    if not choices.bundle:
        lock = name_hosts(lock, choices, emit)
    if not any(b.index_urls for b in lock.plan.builds):
        # The lock of a file is installed by hash, from the indexes that are configured now.
        lock = dataclasses.replace(lock, plan=name_configured(lock.plan, sources, ()))
    return BuildJob(
        env=env, lock=lock, choices=choices, sources=sources, emit=emit, machine=machine, verify=verify,
        quick=quick, checks=checks, remembered=record.make_record(choices, fixed_lock, files), distrust=recreate, context=context,
    )  # fmt: skip


# --- the build -------------------------------------------------------------------------------------


def run_build(job: BuildJob, old: Lock | None) -> CreateResult:
    """Build a new environment, or change the packages of the one that has the lock `old`. What was there stays if the proof
    fails."""
    if old is None:
        try:
            result = _replace(job)
        finally:
            with contextlib.suppress(BuildError):  # the next run at this path tries again
                registry.remove_unused_pythons(job.env)
    else:
        refuse_other_stack(job.env, old.plan, job.lock.plan)
        changed = describe_changes(old, job.lock)
        note = f"updating the environment in place: {', '.join(changed)}" if changed else "nothing to install"
        job.emit(Event(kind="note", stage="build", text=note))
        result = _replace(job, old) if compare_locks(old, job.lock) else _record_options(job)
    if job.context and is_good(result) and renew_project_lock(job.choices, job.context, job.lock, job.emit):
        files = list_watched_files(job.choices, job.context)
        state.write_vouched(job.env, "request.json", record.make_record(job.choices, None, files))
    return result


def _replace(job: BuildJob, old: Lock | None = None) -> CreateResult:
    """Install the job's lock, or what it changes of `old`. Return no environment if its proof fails."""
    way, new = manager(job.lock.manager), job.local_lock
    try:
        if old:
            verdict = build_environment(
                job,
                lambda prefix: way.change(old, new, prefix, job.how),
                copied=True,
                packages=compare_locks(old, new).into,
            )
        else:
            verdict = build_environment(job, lambda prefix: way.install(new, prefix, job.how))
    except FailedProofError as error:
        failed = (
            f"{job.env} failed with these changes. Its previous packages were restored"
            if old
            else f"the new environment failed. {job.env} was not changed"
        )
        job.emit(Event(kind="warning", stage="build", text=failed))
        return CreateResult(machine=job.machine, plan=job.lock.plan, lock=job.lock, verdict=error.verdict)
    return job.created(verdict, changed=True)


def _record_options(job: BuildJob) -> CreateResult:
    """Record the options of this run. The packages stay as they are."""
    from .prove import read_kept_verdict

    with make_scratch("record") as draft:
        (draft / place.MARK).mkdir()
        job.write_record(draft)
        state.vouch(job.env.resolve(), state.digest_record(draft))
    job.record(job.env)
    _finish(job.lock, job.env, job.choices, job.emit)
    return job.created(read_kept_verdict(job, machine_for_verdict()), changed=False)


def reuse(
    emit: Emit, env: Path, choices: Choices, *, verify: bool | None, quick: bool, checks: bool
) -> CreateResult:
    """Return an existing environment that is as the options say, with its verdict."""
    from .prove import read_kept_verdict

    machine, built = machine_for_verdict(), pylock.read_in(env / place.MARK)
    _finish(built, env, choices, emit)  # an earlier run may have been killed before this step
    job = BuildJob(
        env=env, lock=built, choices=choices, sources=PackageSources(), emit=emit, verify=verify, quick=quick,
        checks=checks, machine=None if choices.elsewhere else machine,
    )  # fmt: skip
    verdict = read_kept_verdict(job, machine)
    environment = state.read_environment(env, changed=False)
    if verdict is None:
        from ..verify import drift

        environment = dataclasses.replace(environment, drift=drift.find_drift(env, built).changes)
    plan = state.read_plan(env)
    return CreateResult(machine=machine, plan=plan, lock=built, environment=environment, verdict=verdict)


class FailedProofError(Exception):
    """The proof of a new build failed. Raised inside the transaction to roll it back."""

    def __init__(self, verdict: Verdict) -> None:
        super().__init__(verdict.verdict)
        self.verdict = verdict


def build_environment(
    job: BuildJob,
    work: Callable[[Path], None],
    *,
    copied: bool = False,
    packages: Sequence[LockedPackage] = (),
    stays: bool = False,
) -> Verdict | None:
    """Do the work in a transaction, prove the result, and keep the verdict.

    `work` fills or changes the prefix, which is a copy of the environment if `copied`. `packages` are downloaded first. Raises
    FailedProofError if the proof fails, unless no environment exists yet, or with `stays`. What was there is then unchanged.
    """
    device, way = job.lock.plan.device, manager(job.lock.manager)
    stays = stays or not place.made_by_gpuenv(job.env)
    proving, verdict = False, None
    if job.verify is not False:
        from . import prove

        proving = prove.can_prove(job.lock, job.machine, job.emit)
    if job.bundle:
        job.bundle.check_files(job.choices, job.emit)
    warn_of_host_compiler(job.emit, job.lock.plan, job.choices)
    if device == "cuda":
        for text in disagreements_of(job.lock, load(job.choices, "satellites")):
            job.emit(Event(kind="warning", stage="lock", text=text))
    job.needs.warn()
    try:
        if packages:
            way.fetch(job.local_lock, tuple(packages), job.how)
        with way.transaction(job.env, copied=copied) as prefix:
            work(prefix)
            if job.bundle:
                job.bundle.name_origins(prefix, job.lock, job.choices)
            job.record(prefix)
            written = state.digest_record(prefix)
            if proving:
                verdict = prove.prove_build(job, prefix)
                if not (stays or is_expected(verdict, device)):
                    raise FailedProofError(verdict)
            state.vouch(job.env, written)
    except GpuenvError as error:
        error.device = error.device or device
        project = job.choices.project
        if project and isinstance(error, BuildError) and error.folder == str(project.resolve()):
            error.hint = hint_dependencies_alone(
                project
            )  # its own folder failed: name the key that leaves it out
        raise
    note = _finish(job.lock, job.env, job.choices, job.emit)
    if note and not copied:
        job.emit(Event(kind="note", stage="build", text=note))
    return prove.with_later_stages(job, verdict) if verdict else None


def _finish(lock: Lock, env: Path, choices: Choices, emit: Emit) -> str | None:
    """Finish an environment in its final place, and return a note on its guard. Raises BuildError."""
    if note := manager(lock.manager).finish(env):
        emit(Event(kind="note", stage="build", text=note))
    return guard.write(env, lock, on=read_config(choices.config).guard if choices.config else True)
