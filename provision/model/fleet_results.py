"""Results of commands on all hosts of a fleet, as one table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

HostVerdict = Literal[
    "works", "cpu", "unproven", "wrong", "fails", "planned", "no_plan", "error", "unreachable"
]
"""The outcomes of `verify`, and those of earlier steps.

These are `planned` (a dry run), `no_plan` (no build fits the host), `error` (a command ended without a verdict) and
`unreachable`.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class HostResult:
    """The result of one host.

    `ok` says whether the command succeeded. `cause` is the reason for a failure, and `hint` its fix. `seconds` is the
    time of the host's own commands.
    """

    host: str
    verdict: HostVerdict
    ok: bool
    class_: str | None = None
    plan: str | None = None
    cause: str | None = None
    hint: str | None = None
    seconds: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class FleetResults:
    """The results of all hosts, failures first."""

    SCHEMA: ClassVar[str] = "gpuenv.fleet-results/1"

    hosts: tuple[HostResult, ...]
