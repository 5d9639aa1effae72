"""Causes that a text allows, before they are put in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ..model import Confidence, Evidence, Profiles
from .facts import Facts
from .how_run_program_ended import Ran
from .pattern_search import Said


@dataclass(frozen=True, kw_only=True, slots=True)
class CauseCandidate:
    """A cause and its evidence. `weight` (1 to 100) orders candidates of one confidence.

    `title` and `fix` replace those of the cause.
    """

    cause: str
    weight: int
    confidence: Confidence
    evidence: tuple[Evidence, ...]
    title: str | None = None
    fix: str | None = None


@dataclass(frozen=True, kw_only=True)
class Case:
    """The input of the judges: facts and messages of the text, and the profiles.

    `serves` is resolve's rule of which kernels a GPU runs. Stages do not import each other, so it is passed in.
    """

    facts: Facts
    said: Said
    profiles: Profiles
    serves: Callable[[Sequence[str], str], bool]
    for_cpu: bool = False
    """Whether the text's environment is for the CPU."""
    ran: Ran | None = None
    """How the program ended, if gpuenv ran it."""
    ruled_out: set[str] = field(default_factory=set)
    """Causes that a fact contradicts. Only a certain finding may name them."""


Judge = Callable[[Case], "list[CauseCandidate]"]
