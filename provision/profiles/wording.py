"""Make a finding with the title and fix that profiles/failures.yaml has for its cause."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping

from .. import profiles
from ..model import Confidence, Evidence, FailureFix, Finding

SLOT = re.compile(r"\{(\w+)\}")


def make_finding(
    name: str,
    evidence: tuple[Evidence, ...] = (),
    /,
    *,
    confidence: Confidence | None = None,
    cause: str | None = None,
    in_container: bool = False,
    **slots: object,
) -> Finding:
    """Return a finding with the title and fix of the row `name`. A slot of None is unknown.

    A text that the row lacks is that of the cause, with `in_container` that for a container.

    `cause` and `confidence` replace those of the row where the situation alone does not decide them.
    """
    rows = profiles.get_current()
    text = next(row for row in rows.findings if row.finding == name)
    known = {k: str(v) for k, v in slots.items() if v is not None}
    title = text.title or next(row.title for row in rows.causes if row.cause == text.cause)
    fix = text.fix or find_fix(cause or text.cause, ("container",) if in_container else ())
    return Finding(
        cause=cause or text.cause,
        title=fill_text(title, known),
        evidence=evidence,
        fix=fill_text(fix, known),
        confidence=confidence or text.confidence or "likely",
    )


def fill_text(template: str, slots: Mapping[str, str], *, sentence: bool = True) -> str:
    """Return a title, or a part of a fix, with its slots filled. A part in [[brackets]] is left out for an unknown slot."""

    def fill_part(match: re.Match[str]) -> str:
        names = SLOT.findall(match.group(1))
        return match.group(1) if all(n in slots for n in names) else ""

    text = re.sub(r"\[\[((?:[^\]]|\](?!\]))*)\]\]", fill_part, template)
    text = " ".join(text.split())
    if sentence and text.partition(" ")[0].islower():  # not "cuDNN"
        text = text[:1].upper() + text[1:]
    return SLOT.sub(lambda m: slots.get(m.group(1), m.group(0)), text)


def find_fix(cause: str, known: Collection[str] = (), slots: Mapping[str, str] | None = None) -> str:
    """Return the fix of a cause for a stage that reads no text: the first whose conditions are `known` and whose slots
    are in `slots`."""
    return choose_fix(profiles.get_current().fixes, cause, known.__contains__, slots or {})


def choose_fix(
    rows: Iterable[FailureFix],
    cause: str,
    holds: Callable[[str], bool],
    slots: Mapping[str, str],
    owner: str | None = None,
) -> str:
    """Return the first fix of a cause whose conditions hold, and whose slots are all in `slots`, or "".

    `owner` says whose environment it is.
    """
    for row in rows:
        if (
            row.cause == cause
            and all(slot in slots for slot in list_slots(row))
            and all(map(holds, row.wants))
            and not any(map(holds, row.lacks))
        ):
            return " ".join(_render_step(step, slots, owner, holds("container")) for step in row.steps)
    return ""


def list_slots(row: FailureFix) -> list[str]:
    """Return the slots that a fix needs."""
    return SLOT.findall(re.sub(r"\[\[.*?\]\]", "", " ".join(row.steps)))


PLACES = {
    "host": "On the machine", "environment": "In the environment", "shell": "In the shell that starts the program",
    "program": "In the program", "image": "In the image", "container": "In the container", "pod": "In the pod's specification",
    "job": "In the job", "windows": "On Windows", "wsl": "In WSL", "notebook": "In the notebook",
}  # fmt: skip
"""Where the commands of a step are run."""
_ENVIRONMENTS = {
    "notebook": "In a cell of the notebook",
    "application": "In the Python that the application uses",
    "image": "In the image",
}


def _render_step(step: str, slots: Mapping[str, str], owner: str | None, in_container: bool) -> str:
    """Return a step with its slots and the words of its place."""
    place, _, rest = step.partition(": ")
    if place not in PLACES:
        return fill_text(step, slots)
    words = PLACES[place]
    if place == "environment":
        words = _ENVIRONMENTS.get(owner or "", words)
    elif place == "host" and in_container:
        words = "On the host"
    if rest.startswith(("or ", "then ", "until then, ")):
        joint, _, rest = rest.partition(", " if rest.startswith("until") else " ")
        words = f"{joint.capitalize()}, {words[0].lower()}{words[1:]}"
    return f"{words}: {fill_text(rest, slots, sentence=False)}"
