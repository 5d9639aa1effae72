"""What few plans cost: the hosts that others hold back in a plan, and what one plan more or an upgrade would give them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from ..model import HeldHosts, PlanPrice, Target, VersionCount
from ..system.versions import version
from .cover import PackageCover, bits
from .differences import would_merge
from .kinds import MOST_LOST, PlannedGroup

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
    for group, cover in zip(groups, now, strict=True):
        for mask in cover.groups:
            hosts[tuple(group.versions(mask).items())] += group.hosts(mask)
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
