"""The rows of profiles/failures.yaml: their mistakes, and the candidates that rules and catalogue give for a text."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import cast

from ..errors import DataError
from ..model import Confidence, FailureFix, FailureRule, Profiles
from ..profiles.wording import PLACES, SLOT, list_slots
from .case import Candidate, Case, candidate
from .facts import CONDITIONS, get_name
from .messages import compile_pattern, list_rows
from .slots import PROGRAM_SLOTS, SLOTS

# Groups of single words in nearly every log: conditions, but no evidence.
_PLAIN = ("any_failure", "sees_no_gpu_or_fails", "torch_words", "stream_executor_words", "xla_words")


def apply_rules(case: Case) -> Iterator[Candidate]:
    """Yield a candidate for every rule whose messages and conditions match."""
    for rule in case.profiles.failures:
        shown = case.messages.find(rule.says)
        if (
            not shown
            or not all(case.find_condition(w) for w in rule.wants)
            or any(case.find_condition(w) for w in rule.lacks)
        ):
            continue
        also = (case.find_condition(w)[0] for w in rule.wants if w not in _PLAIN)
        confidence = cast("Confidence", rule.confidence)  # one of three words: profiles/files.py
        yield candidate(
            rule.cause, int(rule.weight), (*shown, *also), rule.title, confidence=confidence, rule=rule.name,
            decides=rule.decides,
        )  # fmt: skip


def apply_catalogue(case: Case, found: Sequence[Candidate]) -> list[Candidate]:
    """Return candidates for messages of the catalogue, if neither a rule nor a judge found one of their causes."""
    causes = {c.cause for c in found}
    return [
        # the first of several causes is the likeliest, an only cause is likely
        candidate(cause, 60 if len(row.causes) == 1 else 34 - 3 * i, shown,
                  confidence="likely" if len(row.causes) == 1 else "possible")
        for row in case.profiles.catalogue
        if not causes.intersection(row.causes) and not case.find_message(*row.lacks)
        if (shown := case.messages.find(row.says, row.code))
        for i, cause in enumerate(row.causes)
    ]  # fmt: skip


# --- mistakes in the tables --------------------------------------------------------------------


_checked: list[Profiles] = []


def check_tables(profiles: Profiles) -> None:
    """Raise DataError with every mistake in the tables of failures beyond their keys. The last ones are not checked again."""
    if any(known is profiles for known in _checked):
        return
    if problems := find_mistakes(profiles):
        raise DataError(
            f"The rules of diagnose are invalid: {len(problems)} mistake{'s' * (len(problems) > 1)}.",
            problems=tuple(f"failures.yaml: {p}" for p in problems),
            hint="Correct the rows named.",
        )
    _checked[:] = [profiles]


def find_mistakes(profiles: Profiles) -> list[str]:
    """Return mistakes in the tables: an unknown or ambiguous name, an invalid pattern, or a cause whose last fix has a
    condition or a slot."""
    causes, messages = {c.cause for c in profiles.causes}, {m.name for m in profiles.messages}
    wrong = [f"{name}: a fact has the name of this message" for name in sorted(messages & CONDITIONS)]

    def refuse(row: str, values: Iterable[str], known: Collection[str], what: str) -> None:
        wrong.extend(f"{row}: {value} {what}" for value in values if value not in known)

    for row in list_rows(profiles):
        refuse(
            row.name,
            (t[1:] for t in row.says if t[0] == "@"),
            messages,
            "in its words is not a known message",
        )
        for text in row.says:
            try:
                compile_pattern("message" if text[0] == "@" else text)
            except ValueError as error:
                wrong.append(f"{row.name}: {error}")
    for row in profiles.catalogue:
        refuse(row.name, row.causes or ("no cause",), causes, "is not in the table of causes")
    last: dict[str, FailureFix] = {}
    both: tuple[FailureRule | FailureFix, ...] = (*profiles.failures, *profiles.fixes)
    for one in both:
        refuse(one.name, [one.cause], causes, "is not in the table of causes")
        slots = SLOTS if isinstance(one, FailureFix) else ()
        names = (get_name(c) for c in (*one.wants, *one.lacks) if c not in messages)
        refuse(one.name, names, {*CONDITIONS, *slots}, "is neither a message nor a fact")
    for fix in profiles.fixes:
        last[fix.cause] = fix
        refuse(fix.name, SLOT.findall(" ".join(fix.steps)), SLOTS, "is no slot")
        places = (step.partition(": ")[0] for step in fix.steps if "`" in step)
        refuse(
            fix.name, places, PLACES, f"begins a step with a command, and is no place ({', '.join(PLACES)})"
        )
    wrong += [f"{cause}: it has no fix" for cause in causes - last.keys()]
    wrong += [
        f"{fix.name}: the last fix of a cause has no condition and no slot"
        for fix in last.values()
        if fix.wants or fix.lacks or list_slots(fix)
    ]
    for program in profiles.programs:
        texts = " ".join(getattr(program, name) or "" for name in PROGRAM_SLOTS)
        refuse(program.program, SLOT.findall(texts), SLOTS, "is no slot")
    return wrong
