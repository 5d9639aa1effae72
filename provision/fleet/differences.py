"""Explain why two plans are not one, and which change of hosts would merge them."""

from __future__ import annotations

import dataclasses
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, combinations, product

from ..model import HostClass, Plan, PlanDifference, RequestContext, Target, name_few
from ..model.values import Value
from ..resolve.choice import is_planned
from ..resolve.objections import objections
from ..system.versions import version
from .classes import count_hosts, joint_target
from .cover import PackageCover
from .kinds import Fitting, Packages, PlannedGroup, joint_request

_MOST_REASONS = 2


class Served(Value, kw_only=False):
    """Kinds of a group with their joint request and plan. `cover` has all plans of the group."""

    group: PlannedGroup
    cover: PackageCover
    mask: int
    request: RequestContext
    plan: Plan

    @property
    def classes(self) -> tuple[HostClass, ...]:
        """The classes, most hosts first."""
        return self.group.classes(self.mask)


def explain_pairs(served: Sequence[Served], packages: Packages | None) -> Iterator[PlanDifference]:
    """Yield why two plans are not one, for each pair."""
    for pair in combinations(range(len(served)), 2):
        one, other = (served[place] for place in pair)
        classes: Sequence[HostClass]
        merged = None
        if one.group is not other.group:
            classes, reason = (one.classes[0], other.classes[0]), _describe_other_kind(one.plan, other.plan)
        elif conflict := _find_conflict(one, other):
            classes = [s.group.classes(s.mask & conflict)[0] for s in (one, other)]
            names = " and ".join(map(_name, classes))
            reason = f"{names} cannot share a lock: {one.cover.conflicts[conflict]}"
            merged = would_merge_packages(one.group, one.mask | other.mask, packages)
        else:
            classes = _counter_example(one, other)
            reason = _describe_builds(classes, pair, one, other)
            merged = would_merge(one.group.fitting, (*one.classes, *other.classes), one.group.shares)
        ids = tuple(c.id for c in classes)
        yield PlanDifference(plans=pair, classes=ids, reason=reason, would_merge=merged)


def _find_conflict(one: Served, other: Served) -> int | None:
    """Return the conflict of packages that keeps two plans of a group apart, where a build serves all classes of both."""
    whole = one.mask | other.mask
    conflict = next((c for c in one.cover.conflicts if whole & c == c), None)
    served = [c.target for c in one.group.classes(whole)]
    return conflict if conflict and one.group.shares(served) else None


def _describe_other_kind(plan: Plan, other: Plan) -> str:
    """Return why plans of two groups differ: in platform, device, or the targets of gpuenv.yaml."""
    if plan.platform != other.platform:
        return f"{plan.platform} and {other.platform} require different wheels"
    if plan.device != other.device:
        return f"one environment is for {plan.device}, the other for {other.device}"
    return "gpuenv.yaml sets another Python or CUDA for these targets"


def _describe_builds(classes: Sequence[HostClass], pair: Sequence[int], one: Served, other: Served) -> str:
    """Return the objections of two classes to each other's plan, and what one plan for both would have."""
    fitting, (first, second) = one.group.fitting, classes
    reasons = [
        f"{_name(host_class)} cannot use plan {place + 1}: {'; '.join(texts)}"
        for host_class, place, side in ((first, pair[1], other), (second, pair[0], one))
        if (texts := _objections(host_class, side))
    ]
    if (ages := fitting.newest([first.target, second.target])) is not None:
        shared = fitting.versions(ages).items()
        reasons.append(f"one plan for both has {' and '.join(f'{name} {v}' for name, v in shared)}")
    return "; ".join(reasons) or f"no build supports both {first.id} and {second.id}"


def _counter_example(one: Served, other: Served) -> tuple[HostClass, ...]:
    """Return two classes without a joint plan, or two that reject each other's plan."""
    pairs = sorted(product(one.classes, other.classes), key=lambda p: -len(p[0].hosts) - len(p[1].hosts))
    apart = (pair for pair in pairs if not one.group.shares([c.target for c in pair]))
    return next(apart, None) or max(
        pairs, key=lambda p: bool(_objections(p[0], other)) + bool(_objections(p[1], one))
    )


