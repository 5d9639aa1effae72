"""Find the fewest plans for many hosts. This package does no I/O.

`classes` groups the hosts. `kinds` finds the possible plans of each group of one platform and device. `cover` chooses the
fewest, and splits those that no set of the named packages serves. `prices` says what few plans cost. `differences` explains
why two plans are not one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..model import Fleet, FleetPlan, Plan, RequestContext, UnservedHosts
from ..model.values import Value
from .classes import count_hosts as count_hosts, group as group
from .cover import PackageCover
from .differences import Served, explain_pairs
from .kinds import (
    MOST_LOST,
    HostGroup as HostGroup,
    Packages as Packages,
    PlannedGroup,
    plan_group,
)
from .prices import prices, spread

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
    covers = spread(groups, lost, most)
    fewest = spread(groups, None) if plans != "fewest" else covers
    served = [
        Served(planned, cover, mask, request := planned.request(mask), plan_for(request))
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
            *(u for g, c in zip(groups, covers, strict=True) for u in _unserved(g, c, plan_for)),
        ),
        exact=all(c.exact for c in covers),
        at_least=sum(c.at_least for c in covers),
        prices=prices(groups, covers, lost, fewest),
    )
    return FleetAnswer(fleet, tuple(s.request for s in served))


def _unserved(planned: PlannedGroup, cover: PackageCover, plan_for: PlanFor) -> list[UnservedHosts]:
    """Return the kinds without a build, with the closest build's objections and a hint, and those without a lock."""
    left = []
    for place in planned.without(cover.groups):
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
