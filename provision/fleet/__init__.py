"""fleet: the fewest plans for many hosts. Pure: no I/O, no machine.

Hosts become classes (`classes.py`), classes of one platform and device are served by candidate plans
(`candidates.py`), of which the fewest are chosen (`cover.py`). `apart.py` says what keeps two plans apart.
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
class Part:
    """Classes of one platform and device, with what is asked for on them (its target is that of none of them)."""

    asked: RequestContext
    classes: tuple[HostClass, ...]


@dataclass(frozen=True)
class Served:
    """A plan for some classes: what is asked for on all of them together, and the answer."""

    asked: RequestContext
    classes: tuple[HostClass, ...]
    plan: Plan


@dataclass(frozen=True)
class Answer:
    """A fleet, and for each of its plans the question, which a lock is solved for."""

    fleet: Fleet
    asked: tuple[RequestContext, ...]


def plan_fleet(parts: Sequence[Part], plan_for: PlanFor, left_out: Sequence[UnservedHosts] = ()) -> Answer:
    """Return the fewest plans for all classes. `left_out` are hosts that were read and cannot be planned for."""
    served: list[Served] = []
    unserved, covers, fittings = list(left_out), [], []
    for part in parts:
        part, fitting, cover, groups = _covered(part)  # noqa: PLW2901  # with another Python where none fits
        covers.append(cover)
        for classes in groups:
            asked = _asked_for(fitting, part.asked, classes)
            served.append(Served(asked, classes, plan_for(asked)))
            fittings.append(fitting)
        held = {c.id for classes in groups for c in classes}
        unserved += _without(part, fitting, [c for c in part.classes if c.id not in held], plan_for)
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
    return Answer(fleet, tuple(s.asked for s in served))


def _asked_for(fitting: Fitting, asked: RequestContext, classes: Sequence[HostClass]) -> RequestContext:
    """What is asked for on all targets of some classes together; of targets that no build tells apart on one."""
    target = joint_target(c.target for c in classes)
    alike = {fitting.alike(c.target): c.target for c in reversed(classes)}
    return dataclasses.replace(asked, target=target, targets=tuple(reversed(alike.values())))


def _covered(part: Part) -> tuple[Part, Fitting, Cover, list[tuple[HostClass, ...]]]:
    """The cover of a part. Where the Pythons at hand leave classes without a plan, any Python is tried as well."""
    fitting, cover, groups = _cover(part)
    asked = part.asked
    left = len(part.classes) - sum(map(len, groups))
    if left and asked.pythons_known and not asked.sources.offline:
        anywhere = dataclasses.replace(asked, request=dataclasses.replace(asked.request, pythons=()))
        wider = dataclasses.replace(part, asked=anywhere)
        again = _cover(wider)
        if left > len(part.classes) - sum(map(len, again[2])):
            return (wider, *again)
    return part, fitting, cover, groups


def _cover(part: Part) -> tuple[Fitting, Cover, list[tuple[HostClass, ...]]]:
    fitting = Fitting(part.asked.request, part.asked.profiles, part.asked.supply)
    plans = candidate_plans(fitting, [c.target for c in part.classes])
    cover = fewest(plans, [len(c.hosts) for c in part.classes])
    groups, left = [], -1
    for candidate in cover.chosen:  # newest first: a class gets the newest plan that serves it
        own = bits(candidate.mask & left)
        left &= ~candidate.mask
        if own:
            groups.append(tuple(sorted((part.classes[i] for i in own), key=lambda c: -len(c.hosts))))
    return fitting, cover, groups


def _without(
    part: Part, fitting: Fitting, classes: Sequence[HostClass], plan_for: PlanFor
) -> list[UnservedHosts]:
    """The classes that no build fits, those alike together, with the objections to the build that came closest and
    what would help."""
    found = []
    alike: dict[Hashable, list[HostClass]] = {}
    for one in classes:
        alike.setdefault(fitting.alike(one.target), []).append(one)
    for members in alike.values():
        plan = plan_for(_asked_for(fitting, part.asked, members[:1]))
        closest = min(plan.rejected, key=lambda r: len(r.reasons), default=None)
        texts = "; ".join(r.text for r in closest.reasons) if closest else "no build is known"
        name = f"{closest.framework} {closest.version}: " if closest else ""
        found.append(
            UnservedHosts(
                hosts=_hosts(members),
                classes=tuple(c.id for c in members),
                reason=f"{name}{texts}",
                hint=plan.hint,
            )
        )
    return found


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
    """Plans that differ before any build is compared: in platform, device, or a choice of gpuenv.yaml's targets."""
    if plan.platform != others.platform:
        reason = f"{plan.platform} and {others.platform} have wheels of their own"
    elif plan.device != others.device:
        reason = f"one environment is for {plan.device}, the other for {others.device}"
    else:
        reason = "gpuenv.yaml asks for another Python or CUDA for these targets"
    ids = (one.classes[0].id, other.classes[0].id)
    return PlanDifference(plans=(one.position, other.position), classes=ids, reason=reason)


def _hosts(classes: Sequence[HostClass]) -> int:
    return sum(len(c.hosts) for c in classes)
