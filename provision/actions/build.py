"""One build of an environment, for both managers: what is installed, the transaction, and its proof.

`run_build` builds an environment or changes the one that `read_lock_to_change` found, and `reuse` returns one that is as
the options say. `prepare` decides what is installed. `build_environment` does the work, records it, proves it, and commits
or rolls back.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from packaging.requirements import Requirement

from .. import detect
from ..config import recall, rows
from ..config.file import read_config
from ..config.options import BuildOptions, Choices, get_cache_dir
from ..config.sources import read_locked_sources
from ..detect import explain_idle_gpu, machine_for_verdict
from ..environment import guard, place, record, registry, venv
from ..environment.managers import Building, compare_locks, manager
from ..environment.uv_install import hint_dependencies_alone
from ..errors import BuildError, GpuenvError, UsageError
from ..index.places import name_configured
from ..lock.accept import accept_lock, name_hosts
from ..lock.changes import describe_changes, list_changes
from ..lock.measured import measure
from ..lock.project import list_watched_files, renew_project_lock, solve_or_read_lock
from ..lock.request import make_request, read_named
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
    Machine,
    PackageSources,
    RequestContext,
    Verdict,
    as_document,
    as_plain,
    from_plain,
    is_expected,
    is_good,
    name_few,
)
from ..model.values import Value
from ..resolve.extras import disagreements_of
from ..system.redaction import redact_value
from ..system.scratch import make_scratch
from .resolve import explain_cpu_choice, warn_of_host_compiler

if TYPE_CHECKING:
    from . import prove

# Options that can change without a new environment: packages, and bounds of the same frameworks.
_MOVES = {
    "with_", "requirement", "project", "extra", "group", "config", "find_links", "indexes", "index", "only_binary",
    "python_bounds",
}  # fmt: skip


class BuildJob(Value):
    """An environment, the lock to install in it, and the settings of the build.

    `machine` is None if this machine is not the target. `remembered` are the options that the next `create`
    compares; None keeps the recorded ones. `context` is the request that was solved for this build, or None for a lock that was named.
    """

    options: BuildOptions
    env: Path
    lock: Lock
    choices: Choices
    sources: PackageSources
    emit: Emit
    machine: Machine | None = None
    remembered: dict[str, Any] | None = None
    context: RequestContext | None = None

    @functools.cached_property
    def local_lock(self) -> Lock:
        """The lock, with the package files of a bundle if one is used."""
        if self.choices.bundle is None:
            return self.lock
        from ..bundle.files import local_packages  # brings the HTTP client

        packages = local_packages(self.lock.packages, self.choices.bundle)
        return dataclasses.replace(self.lock, packages=packages)

    def examine(self, prefix: Path) -> prove.Examination:
        """Return what the proof of the environment at `prefix` examines."""
        from . import prove

        return prove.Examination(
            env=record.read_environment(prefix, changed=True),
            lock=self.lock,
            choices=self.choices,
            options=prove.make_options(self.choices, quick=self.options.quick),
        )

    @property
    def how(self) -> Building:
        """The settings that the manager builds with."""
        return Building(
            env=self.env, sources=self.sources, emit=self.emit, channels=tuple(self.choices.channel),
            python=self.provide_python, distrust=self.options.recreate,
        )  # fmt: skip

    def provide_python(self) -> str:
        """Return the interpreter to build with: an installed one, the bundle's, or one that uv downloads. Raises
        BuildError."""
        plan, choices = self.lock.plan, self.choices
        installed = detect.find_python(
            plan.python or "", self.machine, get_cache_dir(choices), exact=choices.python
        )
        if not installed and choices.bundle:
            from ..bundle.install import unpack_python

            installed = unpack_python(choices.bundle, plan, self.env, self.emit)
        if installed:
            return installed
        wanted = choices.python or plan.python or ""
        if choices.offline:
            raise BuildError(
                f"Python {wanted} is not on this machine, and --offline forbids downloading it",
                hint="install it, or choose another version with --python",
            )
        self.emit(Event("start", "build", f"downloading Python {wanted}"))
        return venv.fetch_python(wanted)

    def record(self, prefix: Path) -> None:
        """Write the installed packages, plan, lock and options into the environment at `prefix`.

        The options are last, because the next `create` relies on them.
        """
        record.note_installed(prefix, self.lock)
        if self.remembered is not None:
            record.write(prefix, "plan.json", as_document(self.lock.plan))
            manager(self.lock.manager).write_lock(self.lock, prefix)
            record.write(prefix, "request.json", self.remembered)

    def created(self, verdict: Verdict | None, *, changed: bool) -> CreateResult:
        """Return the environment in its final place as the command's result."""
        return CreateResult(
            machine=self.machine,
            plan=self.lock.plan,
            lock=self.lock,
            environment=record.read_environment(self.env, changed=changed),
            verdict=verdict,
        )


