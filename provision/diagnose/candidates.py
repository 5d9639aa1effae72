"""Causes that a text allows, before they are put in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ..model import Confidence, Evidence, Profiles
from .facts import Facts
from .message_patterns import Said
from .program_exit import Ran


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidate:
    """A cause and what speaks for it. `weight` (1 to 100) orders candidates of one confidence;
    `title` and `fix` stand in place of the cause's own."""

    cause: str
    weight: int
    confidence: Confidence
    evidence: tuple[Evidence, ...]
    title: str | None = None
    fix: str | None = None


@dataclass(frozen=True, kw_only=True)
class Case:
    """What the judges judge: the text's facts and words, what is known, and resolve's rule of which
    kernels a GPU runs (passed in: stages do not know each other)."""

    facts: Facts
    said: Said
    profiles: Profiles
    serves: Callable[[Sequence[str], str], bool]
    for_cpu: bool = False
    """Whether the environment that the text is of was made for the CPU."""
    ran: Ran | None = None
    """How the program ended, where gpuenv ran it."""
    ruled_out: set[str] = field(default_factory=set)
    """Causes that a fact contradicts: only a certain finding may still name them."""


Judge = Callable[[Case], "list[Candidate]"]
