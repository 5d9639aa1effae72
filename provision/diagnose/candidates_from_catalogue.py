"""Make candidates from the table `catalogue`, which lists messages and their possible causes.

They are used if no rule and no judge found a cause.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..model import CatalogueMessage, Confidence, Evidence
from .candidates import Case, CauseCandidate
from .pattern_search import evidence

_ONE, _FIRST, _STEP = (
    60,
    34,
    3,
)  # weights: of an only cause, of the first of several, and from one to the next


def by_catalogue(case: Case, candidates: Sequence[CauseCandidate]) -> list[CauseCandidate]:
    """Return candidates for messages of the text, if none of their causes was found."""
    causes = {c.cause for c in candidates}
    rows = [
        r for r in case.profiles.catalogue if not causes & set(r.causes) and not _has_other_meaning(case, r)
    ]
    return [
        candidate
        for row in rows
        if (shows := case.said(row.says) or _list_numbered(case, row))
        for candidate in _make_candidates(row, shows)
    ]


def _list_numbered(case: Case, row: CatalogueMessage) -> tuple[Evidence, ...]:
    return tuple(evidence(line) for line in case.said.numbered.get(row.code or "", ()))


def _has_other_meaning(case: Case, row: CatalogueMessage) -> bool:
    return any(case.said.group(name) for name in row.lacks)


def _make_candidates(row: CatalogueMessage, shows: tuple[Evidence, ...]) -> list[CauseCandidate]:
    alone = len(row.causes) == 1
    confidence: Confidence = "likely" if alone else "possible"
    first = _ONE if alone else _FIRST
    return [
        CauseCandidate(cause=cause, weight=first - _STEP * i, confidence=confidence, evidence=shows)
        for i, cause in enumerate(row.causes)
    ]
