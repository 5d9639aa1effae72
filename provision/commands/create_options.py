"""Declare the options of `create`."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path

from ..config.options import Choices
from ..model.declare import BUILD, SOURCES, argument, group, option


@dataclass(frozen=True, kw_only=True)
class CreateOptions:
    """The options of `create`. A `brief` result has no lock if everything is up to date."""

    env: Path | None = argument(
        None, help="Path of the environment.  [default: .venv]", complete="environments"
    )
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
    verify: bool | None = option(
        None,
        "--verify/--no-verify",
        help="Always verify, or never. By default gpuenv verifies what changed.",
        panel=BUILD,
    )
    checks: bool = option(
        True, "--checks/--no-checks", help="Run the checks of gpuenv.yaml, or not.", panel=BUILD
    )
    dry_run: bool = option(False, help="Show what would be done, without changes.", panel=BUILD)
    kernel: bool = option(False, help="Add a Jupyter kernel for the environment.", panel=BUILD)
    brief: bool = False

    @property
    def takes_lock(self) -> bool:
        """Whether a lock decides what is installed."""
        return bool(self.locked or self.frozen or self.lock or self.bundle)

    @property
    def is_plain(self) -> bool:
        """Whether an up-to-date environment can satisfy the command without further work."""
        changes = (
            self.recreate
            or self.adopt
            or self.verify is not None
            or self.dry_run
            or self.kernel
            or not self.checks
        )
        return not (self.takes_lock or changes)

    def compared(self, choices: Choices) -> Choices:
        """Return the options that a lock must match. With --frozen only the options of the machine count."""
        return dataclasses.replace(choices, framework=[]) if self.frozen else choices
