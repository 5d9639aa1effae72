"""Checks of a project's own: what they ask for, and how they ended."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import Literal

from provision.model.shared_words import Status

CheckKind = Literal["import", "run", "compile"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Check:
    """A module to import, a command to run, or a built-in check. `subject` is the module, the command line (which no
    shell reads), or the framework of `compile`. `timeout` is in seconds."""

    kind: CheckKind
    subject: str
    name: str | None = None
    timeout: float | None = None

    @property
    def label(self) -> str:
        """What people call the check: its name, or what it does."""
        return self.name or (self.subject if self.kind == "run" else f"{self.kind} {self.subject}")

    @property
    def command(self) -> tuple[str, ...]:
        """The words of a command line."""
        return tuple(shlex.split(self.subject))


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckResult:
    """How a check ended. `returncode` is None where the program did not start. `output` are the last lines that it
    printed."""

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
