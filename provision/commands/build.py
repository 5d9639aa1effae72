"""Build, change or repair an environment in one transaction, for both managers.

The steps are: work, record, prove, then commit or roll back.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..bundle import install
from ..config import options as where
from ..config.options import Choices
from ..config.rows import load_all
from ..environment import Building, manager, place, state
from ..errors import BuildError, GpuenvError
from ..lock import needs
from ..lock.needs import Measuring
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
)
from ..resolve.extras import disagreements_of
from ..wheels.uv_install import hint_dependencies_alone
from .resolve import warn_of_host_compiler
from .up_to_date import finish_creation
from .verify import (
    CheckOptions,
    Examination,
    PlannedChecks,
    add_later_stages,
    can_prove,
    get_planned_device,
    is_expected,
    machine_for_verdict,
    make_options,
    plan_checks,
    run_project_checks,
    run_verification,
)


@dataclass(frozen=True, kw_only=True)
class BuildJob:
    """An environment, the lock to install in it, and the settings of the build.

    `machine` is None if this machine is not the target. `remembered` are the options that the next `create`
    compares; None keeps the recorded ones. `verify` is the option; None proves only what is not proved yet.
    `checks` allows the project's checks to run. `python` returns the interpreter for a venv. `context` is the request
    that was solved for this build, or None for a lock that was named.
    """

    env: Path
    lock: Lock
    choices: Choices
    sources: PackageSources
    emit: Emit
    machine: Machine | None = None
    remembered: dict[str, Any] | None = None
    verify: bool | None = None
    checks: bool = True
    python: Callable[[], str] = str
    distrust: bool = False
    context: RequestContext | None = None

    @property
    def local_lock(self) -> Lock:
        """The lock, with the package files of a bundle if one is used."""
        return install.use_bundle_files(self.lock, self.choices)

    @functools.cached_property
    def missing_libraries(self) -> needs.MissingLibraries:
        """The warnings about libraries that this machine lacks."""
        return needs.MissingLibraries(self.emit, self.local_lock, self.choices, self.sources)

    @functools.cached_property
    def measuring(self) -> Measuring:
        """The measurement of wheels that have no profile row."""
        return Measuring(self.emit, self.local_lock, self.choices)

    def read_fetched(self, prefix: Path) -> None:
        """Read the wheels that were installed into an environment so far."""
        self.missing_libraries.warn_of_installed(prefix)
        self.measuring.measure(prefix)

    @property
    def how(self) -> Building:
        """The settings that the manager builds with."""
        return Building(
            env=self.env, sources=self.sources, emit=self.emit, channels=tuple(self.choices.channel),
            python=self.python, distrust=self.distrust, fetched=self.read_fetched,
        )  # fmt: skip

    def record(self, prefix: Path) -> None:
        """Write plan, lock, options and the installed packages into the environment at `prefix`."""
        state.note_installed(prefix, self.lock)
        self.write_record(prefix)

    def write_record(self, prefix: Path) -> None:
        """Write plan, lock and options. The options are last, because the next `create` relies on them."""
        if self.remembered is not None:
            state.write(prefix, "plan.json", as_document(self.lock.plan))
            manager(self.lock.manager).record(self.lock, prefix)
            state.write(prefix, "request.json", self.remembered)

    def created(self, verdict: Verdict | None, *, changed: bool) -> CreateResult:
        """Return the environment in its final place as the command's result."""
        environment = state.read_environment(self.env, changed=changed)
        return CreateResult(
            machine=self.machine,
            plan=self.lock.plan,
            lock=self.lock,
            environment=environment,
            verdict=verdict,
        )


class FailedProofError(Exception):
    """The proof of a new build failed. Raised inside the transaction to roll it back."""

    def __init__(self, verdict: Verdict) -> None:
        super().__init__(verdict.verdict)
        self.verdict = verdict


@dataclass(frozen=True, kw_only=True)
class BuildStep:
    """The work of a transaction.

    `do` fills or changes the prefix. With `copied` the prefix is a copy of the environment. `packages` are
    downloaded first. With `stays` the result is kept even if its proof fails.
    """

    do: Callable[[Path], None]
    copied: bool = False
    packages: tuple[LockedPackage, ...] = ()
    stays: bool = False


def build_environment(job: BuildJob, work: BuildStep) -> Verdict | None:
    """Do the work in a transaction, prove the result, and keep the verdict.

    Raises FailedProofError if the proof fails and an environment exists already. That environment is then
    unchanged.
    """
    device, way = job.lock.plan.device, manager(job.lock.manager)
    stays = work.stays or not place.made_by_gpuenv(job.env)
    proving = job.verify is not False and can_prove(job.lock, job.machine, job.emit)
    verdict = None
    install.check_files(job.choices, job.emit)
    warn_of_host_compiler(job.emit, job.lock.plan, job.choices)
    for text in disagreements_of(job.lock, load_all(job.choices)):
        job.emit(Event(kind="warning", stage="lock", text=text))
    job.missing_libraries.warn()
    with get_planned_device(device), _hints_for_project(job.choices.project):
        if work.packages:
            way.fetch(job.local_lock, work.packages, job.how)
        with way.transaction(job.env, copied=work.copied) as prefix:
            work.do(prefix)
            install.name_origins(prefix, job.lock, job.choices)
            job.record(prefix)
            written = state.digest_record(prefix)
            if proving:
                verdict = prove_and_keep(job, prefix)
                if not (stays or is_expected(verdict, device)):
                    raise FailedProofError(verdict)
            state.vouch(job.env, written)
    settle(job.lock.manager, job.env, job.emit)
    return verdict and with_later_stages(job, verdict)


