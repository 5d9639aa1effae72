"""Plans and locks of a fleet of hosts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from provision.model.fleet_classes import HostClass
from provision.model.plan_and_lock import Lock, Plan


@dataclass(frozen=True, kw_only=True, slots=True)
class FleetPlan:
    """One plan and the ids of its host classes, those with most hosts first. `hosts` counts their hosts.

    The plan's target has the oldest driver and glibc of the classes, and all their capabilities.
    """

    plan: Plan
    classes: tuple[str, ...]
    hosts: int


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanDifference:
    """The reason why two plans cannot be one.

    `plans` are two positions in the list of plans, and `classes` one class of each. `reason` has the objections to
    one plan for both. `would_merge` is the change of hosts that makes one plan of the two.
    """

    plans: tuple[int, ...]
    classes: tuple[str, ...]
    reason: str
    would_merge: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class UnservedHosts:
    """Hosts without a plan: classes that no build fits, or one host (`host`) whose driver cannot be used."""

    hosts: int
    reason: str
    hint: str | None = None
    classes: tuple[str, ...] = ()
    host: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Fleet:
    """The fewest plans for many hosts.

    `exact` says that fewer plans are proved to be impossible. `at_least` is the number that is proved to be
    necessary.
    """

    SCHEMA: ClassVar[str] = "gpuenv.fleet/1"

    classes: tuple[HostClass, ...]
    plans: tuple[FleetPlan, ...]
    apart: tuple[PlanDifference, ...] = ()
    unserved: tuple[UnservedHosts, ...] = ()
    exact: bool = True
    at_least: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class FleetLock:
    """The lock of one plan of a fleet, and its file."""

    file: str
    plan: int
    lock: Lock


@dataclass(frozen=True, kw_only=True, slots=True)
class FleetLocks:
    """The locks of a fleet, one for each plan."""

    SCHEMA: ClassVar[str] = "gpuenv.fleet-locks/1"

    fleet: Fleet
    locks: tuple[FleetLock, ...]
