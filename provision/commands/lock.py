"""`gpuenv lock`: write the exact files of an environment, with hashes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..config.options import NOT_SHARED, Choices, apply_single_target, declare_targets
from ..config.project import apply_project
from ..errors import UsageError
from ..model import Emit, drop_event
from ..model.declare import argument, group, option
from ..system.files import is_stdout

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
    from .lock_one_target import LockTask, lock_one_target

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
