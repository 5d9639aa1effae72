"""`gpuenv lock`: write the exact files of an environment, with hashes."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name

from ..config import project as inproject
from ..config.env import note_project
from ..config.options import NOT_SHARED, Choices, apply_single_target, declare_targets
from ..config.project import apply_project, find_project_folder
from ..errors import LockError, UsageError
from ..lock.accept import read_old_lock, virtual_packages
from ..lock.changes import list_differences
from ..lock.context import get_locking, judge_request
from ..lock.needs import WheelNeeds
from ..lock.project import lock_name
from ..lock.update import Upgrade, solve_like
from ..model import Emit, Event, Lock, Plan, drop_event
from ..model.declare import argument, group, option
from ..resolve.extras import disagreements_of
from ..system.files import is_stdout, refuse_to_replace
from .resolve import add_notes, explain_cpu_choice, warn_of_host_compiler

if TYPE_CHECKING:
    from ..model import FleetLocks, Lock, Plan


@dataclass(frozen=True, kw_only=True)
class LockOptions:
    """The options of `lock`. `packages` are those that `upgrade` moves; without any it moves all."""

    output: Path | None = option(
        None,
        "--output",
        "-o",
        help="Lock file to write.  [default: pylock.toml, or conda-lock.yml for conda]",
    )
    check: bool = option(False, help="Check whether the lock is up to date, and write nothing.")
    force: bool = option(False, help="Replace files that gpuenv did not write or that were edited.")
    upgrade: bool = option(False, "--upgrade", "-U", help="Upgrade all packages, or only those named.")
    packages: list[str] = argument(list, metavar="[PKG]...", hidden=True)
    targets: list[Path] = declare_targets()
    choices: Choices = group(Choices, without=NOT_SHARED)

    @property
    def takes_stdout(self) -> bool:
        """Whether the lock is written to standard output."""
        return self.output is not None and is_stdout(self.output)


def lock(options: LockOptions, emit: Emit = drop_event) -> Lock | Plan | FleetLocks:
    """Write the lock, or check whether it is up to date. Return the plan if no build fits.

    For several targets write one lock for each of the fewest plans.
    """
    one = apply_single_target(options.choices, options.targets)
    if one is None:
        return _lock_fleet(options, emit)
    if options.packages and not options.upgrade:
        raise _make_argument_error(options.packages)
    choices = apply_project(one)

    task = LockTask(
        choices=choices, output=options.output, check=options.check, force=options.force,
        upgrade=options.upgrade, packages=options.packages,
    )  # fmt: skip
    return lock_one_target(task, emit)


def _make_argument_error(packages: Sequence[str]) -> UsageError:
    from ..config.options import suggest_options

    options_meant = suggest_options(packages)
    hint = (
        f"gpuenv lock {options_meant}"
        if options_meant
        else "to upgrade one package: gpuenv lock --upgrade PKG"
    )
    return UsageError(f"unexpected argument {packages[0]!r}", hint=hint)


def _lock_fleet(options: LockOptions, emit: Emit) -> FleetLocks:
    from ..config.env import note_project
    from ..lock.fleet import lock_targets
    from ..lock.update import Upgrade

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
    upgrade = Upgrade(all=options.upgrade)
    return lock_targets(options.targets, options.choices, emit, upgrade, force=options.force)


@dataclass(frozen=True, kw_only=True)
class LockTask:
    """What to lock, and where. `choices` include those of the project. With `check` nothing is written."""

    choices: Choices
    output: Path | None
    check: bool
    force: bool
    upgrade: bool
    packages: Sequence[str]


def lock_one_target(task: LockTask, emit: Emit) -> Lock | Plan:
    """Write the lock, or check it. Return the plan if no build fits."""
    names = tuple(str(canonicalize_name(n)) for n in task.packages)
    upgrade = Upgrade(all=task.upgrade and not names, names=names)
    choices = task.choices
    way = get_locking(choices)
    way.require()
    note_project(emit)
    output = task.output or _project_lock(choices)
    if not task.check:
        refuse_to_replace(output, force=task.force)
    context = judge_request(choices, emit)
    if warning := explain_cpu_choice(context, choices):
        emit(Event(kind="warning", stage="resolve", text=warning))
    old_lock = read_old_lock(output, choices, context.target.platform, strict=task.check)
    plan, new_lock = solve_like(context, choices, emit, old_lock, upgrade)
    if new_lock is None:
        return plan
    files = inproject.list_files(choices, context.demands)
    new_lock = dataclasses.replace(new_lock, inputs=inproject.digest_inputs(choices, files))
    if task.check and old_lock:
        if inproject.is_same_inputs(old_lock.inputs, choices, files):
            old_lock = dataclasses.replace(old_lock, inputs=new_lock.inputs)
        return _compare_with_fresh(emit, new_lock, old_lock, output, _describe_next_step(choices, output))
    way.write_lock(output, new_lock, virtual_packages(context))
    WheelNeeds(emit, new_lock, choices, context.sources).warn()
    warn_of_host_compiler(emit, new_lock.plan, choices)
    for text in disagreements_of(new_lock, context.profiles):
        emit(Event(kind="warning", stage="lock", text=text))
    emit(Event(kind="next", stage="lock", text=_describe_next_step(choices, output)))
    # The note is on this machine, so it is not in the file.
    return dataclasses.replace(new_lock, plan=add_notes(new_lock.plan, context, choices))


def _project_lock(choices: Choices) -> Path:
    """Return the path of the project's lock file, relative where the project is this folder."""
    folder = find_project_folder()
    return Path(lock_name(choices)) if folder == Path.cwd() else folder / lock_name(choices)


def _describe_next_step(choices: Choices, output: Path) -> str:
    """Return the command that installs the lock on its target."""
    target = choices.target_name or choices.target
    named = f" --target {shlex.quote(str(target))}" if target else ""
    manager = "" if choices.config else get_locking(choices).OPTION
    is_project_lock = output.name == lock_name(choices)
    which = f"--locked{manager}" if is_project_lock else f"--lock {shlex.quote(str(output))}"
    return f"gpuenv create {which}{named}  # installs exactly {output.name}"


def _compare_with_fresh(emit: Emit, fresh: Lock, lock: Lock, path: Path, step: str) -> Lock:
    """Report that the lock is up to date, or raise LockError with the differences from a new one."""
    if drift := list_differences(lock, fresh):
        raise LockError(
            f"{path} is out of date: {_count(len(drift), 'package')} would change",
            log="\n".join(drift), hint="update it: gpuenv lock",
        )  # fmt: skip
    if lock.exclude_newer != fresh.exclude_newer:
        raise LockError(
            f"{path} is out of date: it was made with another --exclude-newer; the packages are the same",
            hint="update it: gpuenv lock",
        )
    if lock.inputs and fresh.inputs and lock.inputs != fresh.inputs:
        raise LockError(
            f"{path} is out of date: the project's requirements changed; the packages are the same",
            hint="update it: gpuenv lock",
        )
    builds = [f"{b.framework} {b.version}" for b in lock.plan.builds]
    content = ", ".join([*builds, f"{len(lock.packages)} packages"])
    emit(Event(kind="summary", stage="lock", text=f"{path} is up to date ({content})"))
    emit(Event(kind="next", stage="lock", text=step))
    return lock


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
