"""Sets of builds that fit a target and each other, with their common Pythons."""

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
class Candidate:
    """Builds that fit the target and each other, one per framework, and a Python that all of them have. `place` is
    its place in the order of `resolve`."""

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


def candidates_of(question: Question) -> tuple[Candidate, ...]:
    """All that fit the target, in the order of `resolve`."""
    chains = [
        [b for b in candidates(question, w) if fits(question, w, b)] for w in question.request.frameworks
    ]
    found: list[Candidate] = []
    for builds in _combinations(question, (), chains):
        shared = [p for p in question.pythons(builds[0]) if all(p in question.pythons(b) for b in builds)]
        found += [Candidate(builds, python, len(found) + i) for i, python in enumerate(shared)]
        if len(found) >= _MOST_COMBINATIONS:
            break
    return tuple(found)


def _combinations(
    question: Question, taken: tuple[Build, ...], chains: Sequence[Sequence[Build]]
) -> Iterator[tuple[Build, ...]]:
    """One build of each chain, those that go together, in the order of the chains."""
    if not chains:
        if taken:
            yield taken
        return
    for build in chains[0]:
        if not against(question, list(taken), build):
            yield from _combinations(question, (*taken, build), chains[1:])
