"""Find the fewest plans that serve all classes, the newest among equals.

A candidate is a possible plan: a bit mask of the classes that it serves, and its age (0 is the newest). The
objective, in this order:

    1. as few plans as possible;
    2. the plan of the class with the most hosts is as new as possible, then that of the next class, and so on.

Classes with the same candidates count as one. For up to EXACT_CLASSES classes the answer is exact. A
depth-first search branches on the class with the fewest candidates. Each time it fails, one more plan is
allowed. For more classes a greedy choice takes the candidate that serves the most remaining classes. It needs
at most 1 + ln(d) times the fewest plans, where d is the number of classes of one candidate (Chvatal 1979).
Classes without a common candidate need a plan each, so their number is the lower bound. If both are equal,
the greedy answer is exact too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

EXACT_CLASSES = 40


class PlanCandidate(NamedTuple):
    """A possible plan: the classes that it serves as bits, and the number of newer plans."""

    mask: int
    age: int


class Cover(NamedTuple):
    """The chosen candidates, newest first. `at_least` is the proved minimum number of plans."""

    chosen: tuple[PlanCandidate, ...]
    exact: bool
    at_least: int


def fewest(candidates: Iterable[PlanCandidate], weights: Sequence[int]) -> Cover:
    """Return the fewest candidates that serve every class that any of them serves. `weights` are the hosts of each
    class."""
    best = _newest_of_each(candidates)
    everything = 0
    for candidate in best:
        everything |= candidate.mask
    if not everything:
        return Cover((), exact=True, at_least=0)
    columns = _columns(best, everything, weights)
    small = [PlanCandidate(_renumbered(c.mask, columns), c.age) for c in best]
    whole = (1 << len(columns)) - 1
    at_least = len(_pairwise_apart(small, len(columns)))
    if len(columns) > EXACT_CLASSES:
        cover = _greedy(small, whole)
        exact = len(cover) == at_least
    else:
        cover, exact = _exact(small, len(columns), at_least), True
    back = {(new.mask, new.age): old for new, old in zip(small, best, strict=True)}
    chosen = sorted((back[c] for c in cover), key=lambda c: (c.age, -c.mask.bit_count(), c.mask))
    return Cover(tuple(chosen), exact, len(chosen) if exact else at_least)


def bits(mask: int) -> list[int]:
    """Return the positions of the bits that are set."""
    places = []
    while mask:
        low = mask & -mask
        places.append(low.bit_length() - 1)
        mask ^= low
    return places


def _newest_of_each(candidates: Iterable[PlanCandidate]) -> list[PlanCandidate]:
    """Return the newest candidate of each mask."""
    ages: dict[int, int] = {}
    for mask, age in candidates:
        ages[mask] = min(age, ages.get(mask, age))
    return [PlanCandidate(mask, age) for mask, age in sorted(ages.items()) if mask]


def _columns(candidates: Sequence[PlanCandidate], everything: int, weights: Sequence[int]) -> list[int]:
    """Return one class for each set of classes with the same candidates, most hosts first."""
    hosts: dict[tuple[int, ...], int] = {}
    first: dict[tuple[int, ...], int] = {}
    for place in bits(everything):
        key = tuple(i for i, c in enumerate(candidates) if c.mask >> place & 1)
        hosts[key] = hosts.get(key, 0) + weights[place]
        first.setdefault(key, place)
    return [first[key] for key in sorted(hosts, key=lambda k: (-hosts[k], first[k]))]


def _renumbered(mask: int, columns: Sequence[int]) -> int:
    return sum(1 << new for new, old in enumerate(columns) if mask >> old & 1)


def _pairwise_apart(candidates: Sequence[PlanCandidate], count: int) -> list[int]:
    """Return classes of which no two share a candidate, chosen greedily by fewest neighbours."""
    near = [0] * count
    for candidate in candidates:
        for place in bits(candidate.mask):
            near[place] |= candidate.mask
    apart: list[int] = []
    left = (1 << count) - 1
    for place in sorted(range(count), key=lambda p: (near[p].bit_count(), p)):
        if left >> place & 1:
            apart.append(place)
            left &= ~near[place]
    return apart


def _greedy(candidates: Sequence[PlanCandidate], whole: int) -> list[PlanCandidate]:
    """Choose the candidate that serves the most remaining classes, then remove redundant ones."""
    chosen: list[PlanCandidate] = []
    left = whole
    while left:
        best = max(candidates, key=lambda c: ((c.mask & left).bit_count(), -c.age))
        chosen.append(best)
        left &= ~best.mask
    for one in sorted(chosen, key=lambda c: -c.age):
        others = 0
        for other in chosen:
            others |= other.mask if other is not one else 0
        if others == whole:
            chosen.remove(one)
    return chosen


def _exact(candidates: Sequence[PlanCandidate], count: int, at_least: int) -> list[PlanCandidate]:
    """Return the best cover by the objective. Classes are numbered by their hosts, most first."""
    limits = [max(c.age for c in candidates)] * count
    most = at_least
    while (chosen := _within(candidates, limits, most)) is None:
        most += 1
    for place in range(count):
        ages = sorted({c.age for c in candidates if c.mask >> place & 1 and c.age <= limits[place]})
        low, high = 0, len(ages) - 1  # the oldest of them suffices
        while low < high:
            middle = (low + high) // 2
            tried = [*limits[:place], ages[middle], *limits[place + 1 :]]
            if (other := _within(candidates, tried, most)) is None:
                low = middle + 1
            else:
                chosen, high = other, middle
        limits[place] = ages[high]
    return chosen


def _within(
    candidates: Sequence[PlanCandidate], limits: Sequence[int], most: int
) -> list[PlanCandidate] | None:
    """Return at most `most` candidates that serve each class within its age limit, or None."""
    usable: dict[int, PlanCandidate] = {}
    for candidate in sorted(candidates, key=lambda c: c.age):
        mask = sum(1 << p for p in bits(candidate.mask) if candidate.age <= limits[p])
        if mask:
            usable.setdefault(mask, candidate)
    masks = [m for m in usable if not any(m != other and m & other == m for other in usable)]
    serving = [[m for m in masks if m >> place & 1] for place in range(len(limits))]
    chosen = _search(serving, (1 << len(limits)) - 1, most, set())
    return None if chosen is None else [usable[m] for m in chosen]


def _search(
    serving: Sequence[Sequence[int]], left: int, most: int, failed: set[tuple[int, int]]
) -> list[int] | None:
    """Search depth-first, by the class with the fewest masks. `failed` are states without a result."""
    if not left:
        return []
    if most == 0 or (left, most) in failed:
        return None
    place = min(bits(left), key=lambda p: len(serving[p]))
    for mask in sorted(serving[place], key=lambda m: -(m & left).bit_count()):
        if most == 1 and left & ~mask:
            continue
        if (rest := _search(serving, left & ~mask, most - 1, failed)) is not None:
            return [mask, *rest]
    failed.add((left, most))
    return None
