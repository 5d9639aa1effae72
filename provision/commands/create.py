"""`gpuenv create`: build an environment that fits the machine, and prove it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..errors import UsageError
from ..model import Created, Emit, Plan, drop_event
from ..model.option import BUILD, SOURCES, argument, group, option
from ..request.options import Choices


@dataclass(frozen=True, kw_only=True)
class CreateOptions:
    """The options of `create`. A `brief` value has no lock where everything is in place."""

    env: Path = argument(Path(".venv"), help="Path of the environment.", complete="environments")
    choices: Choices = group(Choices)
    bundle: Path | None = option(
        None, help="Install from a folder that `gpuenv bundle` made; no network.", panel=SOURCES
    )
    locked: bool = option(
        False,
        help="Install exactly the lock; stop where it is missing or not what is asked for.",
        panel=BUILD,
    )
    frozen: bool = option(False, help="Install exactly the lock, unchecked.", panel=BUILD)
    lock: Path | None = option(None, help="The lock to install.", panel=BUILD)
    allow_md5: bool = option(False, help="conda: take locks that carry md5 alone.", panel=BUILD)
    recreate: bool = option(False, help="Build anew; the old one stays until then.", panel=BUILD)
    verify: bool | None = option(None, "--verify/--no-verify", help="Verify again / not at all.", panel=BUILD)
    dry_run: bool = option(False, help="Show the plan, build nothing.", panel=BUILD)
    kernel: bool = option(False, help="Also a Jupyter kernel that runs its Python.", panel=BUILD)
    brief: bool = False

    @property
    def takes_lock(self) -> bool:
        """Whether a lock decides what is installed."""
        return bool(self.locked or self.frozen or self.lock or self.bundle)

    @property
    def is_plain(self) -> bool:
        """Whether an environment that is in place can be all that is asked for."""
        changes = self.recreate or self.verify is not None or self.dry_run or self.kernel
        return not (self.takes_lock or changes)


def create(options: CreateOptions, emit: Emit = drop_event) -> Created | Plan:
    """Build an environment that fits this machine, and prove it. With `dry_run` return the plan."""
    from ..request import made_with
    from . import up_to_date

    if options.locked and options.frozen:
        raise UsageError("--locked and --frozen exclude each other", hint="--frozen takes the lock unchecked")
    choices = made_with.of_create(
        options.env,
        options.choices,
        options.choices.asked(),
        lock=options.takes_lock,
        recreate=options.recreate,
    )
    if options.is_plain and (there := up_to_date.told(emit, options.env, choices, brief=options.brief)):
        return there
    from . import create_options, kernels

    lock = options.lock
    if options.bundle:
        from . import bundled

        choices, lock = bundled.opened(options.bundle, choices, lock)
    how = create_options.How(
        locked=options.locked, frozen=options.frozen, lock_file=lock, allow_md5=options.allow_md5,
        recreate=options.recreate, verify=options.verify, dry_run=options.dry_run,
    )  # fmt: skip
    return kernels.create_with(emit, options.env, choices, how, wanted=options.kernel)