# --- what is built ---------------------------------------------------------------------------------


def read_lock_to_change(env: Path, choices: Choices, lock: Lock | None) -> Lock | None:
    """Return the lock of an existing environment whose packages have to change, or None if it is as the options say.

    Raises UsageError if it was built with other options than those of packages, if it lacks its Python, or if it was
    made for the CPU and a GPU is there now.
    """
    before, wanted = recall.compare_request(env, choices, lock)
    if lock and not choices.framework:
        matches = record.read(env, "lock.json").get("digest") == record.lock_digest(lock)
    else:
        # An invalid option is reported before a damaged environment.
        read_named(choices, rows.load(choices))
        matches = recall.is_same(before, wanted)
    if place.find_python(env) is None:
        raise UsageError(place.describe_missing_python(env), hint=RECREATE)
    if not matches:
        if not _can_change(env, choices, before, wanted):
            raise _explain_other_options(env, before, wanted)
        record.require_vouched(env)
        return record.read_lock(env)
    elsewhere = bool(choices.elsewhere or choices.platform)
    plan = record.read_plan(env)
    if lock is None and (why := explain_idle_gpu(plan, choices.device, elsewhere=elsewhere)):
        raise UsageError(
            f"{env} was created for the CPU, because no GPU was found. {why}",
            hint="rebuild the environment for the GPU with --recreate. The old environment is kept until the new one works",
        )
    return None


def _can_change(env: Path, choices: Choices, before: dict[str, Any], wanted: dict[str, Any]) -> bool:
    """Return whether the new options need only other packages.

    Frameworks, Python, device and manager must be the same.
    """
    if not before.get("choices"):
        return False
    old, new, plan = before["choices"], wanted["choices"], record.read_plan(env)
    differs = recall.list_differing(before, wanted)
    differs -= {k for k in ("device", "cuda", "python") if is_kept(plan, k, new.get(k))}
    names = [{Requirement(f).name for f in one.get("framework", [])} for one in (old, new)]
    if choices.config and names[0] == names[1]:
        differs.discard("framework")
    return differs <= _MOVES


def _explain_other_options(env: Path, before: dict[str, Any], wanted: dict[str, Any]) -> UsageError:
    """Return the error for an existing environment with other options. It lists the options that differ."""

    def show(value: object) -> str:
        return ", ".join(map(str, value)) if value and isinstance(value, list) else str(value or "none")

    have = record.read_plan(env)
    words = ", ".join(f"{b.framework} {b.version}" for b in have.builds) if have else "unfinished"
    old, new = before.get("choices") or {}, wanted["choices"]
    differ = [
        f"{name.rstrip('_')}: {show(old.get(name))}, now {show(new.get(name))}"
        for name in sorted(recall.list_differing(before, wanted) - {"config"})
    ]
    refusal = f"{env} ({words}) was built with other options"
    if not old:
        refusal = f"{env} ({words}) is incomplete: the record of its options is missing"
    return UsageError(f"{refusal}: {'; '.join(differ)}" if differ and old else refusal, hint=RECREATE)


def prepare(
    options: BuildOptions,
    env: Path,
    choices: Choices,
    named_lock: Lock | None,
    old: Lock | None,
    emit: Emit,
) -> BuildJob | CreateResult:
    """Return the build of `named_lock`, or of a solved lock near to `old`, or a result with the reasons why no build fits.

    `old` is the lock of an environment that changes in place. With `frozen` the lock decides the frameworks.
    """
    context, files = None, list[str]()
    if named_lock:
        accepted = dataclasses.replace(choices, framework=[]) if options.frozen else choices
        machine, lock = accept_lock(named_lock, accepted), named_lock
        sources = read_locked_sources(choices, lock)
    else:
        if old:
            context, why = read_same_stack_request(choices, old.plan, emit), None
        else:
            context = make_request(choices, emit)
            refuse_idle_gpu(env, choices, context)
            why = explain_cpu_choice(context, choices)
            if why:
                emit(Event("warning", "resolve", why))
            elif context.request.device == "cuda":
                emit(Event("note", "resolve", f"for a GPU: {context.reason}"))
        plan, solved = solve_or_read_lock(context, choices, emit, old, allow_md5=options.allow_md5)
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
        options=options, env=env, lock=lock, choices=choices, sources=sources, emit=emit, machine=machine,
        remembered=recall.make_request_file(choices, named_lock, files), context=context,
    )  # fmt: skip


# --- the build -------------------------------------------------------------------------------------


