"""List sets of builds that fit a target and each other, with their common Pythons."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from ..model import Build
from .build_choice import against, candidates
from .objections import fits
from .question import Question
from .versions import major

_MOST_COMBINATIONS = 500


@dataclass(frozen=True, eq=False)
class CandidateBuilds:
    """One build per framework that fit the target and each other, and a common Python.

    `place` is the position in the order of `resolve`.
    """

    builds: tuple[Build, ...]
    python: str
    place: int

    @cached_property
    def versions(self) -> Mapping[str, str]:
        return {b.framework: b.version for b in self.builds}

    @cached_property
    def cudas(self) -> frozenset[str]:
        """The CUDA majors of the builds."""
        return frozenset(major(b.cuda) for b in self.builds if b.cuda)


def candidates_of(question: Question) -> tuple[CandidateBuilds, ...]:
    """Return all sets that fit the target, in the order of `resolve`."""
    chains = [
        [b for b in candidates(question, w) if fits(question, w, b)] for w in question.request.frameworks
    ]
    candidates_found: list[CandidateBuilds] = []
    for builds in _combinations(question, (), chains):
        shared = [p for p in question.pythons(builds[0]) if all(p in question.pythons(b) for b in builds)]
        candidates_found += [
            CandidateBuilds(builds, python, len(candidates_found) + i) for i, python in enumerate(shared)
        ]
        if len(candidates_found) >= _MOST_COMBINATIONS:
            break
    return tuple(candidates_found)


def _combinations(
    question: Question, taken: tuple[Build, ...], chains: Sequence[Sequence[Build]]
) -> Iterator[tuple[Build, ...]]:
    """Yield one compatible build of each chain, in the order of the chains."""
    if not chains:
        if taken:
            yield taken
        return
    for build in chains[0]:
        if not against(question, list(taken), build):
            yield from _combinations(question, (*taken, build), chains[1:])
