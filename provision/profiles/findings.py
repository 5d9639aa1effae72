"""Make a finding with the title and fix that profiles/failures.yaml has for its cause."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping

from ..model import Confidence, Evidence, FailureCause, Finding, FindingText


def make_finding(
    name: str,
    evidence: tuple[Evidence, ...] = (),
    /,
    *,
    confidence: Confidence = "likely",
    cause: str | None = None,
    in_container: bool = False,
    **facts: object,
) -> Finding:
    """Return a finding with the title and fix of the row `name`. A fact of None is unknown.

    A text that the row lacks is that of the cause, with `in_container` that for a container.

    `cause` replaces the row's cause where the situation alone does not decide it.
    """
    texts, causes = _read_texts()
    text = texts[name]
    known = {k: str(v) for k, v in facts.items() if v is not None}
    common = causes.get(text.cause)
    title = text.title or (common.title if common else "")
    there = common.in_container if common and in_container else None
    fix = text.fix or there or (common.fix if common else "")
    return Finding(
        cause=cause or text.cause,
        title=fill_text(title, known),
        evidence=evidence,
        fix=fill_text(fix, known),
        confidence=confidence,
    )


def fill_text(template: str, facts: Mapping[str, str]) -> str:
    """Return a title or fix with its facts. A part in [[brackets]] is left out for an unknown fact."""

    def fill_part(match: re.Match[str]) -> str:
        names = re.findall(r"\{(\w+)\}", match.group(1))
        return match.group(1) if all(n in facts for n in names) else ""

    text = re.sub(r"\[\[((?:[^\]]|\](?!\]))*)\]\]", fill_part, template)
    text = " ".join(text.split())
    if text.partition(" ")[0].islower():  # not "cuDNN"
        text = text[:1].upper() + text[1:]
    return re.sub(r"\{(\w+)\}", lambda m: facts.get(m.group(1), m.group(0)), text)


@functools.cache
def _read_texts() -> tuple[dict[str, FindingText], dict[str, FailureCause]]:
    from . import load_own_parts

    profiles = load_own_parts("failures.yaml", ("causes", "findings"))
    return {text.finding: text for text in profiles.findings}, {
        cause.cause: cause for cause in profiles.causes
    }