@contextlib.contextmanager
def _hints_for_project(project: Path | None) -> Iterator[None]:
    """Add a hint to a failed build of the project's own folder: the key that leaves it out."""
    try:
        yield
    except BuildError as error:
        if project and error.folder == str(project.resolve()):
            error.hint = hint_dependencies_alone(project)
        raise


def replace_environment(job: BuildJob, work: BuildStep, *, rolled_back: str) -> CreateResult:
    """Build the environment and return the result. `rolled_back` is the warning for a failed proof."""
    try:
        verdict = build_environment(job, work)
    except FailedProofError as error:
        job.emit(Event(kind="warning", stage="build", text=rolled_back))
        return CreateResult(machine=job.machine, plan=job.lock.plan, lock=job.lock, verdict=error.verdict)
    return finish_creation(job.emit, job.created(verdict, changed=True), job.env)


def settle(name: str, env: Path, emit: Emit) -> None:
    """Finish an environment in its final place. Raises BuildError."""
    if note := manager(name).finish(env):
        emit(Event(kind="note", stage="build", text=note))


# --- verdicts --------------------------------------------------------------------------------------


def read_kept_verdict(job: BuildJob, machine: Machine) -> Verdict | None:
    """Return the kept verdict on an environment if nothing changed since, otherwise a new one.

    Return None if verification is off or this machine cannot prove it.
    """
    checks = planned_checks(job).digest
    under = state.list_circumstances(job.env, state.lock_digest(job.lock), machine, checks)
    kept = None if job.verify else state.find_valid_verdict(job.env, under)
    if kept is not None or job.verify is False or not can_prove(job.lock, job.machine, job.emit):
        return kept
    return with_later_stages(job, prove_and_keep(job, job.env))


def planned_checks(job: BuildJob) -> PlannedChecks:
    """Return the checks of the environment's own project, or none if they are turned off."""
    return plan_checks(job.env, CheckOptions(of_project=job.checks), make_options(job.choices, {}))


def with_later_stages(job: BuildJob, verdict: Verdict) -> Verdict:
    """Add the stages after the commit to a verdict, and keep it in the environment. They roll nothing back."""
    planned, options = planned_checks(job), make_options(job.choices, {})
    env = state.read_environment(job.env, changed=True)
    examined = Examination(env=env, lock=job.lock, choices=job.choices, options=options)
    whole = add_later_stages(examined, verdict, job.emit)
    whole = run_project_checks(examined, whole, planned, job.emit)
    if whole.verdict == "fails" != verdict.verdict:
        stage = next(s.stage for s in whole.stages if s.status == "fail")
        text = (
            f"{job.env} was kept: its frameworks passed. A failure in stage {stage} does not cause a rollback"
        )
        job.emit(Event(kind="warning", stage="verify", text=text))
    under = state.list_circumstances(
        job.env, state.lock_digest(job.lock), machine_for_verdict(), planned.digest
    )
    state.keep_verdict(job.env, whole, under)
    return whole


def prove_and_keep(job: BuildJob, prefix: Path) -> Verdict:
    """Prove the environment at `prefix`, and keep the verdict in it.

    `prefix` may be a draft of the environment. Everything shown and kept names the final place.
    """
    from ..system.cache import move_bytecode

    def settled(text: str) -> str:
        return text.replace(str(prefix), str(job.env))

    def emit(event: Event) -> None:
        job.emit(dataclasses.replace(event, text=settled(event.text)))

    try:
        with move_bytecode(where.get_cache_dir(job.choices), job.env, prefix):
            verdict = run_verification(
                emit, state.read_environment(prefix, changed=True), job.lock, job.choices
            )
    except GpuenvError as error:
        error.message, error.hint = settled(error.message), error.hint and settled(error.hint)
        raise
    verdict = _at_place(verdict, prefix, job.env)
    under = state.list_circumstances(prefix, state.lock_digest(job.lock), machine_for_verdict())
    state.keep_verdict(prefix, verdict, under)
    return verdict


def _at_place(verdict: Verdict, prefix: Path, env: Path) -> Verdict:
    """Return the verdict with the path of the draft replaced by the environment's final path."""
    old, new = (json.dumps(str(p))[1:-1] for p in (prefix, env))
    return from_plain(Verdict, json.loads(json.dumps(as_plain(verdict)).replace(old, new)))
