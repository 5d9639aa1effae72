"""Choose the fewest plans that serve all kinds of hosts, exactly, also where named packages separate them.

A set of kinds conflicts if no lock with the packages serves all of its kinds. Kinds are classes of hosts that builds and
packages cannot tell apart. A set without a conflict has no subset with one.

Asking whether a set conflicts takes a search of releases or a solve. So only the chosen plans are asked for. A chosen plan
with a conflict is reduced to a smallest set that still conflicts. No plan may contain that set, and the fewest plans are
chosen again. The answer is exact, because each known conflict binds every other answer too. After MOST_QUESTIONS of one sort the
plans that still conflict are split into their kinds, and the answer is not called exact.

Questions come in sorts, the cheapest first: a search of releases, then a solve. A set is asked for by the next sort only
where the ones before have no objection, and a conflict is reduced with the sort that found it.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from ..system.search import find_smallest

EXACT_CLASSES = 40


class PlanCandidate(NamedTuple):
    """A possible plan: the classes that it serves as bits, and its age: for each framework the number of newer versions."""

    mask: int
    age: tuple[int, ...]


class Cover(NamedTuple):
    """The chosen candidates, newest first. `at_least` is the proved minimum number of plans."""

    chosen: tuple[PlanCandidate, ...]
    exact: bool
    at_least: int


def find_cover(candidates: Iterable[PlanCandidate], weights: Sequence[int], most: int = 0) -> Cover:
    """Return the fewest candidates that serve every class that any of them serves. `weights` are the hosts of each
    class.

    Up to `most` are chosen where more make a class newer. `at_least` is still the fewest.
    """
    best = _keep_newest(candidates)
    everything = join(c.mask for c in best)
    if not everything:
        return Cover((), exact=True, at_least=0)
    columns = _columns(best, everything, weights)
    small = [
        PlanCandidate(sum(1 << new for new, old in enumerate(columns) if c.mask >> old & 1), c.age)
        for c in best
    ]
    whole = (1 << len(columns)) - 1
    at_least = len(_find_independent(small, len(columns)))
    if len(columns) > EXACT_CLASSES:
        cover = _greedy(small, whole)
        exact = len(cover) == at_least
        cover = _add_newest(small, cover, len(columns), most)
    else:
        cover, at_least = _find_exact(small, len(columns), at_least, most)
        exact = True
    back = {(new.mask, new.age): old for new, old in zip(small, best, strict=True)}
    chosen = sorted((back[c] for c in cover), key=lambda c: (c.age, -c.mask.bit_count(), c.mask))
    return Cover(tuple(chosen), exact, at_least)


def join(masks: Iterable[int]) -> int:
    """Return the union of sets."""
    return functools.reduce(operator.or_, masks, 0)


def bits(mask: int) -> list[int]:
    """Return the positions of the bits that are set."""
    places = []
    while mask:
        low = mask & -mask
        places.append(low.bit_length() - 1)
        mask ^= low
    return places


def _keep_newest(candidates: Iterable[PlanCandidate]) -> list[PlanCandidate]:
    """Return the newest candidate of each mask."""
    ages: dict[int, tuple[int, ...]] = {}
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


def _find_independent(candidates: Sequence[PlanCandidate], count: int) -> list[int]:
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
        best = min(candidates, key=lambda c: (-(c.mask & left).bit_count(), c.age))
        chosen.append(best)
        left &= ~best.mask
    for one in sorted(chosen, key=lambda c: c.age, reverse=True):
        if join(other.mask for other in chosen if other is not one) == whole:
            chosen.remove(one)
    return chosen


def _add_newest(
    candidates: Sequence[PlanCandidate], cover: list[PlanCandidate], count: int, most: int
) -> list[PlanCandidate]:
    """Return the cover with the newest candidate of each class without it, the class with most hosts first."""
    for place in range(count):
        newest = min((c for c in candidates if c.mask >> place & 1), key=lambda c: c.age)
        if len(cover) < most and newest.age < min(c.age for c in cover if c.mask >> place & 1):
            cover = [*cover, newest]
    return cover


def _find_exact(
    candidates: Sequence[PlanCandidate], count: int, at_least: int, most: int
) -> tuple[list[PlanCandidate], int]:
    """Return the best cover by the objective, and the fewest candidates of any cover.

    Classes are numbered by their hosts, most first.
    """
    limits = [max(c.age for c in candidates)] * count
    while (chosen := _cover_within_limits(candidates, limits, at_least)) is None:
        at_least += 1
    most = max(most, at_least)
    for place in range(count):
        ages = sorted({c.age for c in candidates if c.mask >> place & 1 and c.age <= limits[place]})
        low, high = 0, len(ages) - 1  # the oldest of them suffices
        while low < high:
            middle = (low + high) // 2
            tried = [*limits[:place], ages[middle], *limits[place + 1 :]]
            if (other := _cover_within_limits(candidates, tried, most)) is None:
                low = middle + 1
            else:
                chosen, high = other, middle
        limits[place] = ages[high]
    for fewer in range(at_least, len(chosen)):
        if (other := _cover_within_limits(candidates, limits, fewer)) is not None:
            return other, at_least
    return chosen, at_least


def _cover_within_limits(
    candidates: Sequence[PlanCandidate], limits: Sequence[tuple[int, ...]], most: int
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


ObjectTo = Callable[[int], "str | None"]
"""Returns why no lock serves a set of kinds, given as bits, or None."""

MOST_QUESTIONS = 40
_MOST_CANDIDATES = 4000


class PackageCover(NamedTuple):
    """The fewest plans, and the conflicts between kinds.

    `groups` are the kinds of each plan as bits, newest plan first. `conflicts` are the smallest conflicting
    sets with the reasons.
    """

    groups: tuple[int, ...]
    exact: bool
    at_least: int
    conflicts: Mapping[int, str]


class _TooManyQuestionsError(Exception):
    """The questions are used up."""


class _ConflictSearch:
    """The known answers on sets. A question is asked once, and not if another answer implies its answer."""

    def __init__(self, object_to: ObjectTo) -> None:
        self._object_to = object_to
        self._good: list[int] = []
        self.bad: dict[int, str] = {}
        self.questions = 0

    def objection(self, mask: int) -> str | None:
        """Return why a set conflicts, or None. Raises _TooManyQuestionsError."""
        if self.is_good(mask):
            return None
        if self.questions >= MOST_QUESTIONS:
            raise _TooManyQuestionsError
        self.questions += 1
        why = self._object_to(mask)
        if why is None:
            self._good.append(mask)
        else:
            self.bad[mask] = why
        return why

    def is_good(self, mask: int) -> bool:
        """Return whether a set is known to have no conflict."""
        return any(mask & good == mask for good in self._good)

    def reduce(self, mask: int) -> int:
        """Return a smallest set in a set that conflicts."""
        return _make_mask(
            find_smallest(bits(mask), lambda places: self.objection(_make_mask(places)) is not None)
        )


def cover_with_packages(
    candidates: Iterable[PlanCandidate], weights: Sequence[int], sorts: Sequence[ObjectTo],
    plans: int = 0,
) -> PackageCover:  # fmt: skip
    """Return the fewest plans of which none contains a conflict, or up to `plans` where more make a kind newer.

    Kinds that conflict alone are in no plan.
    """
    possible = list(candidates)
    cover = find_cover(possible, weights, plans)
    groups = assign(cover)
    answers, conflicts = [_ConflictSearch(object_to) for object_to in sorts], dict[int, str]()
    exact = True
    try:
        while new_conflicts := _find_conflicts(groups, answers):
            conflicts |= new_conflicts
            possible = split_conflicts(possible, new_conflicts)
            cover = find_cover(possible, weights, plans)
            groups = assign(cover)
    except _TooManyQuestionsError:
        parts = [[g] if all(a.is_good(g) for a in answers) else [1 << p for p in bits(g)] for g in groups]
        groups = tuple(m for part in parts for m in part if not any(m in a.bad for a in answers))
        exact = len(groups) == cover.at_least
    return PackageCover(groups, exact and cover.exact, cover.at_least, conflicts)


def assign(cover: Cover) -> tuple[int, ...]:
    """Return the kinds of each chosen plan. A kind gets the newest plan that serves it."""
    groups, left = [], -1
    for candidate in cover.chosen:  # newest first
        if new := candidate.mask & left:
            groups.append(new)
        left &= ~candidate.mask
    return tuple(groups)


def split_conflicts(candidates: Iterable[PlanCandidate], conflicts: Iterable[int]) -> list[PlanCandidate]:
    """Return the candidates without conflicts.

    Each candidate with a conflict is replaced by several, each without one kind of the conflict. Raises
    _TooManyQuestionsError if there are too many.
    """
    left = {(c.mask, c.age) for c in candidates}
    for conflict in conflicts:
        hit = {c for c in left if c[0] & conflict == conflict}
        left = (left - hit) | {(mask & ~(1 << place), age) for mask, age in hit for place in bits(conflict)}
        if len(left) > _MOST_CANDIDATES:
            raise _TooManyQuestionsError
    return [PlanCandidate(mask, age) for mask, age in sorted(left) if mask]


def _find_conflicts(groups: Iterable[int], sorts: Iterable[_ConflictSearch]) -> dict[int, str]:
    """Return a smallest conflict of each group that has one, of the first sort that finds any."""
    conflicts: dict[int, str] = {}
    for answers in sorts:
        for group in () if conflicts else groups:
            if answers.objection(group):
                smallest = answers.reduce(group)
                conflicts[smallest] = answers.bad.get(smallest) or answers.objection(smallest) or ""
    return conflicts


def _make_mask(places: Iterable[int]) -> int:
    return sum(1 << place for place in places)
