"""Find the fewest plans where the named packages separate hosts that one framework build serves.

A set of kinds conflicts if no lock with the packages serves all of its kinds. Kinds are classes of hosts that builds and
packages cannot tell apart. A set without a conflict has no subset with one.

Asking whether a set conflicts takes a search of releases or a solve. So only the chosen plans are asked for. A chosen plan
with a conflict is reduced to a smallest set that still conflicts. No plan may contain that set, and the fewest plans are
chosen again. The answer is exact, because each known conflict binds every other answer too. After `most` questions of one sort the
plans that still conflict are split into their kinds, and the answer is not called exact.

Questions come in sorts, the cheapest first: a search of releases, then a solve. A set is asked for by the next sort only
where the ones before have no objection, and a conflict is reduced with the sort that found it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from .minimum_cover import Cover, PlanCandidate, bits, fewest

ObjectTo = Callable[[int], "str | None"]
"""Returns why no lock serves a set of kinds, given as bits, or None."""

MOST_QUESTIONS = 40
_MOST_CANDIDATES = 4000


class PackageCover(NamedTuple):
    """The fewest plans, and the conflicts between kinds.

    `groups` are the kinds of each plan as bits, newest plan first. `conflicts` are the smallest conflicting
    sets with the reasons. `question_counts` is the number of questions of each sort.
    """

    groups: tuple[int, ...]
    exact: bool
    at_least: int
    conflicts: Mapping[int, str]
    question_counts: tuple[int, ...] = ()


class _TooManyQuestionsError(Exception):
    """The questions are used up."""


class _Answers:
    """The known answers on sets. A question is asked once, and not if another answer implies its answer."""

    def __init__(self, object_to: ObjectTo, most: int) -> None:
        self._object_to, self._most = object_to, most
        self._good: list[int] = []
        self.bad: dict[int, str] = {}
        self.questions = 0

    def objection(self, mask: int) -> str | None:
        """Return why a set conflicts, or None. Raises _TooManyQuestionsError."""
        if any(mask & good == mask for good in self._good):
            return None
        if why := next((w for bad, w in self.bad.items() if mask & bad == bad), None):
            return why
        if self.questions >= self._most:
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
        """Return a smallest set in a set that conflicts (QuickXplain, Junker 2004)."""
        return sum(1 << place for place in self._needed(0, 0, bits(mask)))

    def _needed(self, base: int, added: int, places: Sequence[int]) -> list[int]:
        if added and self.objection(base):
            return []
        if len(places) == 1:
            return list(places)
        half = len(places) // 2
        first, second = places[:half], places[half:]
        of_second = self._needed(base | _mask(first), _mask(first), second)
        of_first = self._needed(base | _mask(of_second), _mask(of_second), first)
        return [*of_first, *of_second]


def cover_with_packages(
    candidates: Iterable[PlanCandidate], weights: Sequence[int], sorts: Sequence[ObjectTo],
    most: int = MOST_QUESTIONS,
) -> PackageCover:  # fmt: skip
    """Return the fewest plans of which none contains a conflict. Kinds that conflict alone are in no plan."""
    possible = list(candidates)
    cover = fewest(possible, weights)
    groups = assign(cover)
    answers, conflicts = [_Answers(object_to, most) for object_to in sorts], dict[int, str]()
    exact = True
    try:
        while new_conflicts := _conflicts_in(groups, answers):
            conflicts |= new_conflicts
            possible = without_conflicts(possible, new_conflicts)
            cover = fewest(possible, weights)
            groups = assign(cover)
    except _TooManyQuestionsError:
        parts = [[g] if all(a.is_good(g) for a in answers) else [1 << p for p in bits(g)] for g in groups]
        groups = tuple(m for part in parts for m in part if not any(m in a.bad for a in answers))
        exact = len(groups) == cover.at_least
    question_counts = tuple(a.questions for a in answers)
    return PackageCover(groups, exact and cover.exact, cover.at_least, conflicts, question_counts)


def assign(cover: Cover) -> tuple[int, ...]:
    """Return the kinds of each chosen plan. A kind gets the newest plan that serves it."""
    groups, left = [], -1
    for candidate in cover.chosen:  # newest first
        if new := candidate.mask & left:
            groups.append(new)
        left &= ~candidate.mask
    return tuple(groups)


def without_conflicts(candidates: Iterable[PlanCandidate], conflicts: Iterable[int]) -> list[PlanCandidate]:
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


def _conflicts_in(groups: Iterable[int], sorts: Iterable[_Answers]) -> dict[int, str]:
    """Return a smallest conflict of each group that has one, of the first sort that finds any."""
    conflicts: dict[int, str] = {}
    for answers in sorts:
        for group in () if conflicts else groups:
            if answers.objection(group):
                smallest = answers.reduce(group)
                conflicts[smallest] = answers.bad.get(smallest) or answers.objection(smallest) or ""
    return conflicts


def _mask(places: Iterable[int]) -> int:
    return sum(1 << place for place in places)
