"""The values of a search: a question, its solution, and its refusal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..errors import LockError
from ..model import Build, Plan
from .compile import Answer
from .facts import Conflict


@dataclass(frozen=True, kw_only=True)
class Try:
    """One question of a search: a plan whose builds come first, and what is tried with it.

    With `fixed` no other builds are allowed. `first` are named packages that uv decides first. `without` are
    constraints on what else is left out. `for_whom` are the package or framework, and its release, that the question
    is for.
    """

    plan: Plan
    builds: tuple[Build, ...]
    fixed: bool = True
    first: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    only_binary: frozenset[str] = frozenset()
    built: frozenset[str] = frozenset()
    keep: Mapping[str, str] = field(default_factory=dict)
    loose: bool = False
    for_whom: tuple[str, str] = ("", "")

    @property
    def key(self) -> tuple[object, ...]:
        """What decides the answer."""
        return (
            self.builds,
            self.plan.python,
            self.fixed,
            self.first,
            self.without,
            self.only_binary,
            self.loose,
        )


@dataclass(frozen=True, kw_only=True)
class Solution:
    """A whole solution: the answer to a question, its plan, and what the facts say of it.

    `behind` are the days by which the named packages that bind a framework are older than their newest release.
    `compiles` are packages whose build needs a compiler.
    """

    asked: Try
    plan: Plan
    builds: tuple[Build, ...]
    answer: Answer
    conflicts: tuple[Conflict, ...]
    compiles: tuple[str, ...]
    behind: Mapping[str, int]


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """A question without a solution, and uv's reasons."""

    asked: Try
    error: LockError
