"""Apply the rules of profiles/failures.yaml to a text, and check them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from packaging.version import Version

from ..errors import DataError
from ..model import CatalogueMessage, Evidence, FailureCause, FailureMessage, FailureRule, Profiles
from .candidates import Case, CauseCandidate
from .facts import CONDITIONS
from .pattern_search import pattern

# Groups of single words in nearly every log: conditions, but no evidence.
_PLAIN = ("any_failure", "sees_no_gpu_or_fails", "torch_words", "stream_executor_words", "xla_words")
_CONFIDENCE = ("certain", "likely", "possible")
_UNKNOWN = "unknown"  # of a row of the catalogue that was read in no release


def by_rules(case: Case) -> list[CauseCandidate]:
    """Return a candidate for every rule whose messages and conditions match."""
    return [found for rule in case.profiles.failures if (found := _judge_rule(rule, case))]


def _judge_rule(rule: FailureRule, case: Case) -> CauseCandidate | None:
    spoken = case.said(rule.says)
    if not spoken:
        return None
    if not all(holds(case, w) for w in rule.wants) or any(holds(case, w) for w in rule.lacks):
        return None
    also = tuple(e for w in rule.wants if w not in _PLAIN for e in _list_shown(case, w)[:1])
    return CauseCandidate(
        cause=rule.cause,
        weight=int(rule.weight),
        confidence=rule.confidence,  # type: ignore[arg-type]  # one of three words, checked by the loader
        evidence=tuple(dict.fromkeys((*spoken, *also))),
        title=rule.title,
        fix=rule.fix,
    )


def holds(case: Case, condition: str) -> bool:
    """Return whether the text has a message, or a fact is true."""
    if case.said.knows(condition):
        return bool(case.said.group(condition))
    return case.facts.holds(condition)


def _list_shown(case: Case, condition: str) -> tuple[Evidence, ...]:
    if case.said.knows(condition):
        return case.said.group(condition)
    return case.facts.where(re.split(r"[=<>!~]", condition, maxsplit=1)[0])


def check(known: Profiles) -> None:
    """Raise DataError with every mistake in the rules beyond their keys."""
    problems = mistakes(known.failures, known.causes, known.messages) + catalogue_mistakes(
        known.catalogue, known.causes
    )
    if problems:
        raise DataError(
            f"The rules of diagnose are invalid: {len(problems)} mistake{'s' * (len(problems) > 1)}.",
            problems=tuple(f"failures.yaml: {p}" for p in problems),
            hint="Correct the rows named.",
        )


def mistakes(
    rules: Iterable[FailureRule], causes: Iterable[FailureCause], messages: Sequence[FailureMessage]
) -> list[str]:
    """Return mistakes in rules: an unknown cause, message, fact, confidence or weight; an invalid pattern."""
    known, names = {c.cause for c in causes}, {m.name for m in messages}
    wrong = [f"{m.name}: {p}" for m in messages for s in m.says if (p := _check_pattern(s))]
    for rule in rules:
        if rule.cause not in known:
            wrong.append(f"{rule.name}: cause {rule.cause!r} is not in the table of causes")
        if rule.confidence not in _CONFIDENCE:
            wrong.append(
                f"{rule.name}: confidence {rule.confidence!r} is not one of {', '.join(_CONFIDENCE)}"
            )
        if not rule.weight.isdigit() or not 1 <= int(rule.weight) <= 100:
            wrong.append(f"{rule.name}: weight {rule.weight!r} is not 1 to 100")
        for text in rule.says:
            if text.startswith("@"):
                if text[1:] not in names:
                    wrong.append(f"{rule.name}: `says` names {text!r}, which is not a known message")
            elif problem := _check_pattern(text):
                wrong.append(f"{rule.name}: {problem}")
        wrong += [
            f"{rule.name}: {w!r} is neither a message nor a fact"
            for w in (*rule.wants, *rule.lacks)
            if w not in names and re.split(r"[=<>!~]", w, maxsplit=1)[0] not in CONDITIONS
        ]
    return wrong


def catalogue_mistakes(rows: Iterable[CatalogueMessage], causes: Iterable[FailureCause]) -> list[str]:
    """Return mistakes in the catalogue: no cause, an unknown cause, an invalid pattern."""
    known = {c.cause for c in causes}
    wrong = []
    for row in rows:
        wrong += [
            f"{row.name}: cause {c!r} is not in the table of causes" for c in row.causes if c not in known
        ]
        wrong += [f"{row.name}: {problem}" for s in row.says if (problem := _check_pattern(s))]
        if not row.causes:
            wrong.append(f"{row.name}: no cause is named")
        if problem := _check_releases(row):
            wrong.append(f"{row.name}: {problem}")
    return wrong


def _check_releases(row: CatalogueMessage) -> str | None:
    """Return what is wrong with the releases of a row: a moving name, or an absent release within the range."""
    if re.search(r"\b(?:main|master|latest)\b", row.releases):
        return f'`releases: {row.releases}` names a branch; write release numbers, or "unknown"'
    if row.absent and row.releases == _UNKNOWN:
        return "`absent` names releases without the message, so `releases` must name a release with it"
    having = [Version(v) for v in re.findall(r"\d+(?:\.\d+)+(?:-\d+)?", row.releases)] if row.absent else []
    within = [a for a in row.absent if not having or min(having) <= Version(a) <= max(having)]
    return f"`absent` names {within[0]!r}, which is one of `releases` ({row.releases})" if within else None


def _check_pattern(text: str) -> str | None:
    try:
        pattern(text)
    except ValueError as error:
        return str(error)
    return None
