"""A fleet: the fewest plans that serve its classes of hosts, what keeps two plans apart, and their locks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from provision.model.fleet_classes import HostClass
from provision.model.plan_and_lock import Lock, Plan


@dataclass(frozen=True, kw_only=True, slots=True)
class FleetPlan:
    """One plan and the ids of the classes that get it, most hosts first. `hosts` counts their hosts. The plan's target
    has the oldest driver and glibc of the classes and all their capabilities."""

    plan: Plan
    classes: tuple[str, ...]
    hosts: int


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanDifference:
    """Why two plans are not one. `plans` are two positions in the list of plans, `classes` one class of each, `reason`
    the objections to giving both one plan, `would_merge` the change of hosts that makes one plan of the two."""

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
    """The fewest plans for many hosts. `exact` says that fewer plans are proved impossible, `at_least` is the number
    that is proved to be needed."""

    SCHEMA: ClassVar[str] = "gpuenv.fleet/1"

    classes: tuple[HostClass, ...]
    plans: tuple[FleetPlan, ...]
    apart: tuple[PlanDifference, ...] = ()
    unserved: tuple[UnservedHosts, ...] = ()
    exact: bool = True
    at_least: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class FleetLock:
    """The lock of one plan of a fleet, and the file that has it."""

    file: str
    plan: int
    lock: Lock


@dataclass(frozen=True, kw_only=True, slots=True)
class FleetLocks:
    """The locks of a fleet, one for each plan."""

    SCHEMA: ClassVar[str] = "gpuenv.fleet-locks/1"

    fleet: Fleet
    locks: tuple[FleetLock, ...]