def run_build(
    options: BuildOptions,
    env: Path,
    choices: Choices,
    named_lock: Lock | None,
    old: Lock | None,
    emit: Emit,
) -> CreateResult:
    """Build a new environment, or change the packages of the one that has the lock `old`. What was there stays if no build
    fits or the proof fails: then the result has no environment."""
    job = prepare(options, env, choices, named_lock, old, emit)
    if isinstance(job, CreateResult):
        return job
    way, new = manager(job.lock.manager), job.local_lock
    try:
        if old is None:
            verdict = build_environment(job, lambda prefix: way.install(new, prefix, job.how))
            result = job.created(verdict, changed=True)
        else:
            refuse_other_stack(job.env, old.plan, job.lock.plan)
            difference = compare_locks(old, job.lock)
            changed = ", ".join(describe_changes(old, job.lock))
            if difference.into and not changed:
                changed = f"other files of {name_few([f'{p.name} {p.version}' for p in difference.into])}"
            note = f"updating the environment in place: {changed}" if changed else "nothing to install"
            job.emit(Event("note", "build", note))
            if difference:
                verdict = build_environment(
                    job, lambda prefix: way.change(old, new, prefix, job.how), copied=True,
                    packages=compare_locks(old, new).into,
                )  # fmt: skip
                result = job.created(verdict, changed=True)
            else:
                result = _record_options(job)
            result = dataclasses.replace(result, packages=list_changes(old, job.lock))
    except FailedProofError as error:
        failed = (
            f"{job.env} failed with these changes. Its previous packages were restored"
            if old
            else f"the new environment failed. {job.env} was not changed"
        )
        job.emit(Event("warning", "build", failed))
        return CreateResult(machine=job.machine, plan=job.lock.plan, lock=job.lock, verdict=error.verdict)
    except BuildError:
        if old:
            job.emit(Event("note", "build", f"{job.env} is as it was before"))
        raise
    finally:
        if old is None:
            with contextlib.suppress(BuildError):  # the next run at this path tries again
                registry.remove_unused_pythons(job.env)
    if job.context and is_good(result) and renew_project_lock(job.choices, job.lock, job.emit):
        files = list_watched_files(job.choices, job.context)
        record.write_vouched(job.env, "request.json", recall.make_request_file(job.choices, None, files))
    return result


def _record_options(job: BuildJob) -> CreateResult:
    """Record the options of this run. The packages stay as they are."""
    with make_scratch("record") as draft:
        (draft / place.MARK).mkdir()
        job.record(draft)
        record.vouch(job.env.resolve(), record.digest_record(draft))
    job.record(job.env)
    _complete(job.lock, job.env, job.choices, job.emit)
    return job.created(prove_if_changed(job, machine_for_verdict()), changed=False)


def reuse(options: BuildOptions, env: Path, choices: Choices, emit: Emit) -> CreateResult:
    """Return an existing environment that is as the options say, with its verdict."""
    machine, built = machine_for_verdict(), record.read_lock(env)
    before, given = record.read(env, "request.json"), redact_value(choices.typed)
    if before.get("given") != given and record.is_vouched(env):
        record.write_vouched(env, "request.json", {**before, "given": given})
    _complete(built, env, choices, emit)  # an earlier run may have been killed before this step
    job = BuildJob(
        options=options, env=env, lock=built, choices=choices, sources=PackageSources(), emit=emit,
        machine=None if choices.elsewhere else machine,
    )  # fmt: skip
    verdict = prove_if_changed(job, machine)
    environment = record.read_environment(env, changed=False)
    if verdict is None:
        from ..verify import drift

        environment = dataclasses.replace(environment, drift=drift.find_drift(env, built).changes)
    plan = record.read_plan(env)
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
    keep_failed: bool = False,
) -> Verdict | None:
    """Do the work in a transaction, prove the result, and keep the verdict.

    `work` fills or changes the prefix, which is a copy of the environment if `copied`. `packages` are downloaded first. Raises
    FailedProofError if the proof fails, unless no environment exists yet, or with `keep_failed`. What was there is then unchanged.
    """
    device, way = job.lock.plan.device, manager(job.lock.manager)
    keep_failed = keep_failed or not place.made_by_gpuenv(job.env)
    proving, verdict = False, None
    if job.options.verify is not False:
        proving = can_prove(job.lock, job.machine, job.emit)
    bundle = job.choices.bundle
    if bundle:
        from ..bundle.install import check_files

        check_files(bundle, job.emit)
    warn_of_host_compiler(job.emit, job.lock.plan, job.choices)
    if device == "cuda":
        for text in disagreements_of(job.lock, rows.load(job.choices)):
            job.emit(Event("warning", "lock", text))
    try:
        if packages:
            way.fetch(job.local_lock, tuple(packages), job.how)
        with way.transaction(job.env, copied=copied) as prefix:
            work(prefix)
            measure(job.local_lock, prefix, job.choices, job.emit)
            if bundle:
                from ..bundle.files import name_origins

                name_origins(prefix, job.lock.packages, bundle)
            job.record(prefix)
            written = record.digest_record(prefix)
            if proving:
                verdict = prove_build(job, prefix)
                if not (keep_failed or is_expected(verdict, device)):
                    raise FailedProofError(verdict)
            record.vouch(job.env, written)
    except GpuenvError as error:
        error.device = error.device or device
        project = job.choices.project
        if project and isinstance(error, BuildError) and error.folder == str(project.resolve()):
            error.hint = hint_dependencies_alone(
                project
            )  # its own folder failed: name the key that leaves it out
        raise
    note = _complete(job.lock, job.env, job.choices, job.emit)
    if note and not copied:
        job.emit(Event("note", "build", note))
    return with_later_stages(job, verdict) if verdict else None


