"""The rows of profiles/failures.yaml, applied to a text."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ..model import Evidence, FailureRule
from .candidates import Candidate, Case

_CONFIDENCE = ("certain", "likely", "possible")


def by_rules(case: Case) -> list[Candidate]:
    """A candidate for every rule whose words stand in the text and whose conditions hold."""
    return [found for rule in case.profiles.failures if (found := _judged(rule, case))]


def _judged(rule: FailureRule, case: Case) -> Candidate | None:
    spoken = case.said(rule.says)
    if not spoken:
        return None
    if not all(holds(case, w) for w in rule.wants) or any(holds(case, w) for w in rule.lacks):
        return None
    also = tuple(e for w in rule.wants for e in _shown(case, w)[:1])
    return Candidate(
        cause=rule.cause,
        weight=int(rule.weight),
        confidence=rule.confidence,  # type: ignore[arg-type]  # one of three words, checked by the loader
        evidence=tuple(dict.fromkeys((*spoken, *also))),
        title=rule.title,
        fix=rule.fix,
    )


def holds(case: Case, condition: str) -> bool:
    """Whether a message is said, or a fact is so."""
    if case.said.knows(condition):
        return bool(case.said.group(condition))
    return case.facts.holds(condition)


def _shown(case: Case, condition: str) -> tuple[Evidence, ...]:
    if case.said.knows(condition):
        return case.said.group(condition)
    return case.facts.where(re.split(r"[=<>!~]", condition, maxsplit=1)[0])


def mistakes(rules: Iterable[FailureRule], causes: set[str], messages: set[str]) -> list[str]:
    """What is wrong with rules beyond their keys: an unknown cause, message, confidence or weight."""
    wrong = []
    for rule in rules:
        if rule.cause not in causes:
            wrong.append(f"{rule.name}: cause {rule.cause!r} is not in the table of causes")
        if rule.confidence not in _CONFIDENCE:
            wrong.append(
                f"{rule.name}: confidence {rule.confidence!r} is not one of {', '.join(_CONFIDENCE)}"
            )
        if not rule.weight.isdigit() or not 1 <= int(rule.weight) <= 100:
            wrong.append(f"{rule.name}: weight {rule.weight!r} is not 1 to 100")
        wrong += [
            f"{rule.name}: says {s!r}, which is no message"
            for s in rule.says
            if s[0] == "@" and s[1:] not in messages
        ]
    return wrong
