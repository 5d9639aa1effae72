"""One build of an environment, for both managers: its steps, in the order in which `create`, `add`, `drop` and `repair` take them.

The options or a lock that is named say what is installed (`make_request` and `solve`, or `choose_named_lock`). `transaction`
gives a prefix; in it the packages are installed, recorded and proved. After the commit follow the later stages, the result and
the project's lock.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
from collections.abc import Iterator, Sequence
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
from ..environment.managers import BuildSettings, compare_locks, get_manager
from ..environment.transaction import keep_current_folder
from ..environment.uv_install import hint_dependencies_alone
from ..errors import BuildError, GpuenvError, UsageError
from ..index.places import add_configured_indexes
from ..lock.accept import accept_lock, name_hosts
from ..lock.changes import describe_changes, emit_preview, list_changes
from ..lock.measured import measure
from ..lock.project import list_watched_files, read_or_solve_lock, renew_project_lock
from ..lock.request import make_request, read_named
from ..lock.stack import (
    RECREATE,
    is_of_plan,
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
    Plan,
    RequestContext,
    Verdict,
    as_document,
    as_plain,
    from_plain,
    is_expected,
    is_good,
    name_few,
)
from ..system.redaction import redact_value
from ..system.scratch import make_scratch
from .resolve import add_notes, explain_cpu_choice, warn_of_host_compiler

if TYPE_CHECKING:
    from .prove import Proof

# Options that can change without a new environment: packages, and bounds of the same frameworks.
_MOVES = {
    "with_", "requirement", "project", "extra", "group", "config", "find_links", "indexes", "index", "only_binary",
    "python_bounds",
}  # fmt: skip


class FailedProofError(Exception):
    """The proof of a build failed. Raised inside the transaction to roll it back."""


@dataclasses.dataclass(kw_only=True)
class EnvironmentBuild:
    """A build at the path of an environment, and how far it is.

    `old` is the lock of an environment whose packages change; without one a new environment is built. `lock` and `sources` are what
    is installed: `choose_named_lock`, `solve` or `set_lock` set them. `machine` is None if this machine is not the target. `recorded` are
    the options that the next `create` compares; None keeps those of the record. `written` are the digests of the record, which the
    transaction vouches for. With `keep_failed` an environment stays
    although its proof fails.
    """

    options: BuildOptions
    env: Path
    choices: Choices
    emit: Emit
    old: Lock | None = None
    lock: Lock = dataclasses.field(init=False)
    sources: PackageSources = dataclasses.field(init=False)
    machine: Machine | None = None
    recorded: dict[str, Any] | None = None
    written: frozenset[str] = frozenset()
    context: RequestContext | None = None
    keep_failed: bool = False
    changed: bool = False
    rolled_back: bool = False
    verdict: Verdict | None = None

    # --- what is installed ---

    def set_lock(self, lock: Lock, sources: PackageSources) -> None:
        """Set the lock that is installed, as it is."""
        self.lock, self.sources = lock, sources

    def choose_named_lock(self, lock: Lock) -> None:
        """Choose a lock that is named, if it fits this machine. With `frozen` it decides the frameworks.

        Raises LockError, and UsageError for another device, CUDA or Python than that of what changes.
        """
        choices = self.choices
        accepted = dataclasses.replace(choices, framework=[]) if self.options.frozen else choices
        self.machine = accept_lock(lock, accepted)
        self._choose(lock, read_locked_sources(choices, lock))
        self.recorded = recall.make_request_file(choices, lock, [])

    def keep_lock(self) -> None:
        """Choose the lock of the environment, whose packages stay."""
        self.set_lock(record.read_lock(self.env), PackageSources())
        self.machine = None if self.choices.elsewhere else machine_for_verdict()

    def make_request(self, *, no_code: bool = False) -> RequestContext:
        """Return the request of the options: on the device, CUDA and Python of what changes, or those of this machine.

        With `no_code` no source code runs. Raises UsageError, MachineError, DataError.
        """
        if self.old:
            return read_same_stack_request(self.choices, self.old.plan, self.emit, no_code=no_code)
        context = make_request(self.choices, self.emit, no_code=no_code)
        refuse_idle_gpu(self.env, self.choices, context)
        if why := explain_cpu_choice(context, self.choices):
            self.emit(Event("warning", "resolve", why))
        elif context.request.device == "cuda":
            self.emit(Event("note", "resolve", f"for a GPU: {context.reason}"))
        return context

    def solve(self, context: RequestContext) -> Plan:
        """Choose the project's lock if it is for this request, or a new one near to it or to `old`.

        The plan of a request that no build fits has no builds. Raises LockError, ResolveError, and UsageError for another
        device, CUDA or Python than that of what changes.
        """
        choices = self.choices
        plan, lock = read_or_solve_lock(
            context, choices, self.emit, self.old, allow_md5=self.options.allow_md5
        )
        self.context, self.machine = context, context.machine
        if lock:
            if not self.old and (why := explain_cpu_choice(context, choices)):
                plan = dataclasses.replace(plan, notes=(*plan.notes, why))
            self._choose(dataclasses.replace(lock, plan=plan), context.sources)
            self.recorded = recall.make_request_file(choices, None, list_watched_files(choices, context))
        return plan

    def _choose(self, lock: Lock, sources: PackageSources) -> None:
        if self.old:
            refuse_other_stack(self.env, self.old.plan, lock.plan)
        if not self.choices.bundle:
            lock = name_hosts(lock, self.choices, self.emit)
        if not any(b.index_urls for b in lock.plan.builds):
            # The lock of a file is installed by hash, from the indexes that are configured now.
            lock = dataclasses.replace(lock, plan=add_configured_indexes(lock.plan, sources, ()))
        self.set_lock(lock, sources)

    def preview(self) -> Plan:
        """Return the plan with notes on what nobody chose, and emit what would be installed: all of it for a new environment."""
        emit_preview(self.emit, self.env, self.old, self.lock)
        return add_notes(self.lock.plan, self.context, self.choices) if self.context else self.lock.plan

    def find_changes(self) -> bool:
        """Return whether packages have to be installed or removed, and say which. A new environment needs all."""
        old, new = self.old, self.lock
        if old is None:
            return True
        out, into = compare_locks(old, new)
        changed = ", ".join(describe_changes(old, new))
        if into and not changed:
            changed = f"other files of {name_few([f'{p.name} {p.version}' for p in into])}"
        note = f"updating the environment in place: {changed}" if changed else "nothing to install"
        self.emit(Event("note", "build", note))
        return bool(out or into)

    # --- the transaction ---

    @contextlib.contextmanager
    def transaction(self, packages: Sequence[LockedPackage] = ()) -> Iterator[Path]:
        """Yield the prefix of a new environment, or of a copy of the one that changes. It is committed when the block ends.

        If the block raises an error, the environment stays as it was. After a failed proof it stays as well, and the block ends
        without an error: the build is then `rolled_back`. `packages` are downloaded first, otherwise those that the lock
        changes.
        """
        lock, emit, bundle = self.lock, self.emit, self.choices.bundle
        manager = get_manager(lock.manager)
        self.keep_failed = self.keep_failed or not place.made_by_gpuenv(self.env)
        if bundle:
            from ..bundle.install import check_files

            check_files(bundle, emit)
        warn_of_host_compiler(emit, lock.plan, self.choices)
        try:
            if self.old and (first := packages or compare_locks(self.old, self.local_lock)[1]):
                manager.fetch(self.local_lock, tuple(first), self.settings)
            whole = manager.transaction(self.env, copied=bool(self.old))
            with keep_current_folder(self.env), whole as prefix:
                yield prefix
                record.vouch(self.env, self.written)
            self.changed = True
        except FailedProofError:
            self.rolled_back = True
            failed = (
                f"{self.env} failed with these changes. Its previous packages were restored"
                if self.old
                else f"the new environment failed. {self.env} was not changed"
            )
            emit(Event("warning", "build", failed))
        except GpuenvError as error:
            self._complete_error(error)
            raise
        finally:
            if self.old is None:
                with contextlib.suppress(BuildError):  # the next run at this path tries again
                    registry.remove_unused_pythons(self.env)
        if not self.rolled_back:
            self._complete()

    def _complete_error(self, error: GpuenvError) -> None:
        """Add to an error of the transaction what the build knows."""
        error.device = error.device or self.lock.plan.device
        if isinstance(error, BuildError):
            project = self.choices.project
            if project and error.folder == str(project.resolve()):  # name the key that leaves the folder out
                error.hint = hint_dependencies_alone(project)
            if self.old:
                self.emit(Event("note", "build", f"{self.env} is as it was before"))

    def install(self, prefix: Path) -> None:
        """Install the lock's packages at `prefix`, or those in which it differs from the lock `old`. Raises BuildError."""
        manager = get_manager(self.lock.manager)
        if self.old:
            manager.change(self.old, self.local_lock, prefix, self.settings)
        else:
            manager.install(self.local_lock, prefix, self.settings)

    def record(self, prefix: Path) -> None:
        """Measure wheels that no profile has, and write the record into the environment at `prefix`."""
        measure(self.local_lock, prefix, self.choices, self.emit)
        if self.choices.bundle:
            from ..bundle.files import name_origins

            name_origins(prefix, self.lock.packages, self.choices.bundle)
        self.write_record(prefix)
        self.written = record.digest_record(prefix)  # before code of the environment runs

    def write_record(self, prefix: Path) -> None:
        """Write the installed packages, plan, lock and options into the environment at `prefix`.

        The options are last, because the next `create` relies on them.
        """
        record.note_installed(prefix, self.lock)
        if self.recorded is not None:
            record.write(prefix, "plan.json", as_document(self.lock.plan))
            get_manager(self.lock.manager).write_lock(self.lock, prefix)
            record.write(prefix, "request.json", self.recorded)

    def prove(self, prefix: Path) -> None:
        """Prove the environment at `prefix` if that is wanted and possible.

        Raises FailedProofError if the proof fails, unless no environment exists yet or with `keep_failed`.
        """
        if self._can_prove():
            self.verdict = self.verify_at(prefix)
            if not (self.keep_failed or is_expected(self.verdict, self.lock.plan.device)):
                raise FailedProofError

    @functools.cached_property
    def local_lock(self) -> Lock:
        """The lock, with the package files of a bundle if one is used."""
        if self.choices.bundle is None:
            return self.lock
        from ..bundle.files import local_packages  # brings the HTTP client

        packages = local_packages(self.lock.packages, self.choices.bundle)
        return dataclasses.replace(self.lock, packages=packages)

    @property
    def settings(self) -> BuildSettings:
        """The settings that the manager builds with."""
        return BuildSettings(
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

    def _complete(self) -> None:
        """Finish the environment in its final place. Raises BuildError."""
        if note := get_manager(self.lock.manager).finish(self.env):
            self.emit(Event("note", "build", note))
        config = self.choices.config
        note = guard.write(self.env, self.lock, on=read_config(config).guard if config else True)
        if note and self.changed and not self.old:
            self.emit(Event("note", "build", note))

    # --- the proof, and what follows the commit ---

    def make_proof(self, prefix: Path, emit: Emit) -> Proof:
        """Return the proof of the environment at `prefix`."""
        from ..verify import Options
        from .prove import Proof

        env, options = record.read_environment(prefix, changed=True), Options(quick=self.options.quick)
        return Proof(env, self.choices, emit, options, self.lock)

    def verify_at(self, prefix: Path) -> Verdict:
        """Return the verdict on the environment at `prefix`, and keep it there.

        `prefix` may be a draft of the environment. Everything shown and kept names the final place.
        """

        def name_final(text: str) -> str:
            return text.replace(str(prefix), str(self.env))

        def emit(event: Event) -> None:
            self.emit(dataclasses.replace(event, text=name_final(event.text)))

        proof = self.make_proof(prefix, emit)
        try:
            with proof.start():
                verdict = proof.run()
        except GpuenvError as error:
            error.message, error.hint = name_final(error.message), error.hint and name_final(error.hint)
            raise
        verdict = _replace_prefix(verdict, prefix, self.env)
        if not self.options.quick:
            proof.keep(verdict)
        return verdict

    def _can_prove(self) -> bool:
        """Return whether a proof is wanted, and possible here: not if the environment is for the GPU of another machine and this
        one has none."""
        if self.options.verify is False:
            return False
        if self.lock.plan.device == "cpu" or self.machine is not None:
            return True
        here = machine_for_verdict()
        if here.gpus and not here.driver.problem:
            return True
        warning = "unproven on this machine: the environment is for the GPU of another machine, and this machine has no GPU"
        self.emit(Event("warning", "verify", warning))
        return False

    def run_later_stages(self) -> None:
        """Add the stages after the commit to the verdict, if there is one, and keep it. They roll nothing back."""
        proved = self.verdict
        if proved is None or self.rolled_back:  # then what was there stays
            return
        proof = self.make_proof(self.env, self.emit)
        if self.options.checks:
            proof.read_project()
        with proof.start(driver=False, packages=True):
            whole = proof.add_packages(proved)
        whole = proof.run_checks(whole)
        if whole.failed and whole.verdict == "fails" != proved.verdict:
            text = f"{self.env} was kept: its frameworks passed. A failure in stage {whole.failed.stage} does not cause a rollback"
            self.emit(Event("warning", "verify", text))
        if not self.options.quick:
            proof.keep(whole)
        self.verdict = whole

    def make_result(self) -> CreateResult:
        """Return the result. After a rollback it has no environment. One that was not proved has its differences from the lock."""
        lock, environment = self.lock, None
        if not self.rolled_back:
            environment = record.read_environment(self.env, changed=self.changed)
        if environment and not self.changed and self.verdict is None:
            from ..environment import drift

            environment = dataclasses.replace(environment, drift=drift.find_drift(self.env, lock).changes)
        return CreateResult(
            machine=self.machine, plan=lock.plan, lock=lock, verdict=self.verdict, environment=environment,
            packages=list_changes(self.old, lock) if self.old and environment else (),
        )  # fmt: skip

    def update_project_lock(self, result: CreateResult) -> None:
        """Renew the project's lock after a good result where the request is newer. Raises LockError."""
        if self.context and is_good(result) and renew_project_lock(self.choices, self.lock, self.emit):
            files = list_watched_files(self.choices, self.context)
            record.write_vouched(
                self.env, "request.json", recall.make_request_file(self.choices, None, files)
            )

    # --- an environment whose packages stay ---

    def record_options(self) -> None:
        """Record the options of this run where nothing is installed."""
        with make_scratch("record") as draft:
            (draft / place.MARK).mkdir()
            self.write_record(draft)
            record.vouch(self.env.resolve(), record.digest_record(draft))
        self.write_record(self.env)
        self._complete()

    def reuse(self) -> None:
        """Keep an environment that is as the options say. Only what was typed is recorded again."""
        before, given = record.read(self.env, "request.json"), redact_value(self.choices.typed)
        if before.get("given") != given and record.is_vouched(self.env):
            record.write_vouched(self.env, "request.json", {**before, "given": given})
        self._complete()  # an earlier run may have been killed before this step

    def prove_if_changed(self) -> None:
        """Take the kept verdict on the environment if nothing changed since, otherwise prove it if that is wanted and possible."""
        options = self.options
        if not options.verify:
            digest, checks = record.lock_digest(self.lock), options.checks and not options.quick
            self.verdict = recall.find_kept_verdict(
                self.env, self.choices, machine_for_verdict(), digest, checks=checks
            )
        if self.verdict:
            record.report_kept_verdict(self.env, self.emit)
        elif self._can_prove():
            self.verdict = self.verify_at(self.env)
            self.run_later_stages()


def _replace_prefix(verdict: Verdict, prefix: Path, env: Path) -> Verdict:
    """Return the verdict with the path of the draft replaced by the environment's final path."""
    old, new = (json.dumps(str(p))[1:-1] for p in (prefix, env))
    return from_plain(Verdict, json.loads(json.dumps(as_plain(verdict)).replace(old, new)))


# --- an environment that exists --------------------------------------------------------------------


def is_current(env: Path, choices: Choices, lock: Lock | None) -> bool:
    """Return whether an environment is as the options or a named lock say. Otherwise only its packages have to change.

    Raises VerifyError if it lacks its Python, and UsageError if it was built with other options than those of packages, or
    for the CPU where a GPU is there now.
    """
    before, wanted = recall.compare_request(env, choices, lock)
    if lock and not choices.framework:
        matches = record.read(env, "lock.json").get("digest") == record.lock_digest(lock)
    else:
        # An invalid option is reported before a damaged environment.
        read_named(choices, rows.load(choices))
        matches = recall.is_same(before, wanted)
    place.require_python(env)
    if not matches:
        if not _can_change(env, choices, before, wanted):
            raise _explain_other_options(env, before, wanted)
        record.require_vouched(env)
        return False
    elsewhere = bool(choices.elsewhere or choices.platform)
    plan = record.read_plan(env)
    if lock is None and (why := explain_idle_gpu(plan, choices.device, elsewhere=elsewhere)):
        raise UsageError(
            f"{env} was created for the CPU, because no GPU was found. {why}",
            hint="rebuild the environment for the GPU with --recreate. The old environment is kept until the new one works",
        )
    return True


def _can_change(env: Path, choices: Choices, before: dict[str, Any], wanted: dict[str, Any]) -> bool:
    """Return whether the new options need only other packages.

    Frameworks, Python, device and manager must be the same.
    """
    if not before.get("choices"):
        return False
    old, new, plan = before["choices"], wanted["choices"], record.read_plan(env)
    differs = recall.list_differing(before, wanted)
    differs -= {k for k in ("device", "cuda", "python") if is_of_plan(plan, k, new.get(k))}
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
