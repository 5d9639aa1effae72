"""Find the fewest plans for many hosts. This package does no I/O.

`classes` groups the hosts. `kinds` finds the possible plans of each group of one platform and device. `cover` chooses the
fewest, and splits those that no set of the named packages serves. This module explains the result: why two plans are not
one, and which hosts few plans hold back.
"""

from __future__ import annotations

import dataclasses
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, combinations, product

from ..model import (
    Fleet,
    FleetPlan,
    HeldHosts,
    HostClass,
    Plan,
    PlanDifference,
    PlanPrice,
    RequestContext,
    Target,
    UnservedHosts,
    VersionCount,
    name_few,
)
from ..model.values import Value
from ..resolve.choice import is_planned
from ..resolve.objections import objections
from ..system.versions import version
from .classes import count_hosts, joint_target
from .cover import PackageCover, bits
from .kinds import (
    MOST_LOST,
    HostGroup,
    Packages,
    PlannedGroup,
    PlatformBuilds,
    joint_request,
    plan_group,
)

PlanFor = Callable[[RequestContext], Plan]


class FleetAnswer(Value, kw_only=False):
    """A fleet, and the request of each plan, for which its lock is solved."""

    fleet: Fleet
    requests: tuple[RequestContext, ...]


def plan_fleet(
    parts: Sequence[HostGroup], plan_for: PlanFor, left_out: Sequence[UnservedHosts] = (),
    packages: Packages | None = None, plans: str | None = None,
) -> FleetAnswer:  # fmt: skip
    """Return the fewest plans for all classes in which none loses more than one feature release.

    `plans` chooses otherwise: "fewest", "best" (no class loses anything), or the most plans. `left_out` are hosts that
    cannot be planned. `packages` decides which classes have no common set of the named packages.
    """
    most = int(plans) if plans and plans.isdecimal() else 0
    lost = 0 if plans == "best" else None if plans else MOST_LOST
    groups = [plan_group(part, packages, lost) for part in parts]
    covers = distribute_plans(groups, lost, most)
    fewest = distribute_plans(groups, None) if plans != "fewest" else covers
    served = [
        ServedPlan(planned, cover, mask, request := planned.request(mask), plan_for(request))
        for planned, cover in zip(groups, covers, strict=True)
        for mask in cover.groups
    ]
    served.sort(key=lambda s: -count_hosts(s.classes))
    fleet = Fleet(
        classes=tuple(c for part in parts for c in part.classes),
        plans=tuple(
            FleetPlan(plan=s.plan, classes=tuple(c.id for c in s.classes), hosts=count_hosts(s.classes))
            for s in served
        ),
        apart=tuple(explain_pairs(served, packages)),
        unserved=(
            *left_out,
            *(u for g, c in zip(groups, covers, strict=True) for u in _list_unserved(g, c, plan_for)),
        ),
        exact=all(c.exact for c in covers),
        at_least=sum(c.at_least for c in covers),
        prices=list_prices(groups, covers, lost, fewest),
    )
    return FleetAnswer(fleet, tuple(s.request for s in served))


def _list_unserved(planned: PlannedGroup, cover: PackageCover, plan_for: PlanFor) -> list[UnservedHosts]:
    """Return the kinds without a build, with the closest build's objections and a hint, and those without a lock."""
    left = []
    for place in planned.list_uncovered(cover.groups):
        members = planned.classes(1 << place)
        if reason := cover.conflicts.get(1 << place):
            hint = None
        else:
            plan = plan_for(planned.request(1 << place))
            closest = min(plan.rejected, key=lambda r: len(r.reasons), default=None)
            texts = "; ".join(r.text for r in closest.reasons) if closest else "no build exists"
            name = f"{closest.framework} {closest.version}: " if closest else ""
            reason, hint = f"{name}{texts}", plan.hint
        ids = tuple(c.id for c in members)
        left.append(UnservedHosts(hosts=count_hosts(members), classes=ids, reason=reason, hint=hint))
    return left


# --- why two plans are not one --------------------------------------------------------------------

_MOST_REASONS = 2


class ServedPlan(Value, kw_only=False):
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


def explain_pairs(served: Sequence[ServedPlan], packages: Packages | None) -> Iterator[PlanDifference]:
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
            merged = find_package_merge(one.group, one.mask | other.mask, packages)
        else:
            classes = _find_counterexample(one, other)
            reason = _describe_builds(classes, pair, one, other)
            merged = find_merging_change(
                one.group.fitting, (*one.classes, *other.classes), one.group.can_share
            )
        ids = tuple(c.id for c in classes)
        yield PlanDifference(plans=pair, classes=ids, reason=reason, would_merge=merged)


def _find_conflict(one: ServedPlan, other: ServedPlan) -> int | None:
    """Return the conflict of packages that keeps two plans of a group apart, where a build serves all classes of both."""
    whole = one.mask | other.mask
    conflict = next((c for c in one.cover.conflicts if whole & c == c), None)
    served = [c.target for c in one.group.classes(whole)]
    return conflict if conflict and one.group.can_share(served) else None


