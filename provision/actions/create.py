"""`gpuenv create`: build an environment that fits the machine, and prove it."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shlex
from pathlib import Path

from ..config import recall
from ..config.env import choose_env_to_change
from ..config.grants import read_user_grants
from ..config.options import BuildOptions, Choices, find_framework, make_absolute
from ..config.project import apply_project
from ..environment import place, record, registry
from ..environment.activate import activate_line
from ..errors import BuildError, GpuenvError, UsageError
from ..model import CreateResult, Emit, Event, Plan, StepFailure, drop_event, is_good
from ..model.declare import (
    BUILD,
    SOURCES,
    checks_option,
    dry_run_option,
    env_argument,
    group,
    option,
    quick_option,
    verify_option,
)
from ..model.values import Value
from ..system import process


class CreateOptions(BuildOptions, Value):
    """The options of `create`. A `brief` result has no lock if everything is up to date."""

    env: Path | None = env_argument()
    choices: Choices = group(Choices)
    bundle: Path | None = option(
        None, help="Install from a folder that `gpuenv bundle` made, without a network.", panel=SOURCES
    )
    locked: bool = option(
        False,
        help="Install exactly the lock; fail if it is missing or out of date.",
        panel=BUILD,
    )
    frozen: bool = option(
        False, help="Install exactly the lock without checking whether it is out of date.", panel=BUILD
    )
    lock: Path | None = option(None, help="Install this lock file.", panel=BUILD)
    allow_md5: bool = option(False, help="conda: accept packages that have only an MD5 hash.", panel=BUILD)
    recreate: bool = option(
        False, help="Build a new environment; the old one is replaced when the new one works.", panel=BUILD
    )
    adopt: bool = option(
        False, help="Take over a venv of another tool with the packages that it has.", panel=BUILD
    )
    verify: bool | None = verify_option(panel=BUILD)
    quick: bool = quick_option(panel=BUILD)
    checks: bool = checks_option(panel=BUILD)
    dry_run: bool = dry_run_option(panel=BUILD)
    kernel: bool = option(False, help="Add a Jupyter kernel for the environment.", panel=BUILD)
    brief: bool = False

    @property
    def takes_lock(self) -> bool:
        """Whether a lock decides what is installed."""
        return bool(self.locked or self.frozen or self.lock or self.bundle)

    @property
    def is_plain(self) -> bool:
        """Whether an up-to-date environment can satisfy the command without further work."""
        return self.checks and not (
            self.takes_lock
            or self.recreate
            or self.adopt
            or self.verify is not None
            or self.quick
            or self.dry_run
            or self.kernel
        )


def create(options: CreateOptions, emit: Emit = drop_event) -> CreateResult | Plan:
    """Build an environment that fits this machine, and prove it. With `dry_run` return the plan."""
    _refuse_contradictions(options)
    env = make_absolute(choose_env_to_change(emit, options.env))
    if options.adopt:
        from .adopt import adopt

        return register(emit, env, adopt(options, env, options.choices, emit))
    choices = recall.recall_for_create(
        env, options.choices, emit, lock=options.takes_lock, recreate=options.recreate
    )
    if options.is_plain and (kept := _find_up_to_date(env, choices, brief=options.brief)):
        record.report_kept_verdict(env, emit)
        return register(emit, env, kept)
    # The rest is imported here, so that an environment that is up to date is reported at once.
    from ..lock.project import find_named_lock
    from .build import EnvironmentBuild, is_current

    with_kernel = options.kernel or bool(record.read_vouched(env, recall.KERNEL))
    if with_kernel:
        choices = recall.add_kernel_package(choices)
    place.check_place(env)
    choices, lock_file = _complete_choices(options, choices, emit)
    with contextlib.nullcontext() if options.dry_run else place.lock_place(env, emit, wait=True):
        if not options.dry_run:
            place.recover(env)
        named = find_named_lock(options, env, choices, lock_file, emit)
        build = EnvironmentBuild(options=options, env=env, choices=choices, emit=emit)
        there = place.made_by_gpuenv(env) and not options.recreate
        current = there and is_current(env, choices, named)
        build.old = record.read_lock(env) if there else None
        if build.old and current:
            build.keep_lock()
        elif named:
            build.choose_named_lock(named)
        else:
            plan = build.solve(build.make_request(no_code=options.dry_run))
            if not plan.builds:
                return plan if options.dry_run else CreateResult(machine=build.machine, plan=plan)
        if options.dry_run:
            return build.preview()
        if current:
            build.reuse()
            build.prove_if_changed()
        elif build.find_changes():
            with build.transaction() as prefix:
                build.install(prefix)
                build.record(prefix)
                build.prove(prefix)  # a failure rolls back
            build.run_later_stages()
        else:
            build.record_options()
            build.prove_if_changed()
        result = build.make_result()
        build.update_project_lock(result)
    if with_kernel and is_good(result):
        result = _register_kernel(emit, env, result)
    return register(emit, env, result)


def _refuse_contradictions(options: CreateOptions) -> None:
    """Raise UsageError for options that exclude each other, and for a framework in place of a path."""
    if options.locked and options.frozen:
        raise UsageError(
            "--locked and --frozen cannot be used together",
            hint="--frozen installs the lock without checking it",
        )
    word = str(options.env or "")
    if not options.choices.framework and (framework := find_framework(word)) and not os.path.lexists(word):
        raise UsageError(
            f"{word} is a framework; ENV is the path of an environment",
            hint=f"gpuenv create --framework {shlex.quote(framework)}; for a folder of that name: gpuenv create ./{word}",
        )
    chosen = options.takes_lock or options.recreate or options.dry_run or options.choices.framework
    if options.adopt and chosen:
        raise UsageError(
            "--adopt takes the packages that are there: it cannot be used with options that choose others",
            hint="gpuenv create --adopt",
        )
    if options.bundle and options.lock:
        raise UsageError(
            "--bundle and --lock cannot be used together: a bundle contains its own lock",
            hint="leave one of them out",
        )


def _complete_choices(options: CreateOptions, choices: Choices, emit: Emit) -> tuple[Choices, Path | None]:
    """Return the options with those of gpuenv.yaml, unless a lock file decides, and this file.

    Raises UsageError, DataError.
    """
    from ..lock.formats import check_choices, find_lock_manager, get_format

    lock_file = options.lock
    if options.bundle:
        from ..bundle.install import open_bundle

        choices, lock_file = open_bundle(options.bundle, choices, emit)
    read_user_grants(choices)
    if lock_file is None or choices.target:
        choices = apply_project(choices)
    choices = dataclasses.replace(choices, manager=find_lock_manager(lock_file, choices.manager))
    check_choices(choices)
    get_format(choices.manager).require()
    return choices, lock_file


def _find_up_to_date(env: Path, choices: Choices, *, brief: bool) -> CreateResult | None:
    """Return the environment if a few files show that it is up to date, or None if that is not certain.

    `make env` asks this each time. No stage is imported, no profile read and no lock taken. A `brief` result has no lock.
    """
    from ..detect import explain_idle_gpu, machine_for_verdict

    whole = place.made_by_gpuenv(env) and place.is_undisturbed(env) and place.find_python(env)
    if not whole or not record.is_vouched(env) or (env / place.MARK / recall.KERNEL).exists():
        return None  # a kernel may have to be registered again
    choices = apply_project(choices)
    before, wanted = recall.compare_request(env, choices, None)
    if not before or not recall.is_same(before, wanted):
        return None
    machine, plan = machine_for_verdict(), record.read_plan(env)
    verdict = recall.find_kept_verdict(env, choices, machine, record.read(env, "lock.json").get("digest"))
    if verdict is None or plan is None:
        return None
    if explain_idle_gpu(plan, choices.device, elsewhere=bool(choices.elsewhere or choices.platform)):
        return None
    lock = None if brief else record.read_lock(env)
    environment = record.read_environment(env, changed=False)
    return CreateResult(machine=machine, plan=plan, lock=lock, environment=environment, verdict=verdict)


def _register_kernel(emit: Emit, env: Path, result: CreateResult) -> CreateResult:
    """Register the environment as a Jupyter kernel. A failure is a part of the result."""
    from ..environment import kernel

    made_of = ", ".join(f"{b.framework} {b.version}" for b in result.plan.builds) if result.plan else ""
    try:
        name = kernel.register(env, str(place.find_python(env)), made_of)
        record.write_vouched(env, recall.KERNEL, {"name": name})
    except GpuenvError as error:
        hint = f"; {error.hint}" if error.hint else ""
        warning = f"no Jupyter kernel was made: {error.message}{hint}"
        emit(Event("warning", "kernel", warning))
        failure = StepFailure(name=error.name, message=error.message, hint=error.hint)
        return dataclasses.replace(result, kernel_error=failure)
    emit(Event("note", "kernel", f"Jupyter kernel: {name}"))
    return dataclasses.replace(result, kernel=name)


def register(emit: Emit, env: Path, result: CreateResult) -> CreateResult:
    """Add the environment to the registry, if there is one, and emit the next step."""
    if result.environment:
        try:
            registry.add(env)
        except BuildError as error:
            emit(Event("note", "build", error.message))
    if is_good(result):
        emit(Event("next", "build", activate_line(env, process.environ())))
    return result
