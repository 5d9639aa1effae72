"""The outcome of every host of a fleet, as one table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

HostVerdict = Literal[
    "works", "cpu", "unproven", "wrong", "fails", "planned", "no_plan", "error", "unreachable"
]
"""The outcomes of `verify`, and what can happen to a host before it: `planned` (a dry run built nothing), `no_plan` (no
build fits it), `error` (a command ended without a verdict), `unreachable`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class HostResult:
    """One host. `ok` says whether it has what was asked for. `cause` is what keeps it from that and `hint` what to do;
    `seconds` is what its own commands took."""

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
    """All hosts, those that are not ok first."""

    SCHEMA: ClassVar[str] = "gpuenv.fleet-results/1"

    hosts: tuple[HostResult, ...]