def _describe_other_kind(plan: Plan, other: Plan) -> str:
    """Return why plans of two groups differ: in platform, device, or the targets of gpuenv.yaml."""
    if plan.platform != other.platform:
        return f"{plan.platform} and {other.platform} require different wheels"
    if plan.device != other.device:
        return f"one environment is for {plan.device}, the other for {other.device}"
    return "gpuenv.yaml sets another Python or CUDA for these targets"


def _describe_builds(
    classes: Sequence[HostClass], pair: Sequence[int], one: ServedPlan, other: ServedPlan
) -> str:
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


def _find_counterexample(one: ServedPlan, other: ServedPlan) -> tuple[HostClass, ...]:
    """Return two classes without a joint plan, or two that reject each other's plan."""
    pairs = sorted(product(one.classes, other.classes), key=lambda p: -len(p[0].hosts) - len(p[1].hosts))
    apart = (pair for pair in pairs if not one.group.can_share([c.target for c in pair]))
    return next(apart, None) or max(
        pairs, key=lambda p: bool(_objections(p[0], other)) + bool(_objections(p[1], one))
    )


def _objections(host_class: HostClass, side: ServedPlan) -> list[str]:
    """Return objections to a plan's builds on a class: "torch 2.11.0: CUDA 13 needs driver ..."."""
    fitting, target, lines = side.group.fitting, host_class.target, []
    question = fitting.question(target).replace(target=target)  # with the class's driver, for the message
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
    return f"{one.id} ({_format_hosts([one])})"


Serves = Callable[[Sequence[Target]], bool]
"""Whether one plan serves all of some targets."""


def find_merging_change(
    fitting: PlatformBuilds,
    classes: Sequence[HostClass],
    serves: Serves,
    gain: str = "one plan fewer is needed",
) -> str | None:
    """Return the smallest change of drivers, otherwise of glibc, after which one plan serves the classes, or None."""
    for changed, text in chain(_drivers(fitting, classes, serves), _glibcs(classes)):
        if serves(changed):
            return f"{text}: {gain}"
    return None


def find_package_merge(group: PlannedGroup, mask: int, packages: Packages | None) -> str | None:
    """Return the change of hosts that makes one plan of kinds whose packages conflict, or None."""
    classes = group.classes(mask)
    if packages is None or packages.explain_refusal(group.request(mask), classes) is None:
        return None  # a solver found the conflict, and its reasons name no property of hosts

    def serves(targets: Sequence[Target]) -> bool:
        changed = joint_request(group.base, targets, ())
        return group.can_share(targets) and packages.explain_refusal(changed, classes) is None

    return find_merging_change(group.fitting, classes, serves)


