"""`gpuenv lock`: the exact files of an environment, with hashes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..model import Emit, Lock, Plan, drop_event
from ..model.option import argument, group, option
from ..request.options import Choices


@dataclass(frozen=True, kw_only=True)
class LockOptions:
    """The options of `lock`. `packages` are those that `upgrade` moves; without any it moves all."""

    output: Path | None = option(
        None, "--output", "-o", help="The lock file; pylock.toml, or conda-lock.yml with --manager conda."
    )
    check: bool = option(False, help="Say whether the lock still holds; write nothing.")
    force: bool = option(False, help="Replace files that gpuenv did not write, or that were edited since.")
    upgrade: bool = option(
        False, "--upgrade", "-U", help="Newer versions of all packages, or of those named after it."
    )
    packages: list[str] = argument(list, metavar="[PKG]...", hidden=True)
    choices: Choices = group(Choices)

    @property
    def takes_stdout(self) -> bool:
        """Whether the lock is written to standard output."""
        from ..system.output_file import is_stdout

        return self.output is not None and is_stdout(self.output)


def lock(options: LockOptions, emit: Emit = drop_event) -> Lock | Plan:
    """Write the lock, or say whether it still holds. Return the plan where no build fits."""
    from . import locking

    moved = locking.upgrade_of(options.upgrade, options.packages)
    return locking.make_lock(
        emit, options.choices, check=options.check, output=options.output, upgrade=moved, force=options.force
    )
