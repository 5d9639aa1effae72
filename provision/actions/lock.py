"""`gpuenv lock`: write the exact files of an environment, with hashes."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Sequence
from pathlib import Path

from ..config.env import find_project_folder, locate_in_project, note_project
from ..config.options import (
    NOT_SHARED,
    Choices,
    apply_single_target,
    declare_plans,
    declare_targets,
    make_absolute,
    suggest_options,
)
from ..config.project import add_inputs, apply_project, is_same_inputs, list_files
from ..errors import LockError, UsageError
from ..lock import solve_near
from ..lock.accept import read_lock, read_old_lock
from ..lock.changes import refuse_differences
from ..lock.formats import check_choices, get_format
from ..lock.named import read_named_packages
from ..lock.project import lock_name
from ..lock.request import make_request
from ..model import (
    Emit,
    Event,
    Fleet,
    FleetLock,
    FleetLocks,
    Lock,
    Plan,
    drop_event,
    name_few,
)
from ..model.declare import argument, force_option, group, option
from ..model.values import Value
from ..system.files import is_stdout, refuse_to_replace
from .resolve import add_notes, explain_cpu_choice, warn_of_host_compiler


class LockOptions(Value):
    """The options of `lock`. `packages` are those that `upgrade` moves; without any it moves all."""

    output: Path | None = option(
        None,
        "--output",
        "-o",
        help="Lock file to write.  [default: pylock.toml, or conda-lock.yml for conda]",
    )
    check: bool = option(False, help="Check whether the lock is up to date, and write nothing.")
    force: bool = force_option()
    upgrade: bool = option(False, "--upgrade", "-U", help="Upgrade all packages, or only those named.")
    allow_downgrade: bool = option(
        False, help="Write the locks of a fleet also where a host gets an older framework or named package."
    )
    packages: list[str] = argument(list, metavar="[PKG]...", hidden=True)
    targets: list[Path] = declare_targets()
    plans: str | None = declare_plans()
    choices: Choices = group(Choices, without=NOT_SHARED)

    @property
    def takes_stdout(self) -> bool:
        """Whether the lock is written to standard output."""
        return self.output is not None and is_stdout(self.output)


def lock(options: LockOptions, emit: Emit = drop_event) -> Lock | Plan | FleetLocks:
    """Write the lock, or check whether it is up to date. Return the plan if no build fits.

    For several targets write one lock for each of the fewest plans.
    """
    choices = apply_single_target(options.choices, options.targets, options.plans)
    if choices is None:
        return _lock_fleet(options, emit)
    if options.packages and not options.upgrade:
        meant = suggest_options(options.packages)
        hint = f"gpuenv lock {meant}" if meant else "to upgrade one package: gpuenv lock --upgrade PKG"
        raise UsageError(f"unexpected argument {options.packages[0]!r}", hint=hint)
    choices = apply_project(choices)
    check_choices(choices)
    lock_format = get_format(choices.manager)
    lock_format.require()
    note_project(emit)
    output = options.output or locate_in_project(lock_name(choices))
    if not options.check:
        refuse_to_replace(output, force=options.force)
    context = make_request(choices, emit)
    if warning := explain_cpu_choice(context, choices):
        emit(Event("warning", "resolve", warning))
    platform = context.target.platform
    old_lock = (
        read_lock(output, choices, platform)
        if options.check
        else read_old_lock(output, choices, platform, emit)
    )
    plan, new_lock = solve_near(
        context, choices, emit, old_lock, upgrade=options.upgrade, names=options.packages
    )
    if new_lock is None:
        return plan
    new_lock = add_inputs(new_lock, choices, context.requirements)
    step = Event("next", "lock", _describe_next_step(choices, output))
    if options.check:
        assert old_lock is not None  # `read_lock` raises for one that is missing
        if is_same_inputs(old_lock.inputs, choices, list_files(choices, context.requirements)):
            # a digest of version 0.1.0 is equal, too
            old_lock = dataclasses.replace(old_lock, inputs=new_lock.inputs)
        _refuse_stale(output, old_lock, new_lock)
        builds = [f"{b.framework} {b.version}" for b in old_lock.plan.builds]
        content = ", ".join([*builds, f"{len(old_lock.packages)} packages"])
        emit(Event("summary", "lock", f"{output} is up to date ({content})"))
        emit(step)
        return old_lock
    lock_format.write_lock(output, new_lock)
    warn_of_host_compiler(emit, new_lock.plan, choices)
    emit(step)
    # The note is on this machine, so it is not in the file.
    return dataclasses.replace(new_lock, plan=add_notes(new_lock.plan, context, choices))


def _lock_fleet(options: LockOptions, emit: Emit) -> FleetLocks:
    """Write `pylock.CLASS.toml` for each plan, named after the class with the most hosts.

    Nothing is written where a host would go back, unless that is allowed.
    """
    from ..lock.fleet import plan_locks
    from ..lock.fleet_locks import refuse_downgrades, warn_of_unused

    note_project(emit)
    for name, value in (
        ("--output", options.output),
        ("--check", options.check),
        ("a package", options.packages),
    ):
        if value:
            raise UsageError(
                f"{name} is for the lock of one target, and --target names several",
                hint="give one --target; with several each plan has its own lock",
            )
    fleet, locker, tasks = plan_locks(
        options.targets, options.choices, emit, upgrade=options.upgrade, plans=options.plans
    )
    paths = [locker.path(classes) for _, classes in tasks]
    for path in paths:
        refuse_to_replace(path, force=options.force)
    solved = [locker.lock(*task) for task in tasks]
    folder = find_project_folder()
    if not options.allow_downgrade:
        named = {n.name for context, _ in tasks for n in read_named_packages(context)}
        refuse_downgrades(folder, solved, named)
    locks = []
    for place, (path, new_lock) in enumerate(zip(paths, solved, strict=True)):
        get_format(locker.choices.manager).write_lock(path, new_lock)
        locks.append(FleetLock(file=str(path), plan=place, lock=new_lock))
    for text in warn_of_unused(folder, paths):
        emit(Event("warning", "lock", text))
    if locks:
        hosts = name_few([host for c in tasks[0][1] for host in c.hosts])
        others = "; the other locks on theirs" * (len(locks) > 1)
        emit(Event("next", "lock", f"gpuenv create --lock {locks[0].file}  # on {hosts}{others}"))
    return FleetLocks(fleet=_with_locked_plans(fleet, locks), locks=tuple(locks))


def _with_locked_plans(fleet: Fleet, locks: Sequence[FleetLock]) -> Fleet:
    """Return the fleet with the plans that were locked: an index that does not answer can change the builds."""
    plans = (
        plan if plan.plan.builds == one.lock.plan.builds else dataclasses.replace(plan, plan=one.lock.plan)
        for plan, one in zip(fleet.plans, locks, strict=True)
    )
    return dataclasses.replace(fleet, plans=tuple(plans))


def _refuse_stale(path: Path, lock: Lock, fresh: Lock) -> None:
    """Raise LockError with the differences of a lock from a new one."""
    hint = "update it: gpuenv lock"
    refuse_differences(path, lock, fresh, hint)
    if lock.exclude_newer != fresh.exclude_newer:
        why = "it was made with another --exclude-newer; the packages are the same"
    elif lock.inputs and fresh.inputs and lock.inputs != fresh.inputs:
        why = "the project's requirements changed; the packages are the same"
    else:
        return
    raise LockError(f"{path} is out of date: {why}", hint=hint)


def _describe_next_step(choices: Choices, output: Path) -> str:
    """Return the command that installs the lock on its target."""
    target = choices.target_name or choices.target
    named = f" --target {shlex.quote(str(target))}" if target else ""
    manager = "" if choices.config else get_format(choices.manager).OPTION
    is_project_lock = make_absolute(output) == make_absolute(locate_in_project(lock_name(choices)))
    which = f"--locked{manager}" if is_project_lock else f"--lock {shlex.quote(str(output))}"
    return f"gpuenv create {which}{named}  # installs exactly {output.name}"
