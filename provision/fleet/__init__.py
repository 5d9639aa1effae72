"""Find the fewest plans for many hosts. This package does no I/O.

`classes` groups the hosts. `kinds` finds the possible plans of each group of one platform and device. `cover` chooses the
fewest, and splits those that no set of the named packages serves. `differences` explains
why two plans are not one. The prices say whom few plans hold back, and what one plan more or an upgrade would give.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from ..model import (
    Fleet,
    FleetPlan,
    HeldHosts,
    Plan,
    PlanPrice,
    RequestContext,
    Target,
    UnservedHosts,
    VersionCount,
)
from ..model.values import Value
from ..system.versions import version
from .classes import count_hosts as count_hosts, group as group
from .cover import PackageCover, bits
from .differences import Served, explain_pairs, would_merge
from .kinds import (
    MOST_LOST,
    HostGroup as HostGroup,
    Packages as Packages,
    PlannedGroup,
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


# --- what few plans cost -------------------------------------------------------------------------

Covers = Sequence[PackageCover]
"""The plans of each group."""


def spread(groups: Sequence[PlannedGroup], lost: int | None, plans: int = 0) -> list[PackageCover]:
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


def prices(
    groups: Sequence[PlannedGroup], chosen: Covers, lost: int | None, fewest: Covers
) -> tuple[PlanPrice, ...]:
    """Return the price of the chosen plans, and of the fewest and of the best where these are others."""
    packages = any(group.packages for group in groups)

    def newer(now: Covers, lost: int | None) -> Iterator[Covers]:
        """Yield the plans to compare with: one more, then those of the default, which know what packages lose."""
        yield spread(groups, lost, _count(now) + 1)
        if packages and lost is None:
            yield spread(groups, MOST_LOST)

    rows = [_price(groups, chosen, newer(chosen, lost), chosen=True)]
    if _count(fewest) < _count(chosen):
        rows.insert(0, _price(groups, fewest, newer(fewest, None)))
    if not packages:  # with packages each number of plans is another search
        best = [group.cover(0) for group in groups]
        if _count(best) > _count(chosen):
            rows.append(_price(groups, best, ()))
    return tuple(rows)


def _count(covers: Covers) -> int:
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
            h for group, cover, later in pairs for mask in cover.groups for h in _held(group, mask, later)
        ]
        if held:
            more = _count(then) - _count(now)
            break
    return PlanPrice(
        plans=_count(now), chosen=chosen, more=more,
        versions=tuple(VersionCount(versions=dict(v), hosts=n) for v, n in hosts.most_common()),
        held=tuple(sorted(held, key=lambda h: -h.hosts)),
    )  # fmt: skip


def _held(group: PlannedGroup, mask: int, later: PackageCover) -> Iterator[HeldHosts]:
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
        versions=dict(have), newer=dict(newer), upgrade=_upgrade(group, mask, newer),
    )  # fmt: skip


def _upgrade(group: PlannedGroup, mask: int, newer: Mapping[str, str]) -> str | None:
    """Return the change of drivers or glibc with which one plan has the newer versions for all, or None."""
    if group.packages:
        return None

    def serves(targets: Sequence[Target]) -> bool:
        ages = group.fitting.newest(targets)
        return ages is not None and not _is_newer(newer, group.fitting.versions(ages))

    gain = f"{' and '.join(f'{name} {v}' for name, v in newer.items())} for all of them"
    return would_merge(group.fitting, group.classes(mask), serves, gain)
