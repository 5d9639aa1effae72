"""Find the fewest plans for many hosts. This package does no I/O.

`host_classes` groups the hosts. `plan_candidates` finds the possible plans of each group of one platform and
device. `minimum_cover` chooses the fewest. `plan_differences` explains why two plans are not one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from itertools import combinations

from ..model import Fleet, FleetPlan, HostClass, Plan, PlanDifference, RequestContext, UnservedHosts
from .host_classes import group as group, joint_target
from .minimum_cover import Cover, bits, fewest
from .plan_candidates import Fitting, candidate_plans
from .plan_differences import Side, explain

PlanFor = Callable[[RequestContext], Plan]


@dataclass(frozen=True)
class HostGroup:
    """Host classes of one platform and device, and their request. The request's target is not used."""

    request: RequestContext
    classes: tuple[HostClass, ...]


@dataclass(frozen=True)
class Served:
    """Host classes with their joint request and plan."""

    request: RequestContext
    classes: tuple[HostClass, ...]
    plan: Plan


@dataclass(frozen=True)
class FleetAnswer:
    """A fleet, and the request of each of its plans, for which its lock is solved."""

    fleet: Fleet
    requests: tuple[RequestContext, ...]


def plan_fleet(
    parts: Sequence[HostGroup], plan_for: PlanFor, left_out: Sequence[UnservedHosts] = ()
) -> FleetAnswer:
    """Return the fewest plans for all classes. `left_out` are hosts that cannot be planned for."""
    served: list[Served] = []
    unserved, covers, fittings = list(left_out), [], []
    for part in parts:
        part, fitting, cover, groups = _covered(part)  # noqa: PLW2901  # with another Python if none fits
        covers.append(cover)
        for classes in groups:
            request = _request_for(fitting, part.request, classes)
            served.append(Served(request, classes, plan_for(request)))
            fittings.append(fitting)
        planned = {c.id for classes in groups for c in classes}
        unserved += _without(part, fitting, [c for c in part.classes if c.id not in planned], plan_for)
    order = sorted(range(len(served)), key=lambda i: -_hosts(served[i].classes))
    served, fittings = [served[i] for i in order], [fittings[i] for i in order]
    fleet = Fleet(
        classes=tuple(c for part in parts for c in part.classes),
        plans=tuple(
            FleetPlan(plan=s.plan, classes=tuple(c.id for c in s.classes), hosts=_hosts(s.classes))
            for s in served
        ),
        apart=tuple(_apart(served, fittings)),
        unserved=tuple(unserved),
        exact=all(c.exact for c in covers),
        at_least=sum(c.at_least for c in covers),
    )
    return FleetAnswer(fleet, tuple(s.request for s in served))


def _request_for(fitting: Fitting, request: RequestContext, classes: Sequence[HostClass]) -> RequestContext:
    """Return the joint request for classes. Of targets that are alike for all builds, one counts."""
    target = joint_target(c.target for c in classes)
    alike = {fitting.alike(c.target): c.target for c in reversed(classes)}
    return dataclasses.replace(request, target=target, targets=tuple(reversed(alike.values())))


def _covered(part: HostGroup) -> tuple[HostGroup, Fitting, Cover, list[tuple[HostClass, ...]]]:
    """Return the cover of a part.

    If classes have no plan with the installed Pythons, any Python is tried as well.
    """
    fitting, cover, groups = _cover(part)
    request = part.request
    left = len(part.classes) - sum(map(len, groups))
    if left and request.pythons_known and not request.sources.offline:
        anywhere = dataclasses.replace(request, request=dataclasses.replace(request.request, pythons=()))
        wider = dataclasses.replace(part, request=anywhere)
        again = _cover(wider)
        if left > len(part.classes) - sum(map(len, again[2])):
            return (wider, *again)
    return part, fitting, cover, groups


def _cover(part: HostGroup) -> tuple[Fitting, Cover, list[tuple[HostClass, ...]]]:
    fitting = Fitting(part.request.request, part.request.profiles, part.request.supply)
    plans = candidate_plans(fitting, [c.target for c in part.classes])
    cover = fewest(plans, [len(c.hosts) for c in part.classes])
    groups, left = [], -1
    for candidate in cover.chosen:  # newest first: a class gets the newest plan that serves it
        new = bits(candidate.mask & left)
        left &= ~candidate.mask
        if new:
            groups.append(tuple(sorted((part.classes[i] for i in new), key=lambda c: -len(c.hosts))))
    return fitting, cover, groups


def _without(
    part: HostGroup, fitting: Fitting, classes: Sequence[HostClass], plan_for: PlanFor
) -> list[UnservedHosts]:
    """Return the classes without a build, with the closest build's objections and a hint."""
    unserved = []
    alike: dict[Hashable, list[HostClass]] = {}
    for one in classes:
        alike.setdefault(fitting.alike(one.target), []).append(one)
    for members in alike.values():
        plan = plan_for(_request_for(fitting, part.request, members[:1]))
        closest = min(plan.rejected, key=lambda r: len(r.reasons), default=None)
        texts = "; ".join(r.text for r in closest.reasons) if closest else "no build exists"
        name = f"{closest.framework} {closest.version}: " if closest else ""
        unserved.append(
            UnservedHosts(
                hosts=_hosts(members),
                classes=tuple(c.id for c in members),
                reason=f"{name}{texts}",
                hint=plan.hint,
            )
        )
    return unserved


def _apart(served: Sequence[Served], fittings: Sequence[Fitting]) -> list[PlanDifference]:
    sides = [
        Side(i, s.classes, tuple((b.framework, b.version, b.cuda, b.index) for b in s.plan.builds))
        for i, s in enumerate(served)
    ]
    return [
        explain(fittings[a], sides[a], sides[b])
        if fittings[a] is fittings[b]
        else _of_two_kinds(sides[a], sides[b], served[a].plan, served[b].plan)
        for a, b in combinations(range(len(sides)), 2)
    ]


def _of_two_kinds(one: Side, other: Side, plan: Plan, others: Plan) -> PlanDifference:
    """Explain plans that differ in platform, device, or the targets of gpuenv.yaml."""
    if plan.platform != others.platform:
        reason = f"{plan.platform} and {others.platform} require different wheels"
    elif plan.device != others.device:
        reason = f"one environment is for {plan.device}, the other for {others.device}"
    else:
        reason = "gpuenv.yaml sets another Python or CUDA for these targets"
    ids = (one.classes[0].id, other.classes[0].id)
    return PlanDifference(plans=(one.position, other.position), classes=ids, reason=reason)


def _hosts(classes: Sequence[HostClass]) -> int:
    return sum(len(c.hosts) for c in classes)