def _drivers(
    fitting: PlatformBuilds, classes: Sequence[HostClass], serves: Serves
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
        yield raised(floor), _describe_change(older, "driver", floor)


def _glibcs(classes: Sequence[HostClass]) -> Iterator[tuple[list[Target], str]]:
    """Yield each glibc of the classes for the hosts with an older one."""
    known = {c.target.glibc for c in classes if c.target.glibc}
    for glibc in sorted(known, key=version):
        older = [c for c in classes if c.target.glibc and version(c.target.glibc) < version(glibc)]
        if not older:
            continue
        raised = [dataclasses.replace(c.target, glibc=glibc) if c in older else c.target for c in classes]
        yield raised, _describe_change(older, "glibc", glibc)


def _describe_change(classes: Sequence[HostClass], name: str, value: str) -> str:
    """Return an example: "driver 580.65.06 on 3 hosts (t1, node1, node2; now 525.60.13 and newer)"."""
    oldest = getattr(joint_target(c.target for c in classes), name)
    newer = " and newer" * (len({getattr(c.target, name) for c in classes}) > 1)
    hosts = name_few([host for c in classes for host in c.hosts])
    return f"{name} {value} on {_format_hosts(classes)} ({hosts}; now {oldest}{newer})"


def _format_hosts(classes: Sequence[HostClass]) -> str:
    hosts = count_hosts(classes)
    return f"{hosts:,} hosts" if hosts != 1 else "1 host"


# --- what few plans cost -------------------------------------------------------------------------

Covers = Sequence[PackageCover]
"""The plans of each group."""


def distribute_plans(groups: Sequence[PlannedGroup], lost: int | None, plans: int = 0) -> list[PackageCover]:
    """Return the fewest plans of each group, or up to `plans` for all groups together.

    One plan more goes to the group whose largest held back kind is the largest. That kind gets its newest builds with it,
    so no other choice is better for the largest kinds.
    """
    covers = [group.cover(lost) for group in groups]
    grows = set(range(len(groups)))
    while grows and sum(len(c.groups) for c in covers) < plans:
        place = max(grows, key=lambda i: _largest_held(groups[i], covers[i]))
        more = groups[place].cover(lost, len(covers[place].groups) + 1)
        if len(more.groups) <= len(covers[place].groups):
            grows.remove(place)
        else:
            covers[place] = more
    return covers


def _largest_held(group: PlannedGroup, cover: PackageCover) -> int:
    """Return the number of hosts of the largest kind that has no plan as new as one of its own."""
    held = (
        group.weights[place]
        for mask in cover.groups
        for place in bits(mask)
        if _is_newer(group.versions(1 << place), group.versions(mask))
    )
    return max(held, default=0)


def _is_newer(one: Mapping[str, str], other: Mapping[str, str]) -> bool:
    """Return whether the first framework or package that differs is newer."""
    differ = next((name for name in one if one[name] != other.get(name, one[name])), None)
    return differ is not None and version(one[differ]) > version(other[differ])


def list_prices(
    groups: Sequence[PlannedGroup], chosen: Covers, lost: int | None, fewest: Covers
) -> tuple[PlanPrice, ...]:
    """Return the price of the chosen plans, and of the fewest and of the best where these are others."""
    packages = any(group.packages for group in groups)

    def newer(now: Covers, lost: int | None) -> Iterator[Covers]:
        """Yield the plans to compare with: one more, then those of the default, which know what packages lose."""
        yield distribute_plans(groups, lost, _count_plans(now) + 1)
        if packages and lost is None:
            yield distribute_plans(groups, MOST_LOST)

    rows = [_price(groups, chosen, newer(chosen, lost), chosen=True)]
    if _count_plans(fewest) < _count_plans(chosen):
        rows.insert(0, _price(groups, fewest, newer(fewest, None)))
    if not packages:  # with packages each number of plans is another search
        best = [group.cover(0) for group in groups]
        if _count_plans(best) > _count_plans(chosen):
            rows.append(_price(groups, best, ()))
    return tuple(rows)


def _count_plans(covers: Covers) -> int:
    return sum(len(c.groups) for c in covers)


def _price(
    groups: Sequence[PlannedGroup], now: Covers, others: Iterable[Covers], *, chosen: bool = False
) -> PlanPrice:
    """Return what plans give, and whom they hold back beside the first of the others that has newer versions."""
    hosts: Counter[tuple[tuple[str, str], ...]] = Counter()
    for planned, cover in zip(groups, now, strict=True):
        for mask in cover.groups:
            hosts[tuple(planned.versions(mask).items())] += planned.hosts(mask)
    more, held = 0, list[HeldHosts]()
    for then in others:
        pairs = zip(groups, now, then, strict=True)
        held = [
            h
            for group, cover, later in pairs
            for mask in cover.groups
            for h in _list_held_back(group, mask, later)
        ]
        if held:
            more = _count_plans(then) - _count_plans(now)
            break
    return PlanPrice(
        plans=_count_plans(now), chosen=chosen, more=more,
        versions=tuple(VersionCount(versions=dict(v), hosts=n) for v, n in hosts.most_common()),
        held=tuple(sorted(held, key=lambda h: -h.hosts)),
    )  # fmt: skip


def _list_held_back(group: PlannedGroup, mask: int, later: PackageCover) -> Iterator[HeldHosts]:
    """Yield the kinds of a plan that more plans would make newer, and the kinds that hold them back."""
    have = group.versions(mask)
    gains = {m: m & mask for m in later.groups if m & mask and _is_newer(group.versions(m), have)}
    by = mask & ~sum(gains.values())
    if gains and not by:  # each side holds the other
        by = gains.pop(min(gains, key=lambda m: group.hosts(gains[m])))
    if not gains:
        return
    at_best = sum(1 << p for p in bits(by) if not _is_newer(group.versions(1 << p), have))
    by = at_best or by
    most = max(gains, key=lambda m: group.hosts(gains[m]))
    held, newer = sum(gains.values()), group.versions(most)
    yield HeldHosts(
        by=tuple(c.id for c in group.classes(by)), by_hosts=group.hosts(by),
        classes=tuple(c.id for c in group.classes(held)), hosts=group.hosts(held),
        versions=dict(have), newer=dict(newer), upgrade=_find_upgrade(group, mask, newer),
    )  # fmt: skip


def _find_upgrade(group: PlannedGroup, mask: int, newer: Mapping[str, str]) -> str | None:
    """Return the change of drivers or glibc with which one plan has the newer versions for all, or None."""
    if group.packages:
        return None

    def serves(targets: Sequence[Target]) -> bool:
        ages = group.fitting.newest(targets)
        return ages is not None and not _is_newer(newer, group.fitting.versions(ages))

    gain = f"{' and '.join(f'{name} {v}' for name, v in newer.items())} for all of them"
    return find_merging_change(group.fitting, group.classes(mask), serves, gain)
