"""Checks of a project (`checks:` in gpuenv.yaml), and their results."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import Literal

from provision.model.shared_words import Status

CheckKind = Literal["import", "run", "compile"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Check:
    """A module to import, a command to run, or a built-in check.

    `subject` is the module, the command line (run without a shell), or the framework of `compile`. `timeout` is in
    seconds.
    """

    kind: CheckKind
    subject: str
    name: str | None = None
    timeout: float | None = None

    @property
    def label(self) -> str:
        """Return the name of the check, or a description of it."""
        return self.name or (self.subject if self.kind == "run" else f"{self.kind} {self.subject}")

    @property
    def command(self) -> tuple[str, ...]:
        """Return the words of the command line."""
        return tuple(shlex.split(self.subject))


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckResult:
    """The result of a check.

    `returncode` is None if the program did not start. `output` are the last lines that it printed.
    """

    label: str
    kind: CheckKind
    subject: str
    status: Status
    detail: str
    returncode: int | None = None
    signal: str | None = None
    timed_out: bool = False
    seconds: float | None = None
    output: tuple[str, ...] = ()
