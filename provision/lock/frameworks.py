"""The frameworks that a project's packages require, where no one names one."""

from __future__ import annotations

from collections.abc import Sequence

from ..model import (
    PROJECT_FRAMEWORKS,
    Emit,
    PackageSources,
    Plan,
    RequirementLine,
    TransitiveFrameworks,
    drop_event,
)
from .archives import source_rules
from .compile import Question, ask


def required_frameworks(
    plan: Plan, sources: PackageSources, needs: Sequence[RequirementLine], emit: Emit, *, reading: bool
) -> TransitiveFrameworks:
    """Return the frameworks in uv's answer to a project's lines. `plan` has the Python and the platform.

    With `reading` no build code runs. Raises LockError if the lines have no solution.
    """
    rules = source_rules(sources, emit, reading=reading)
    question = Question(plan=plan, sources=sources, roots=(), needs=tuple(needs))
    versions = ask(question, rules, drop_event).versions
    frameworks = tuple(f for f in PROJECT_FRAMEWORKS if f in versions)
    return TransitiveFrameworks(frameworks=frameworks, unread=tuple(rules.unread))