def _objections(host_class: HostClass, side: Served) -> list[str]:
    """Return objections to a plan's builds on a class: "torch 2.11.0: CUDA 13 needs driver ..."."""
    fitting, target, lines = side.group.fitting, host_class.target, []
    question = fitting.question(target).changed(target=target)  # with the class's driver, for the message
    for wanted, planned, builds in zip(
        fitting.request.frameworks, side.plan.builds, fitting.builds, strict=False
    ):
        for build in builds:
            if is_planned(build, planned):
                texts = list(dict.fromkeys(r.text for r in objections(question, wanted, build)))
                if shown := "; ".join(texts[:_MOST_REASONS]):
                    lines.append(f"{build.framework} {build.version}: {shown}")
    return lines


def _name(one: HostClass) -> str:
    return f"{one.id} ({_count([one])})"


Serves = Callable[[Sequence[Target]], bool]
"""Whether one plan serves all of some targets."""


def would_merge(
    fitting: Fitting, classes: Sequence[HostClass], serves: Serves, gain: str = "one plan fewer is needed"
) -> str | None:
    """Return the smallest change of drivers, otherwise of glibc, after which one plan serves the classes, or None."""
    for changed, text in chain(_drivers(fitting, classes, serves), _glibcs(classes)):
        if serves(changed):
            return f"{text}: {gain}"
    return None


def would_merge_packages(group: PlannedGroup, mask: int, packages: Packages | None) -> str | None:
    """Return the change of hosts that makes one plan of kinds whose packages conflict, or None."""
    classes = group.classes(mask)
    if packages is None or packages.solve(group.request(mask), classes) is None:
        return None  # a solver found the conflict, and its reasons name no property of hosts

    def serves(targets: Sequence[Target]) -> bool:
        changed = joint_request(group.base, targets, ())
        return group.shares(targets) and packages.solve(changed, classes) is None

    return would_merge(group.fitting, classes, serves)


def _drivers(
    fitting: Fitting, classes: Sequence[HostClass], serves: Serves
) -> Iterator[tuple[list[Target], str]]:
    """Yield the minimum driver for the hosts with an older one, if one helps."""
    drivers = [version(c.target.driver) for c in classes if c.target.driver]
    floors = [f for f in fitting.floors if drivers and version(f) > min(drivers)]
    free = [dataclasses.replace(c.target, driver=None, driver_cuda=None) for c in classes]
    if not floors or not serves(free):  # no driver helps
        return

    def is_older(one: HostClass, floor: str) -> bool:
        return bool(one.target.driver) and version(one.target.driver or "") < version(floor)

    def raised(floor: str) -> list[Target]:
        return [
            dataclasses.replace(c.target, driver=floor, driver_cuda=None) if is_older(c, floor) else c.target
            for c in classes
        ]

    # What one driver serves a newer one serves too, unless it drops a GPU.
    place = bisect_left(floors, True, key=lambda floor: serves(raised(floor)))
    for floor in floors[place : place + 1]:
        older = [c for c in classes if is_older(c, floor)]
        yield raised(floor), _change(older, "driver", floor)


def _glibcs(classes: Sequence[HostClass]) -> Iterator[tuple[list[Target], str]]:
    """Yield each glibc of the classes for the hosts with an older one."""
    known = {c.target.glibc for c in classes if c.target.glibc}
    for glibc in sorted(known, key=version):
        older = [c for c in classes if c.target.glibc and version(c.target.glibc) < version(glibc)]
        if not older:
            continue
        raised = [dataclasses.replace(c.target, glibc=glibc) if c in older else c.target for c in classes]
        yield raised, _change(older, "glibc", glibc)


def _change(classes: Sequence[HostClass], name: str, value: str) -> str:
    """Return an example: "driver 580.65.06 on 3 hosts (t1, node1, node2; now 525.60.13 and newer)"."""
    oldest = getattr(joint_target(c.target for c in classes), name)
    newer = " and newer" * (len({getattr(c.target, name) for c in classes}) > 1)
    hosts = name_few([host for c in classes for host in c.hosts])
    return f"{name} {value} on {_count(classes)} ({hosts}; now {oldest}{newer})"


def _count(classes: Sequence[HostClass]) -> str:
    hosts = count_hosts(classes)
    return f"{hosts:,} hosts" if hosts != 1 else "1 host"