def _complete(lock: Lock, env: Path, choices: Choices, emit: Emit) -> str | None:
    """Finish an environment in its final place, and return a note on its guard. Raises BuildError."""
    if note := manager(lock.manager).finish(env):
        emit(Event("note", "build", note))
    return guard.write(env, lock, on=read_config(choices.config).guard if choices.config else True)


# --- the proof of a build ------------------------------------------------------------------------


def can_prove(lock: Lock, machine: Machine | None, emit: Emit) -> bool:
    """Return whether this machine can prove the environment.

    It cannot if the environment is for the GPU of another machine and this machine has none.
    """
    if lock.plan.device == "cpu" or machine is not None:
        return True
    here = machine_for_verdict()
    if here.gpus and not here.driver.problem:
        return True
    warning = "unproven on this machine: the environment is for the GPU of another machine, and this machine has no GPU"
    emit(Event("warning", "verify", warning))
    return False


def prove_if_changed(job: BuildJob, machine: Machine) -> Verdict | None:
    """Return the kept verdict on an environment if nothing changed since, otherwise a new one.

    Return None if verification is off or this machine cannot prove it.
    """
    options, kept = job.options, None
    if not options.verify:
        digest, checks = record.lock_digest(job.lock), options.checks and not options.quick
        kept = recall.find_kept_verdict(job.env, job.choices, machine, digest, checks=checks)
    if kept:
        record.note_kept(job.env, job.emit)
    if kept is not None or options.verify is False or not can_prove(job.lock, job.machine, job.emit):
        return kept
    return with_later_stages(job, prove_build(job, job.env))


def with_later_stages(job: BuildJob, verdict: Verdict) -> Verdict:
    """Add the stages after the commit to a verdict, and keep it in the environment. They roll nothing back."""
    from . import prove

    examined = job.examine(job.env)
    project = prove.read_project_checks(job.env, examined.options, allowed=job.options.checks)
    whole = prove.add_packages(examined, verdict, job.emit)
    whole = prove.run_checks(examined, whole, project, job.emit)
    if whole.failed and whole.verdict == "fails" != verdict.verdict:
        text = f"{job.env} was kept: its frameworks passed. A failure in stage {whole.failed.stage} does not cause a rollback"
        job.emit(Event("warning", "verify", text))
    if not job.options.quick:
        prove.keep_verdict(job.env, job.lock, whole, project)
    return whole


def prove_build(job: BuildJob, prefix: Path) -> Verdict:
    """Prove the environment at `prefix`, and keep the verdict in it.

    `prefix` may be a draft of the environment. Everything shown and kept names the final place.
    """
    from . import prove

    def settled(text: str) -> str:
        return text.replace(str(prefix), str(job.env))

    def emit(event: Event) -> None:
        job.emit(dataclasses.replace(event, text=settled(event.text)))

    try:
        verdict = prove.run_verification(job.examine(prefix), emit)
    except GpuenvError as error:
        error.message, error.hint = settled(error.message), error.hint and settled(error.hint)
        raise
    verdict = _at_place(verdict, prefix, job.env)
    if not job.options.quick:
        prove.keep_verdict(prefix, job.lock, verdict)
    return verdict


def _at_place(verdict: Verdict, prefix: Path, env: Path) -> Verdict:
    """Return the verdict with the path of the draft replaced by the environment's final path."""
    old, new = (json.dumps(str(p))[1:-1] for p in (prefix, env))
    return from_plain(Verdict, json.loads(json.dumps(as_plain(verdict)).replace(old, new)))
