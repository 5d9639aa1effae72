"""Order candidates and make findings of them: proofs first, lower layers before upper ones."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from ..model import Evidence, FailureCause, Finding, Machine
from ..profiles.findings import fill_text
from .candidates import Case, CauseCandidate
from .confirm_environment_findings import confirm
from .filter_by_device import remaining
from .tables_rules_and_place import Advise, Circumstances
from .version_advice import advice

_RANK = {"certain": 0, "likely": 1, "possible": 2}
_COMMAND = re.compile(r"`[^`]+`")
_SHOWN = 5
_EVIDENCE = 6
_BESIDE = frozenset(
    ("system_library_missing", "python_package_missing", "package_files_damaged", "process_limit_reached",
     "variable_breaks_framework")
)  # fmt: skip
_FAINT = 22  # weight below which a possible cause is not worth a line beside a better one


def findings(
    candidates: Iterable[CauseCandidate],
    case: Case,
    place: Circumstances,
    advise: Advise | None,
) -> tuple[Finding, ...]:
    """Return the findings in order: proofs of verify and detect, then causes that the text shows.

    A possible finding of detect does not come before a proof of the text.
    """
    causes = {c.cause: c for c in case.profiles.causes}
    best = sorted(_merge(candidates, case), key=lambda c: _make_sort_key(c, causes))
    machine = place.machine
    concerned = replace(place, machine=None) if best and _is_beside(best[0], causes) else place
    proved = _list_proved(concerned, case, best)
    best = [c for c in best if c.cause not in {f.cause for f in proved}]
    if best and best[0].confidence == "certain":
        best = best[:1] + [c for c in best[1:] if c.confidence != "possible"]
    shown = best[: max(0, _SHOWN - len(proved))]
    values = {**_collect_values(case), **advice(shown[:1], case, advise, machine)}
    kind = _find_place(case, machine)
    read = [_make_ranked_finding(c, causes[c.cause], kind, values) for c in shown]
    if not proved:
        read = _with_deciding_command(read, causes, values)
    first = [f for f in proved if f.confidence != "possible"]
    guessed = [f for f in proved if f.confidence == "possible"]
    return (*first, *sorted((*guessed, *read), key=lambda f: _RANK[f.confidence]))


def _is_beside(leading: CauseCandidate, causes: dict[str, FailureCause]) -> bool:
    """Return whether the leading cause does not concern a GPU, such as a missing package."""
    sure = leading.confidence != "possible" and not causes[leading.cause].about_gpu
    return sure or leading.cause in _BESIDE


def _make_sort_key(candidate: CauseCandidate, causes: dict[str, FailureCause]) -> tuple[int, int, int]:
    layer, rank = int(causes[candidate.cause].layer), _RANK[candidate.confidence]
    return (rank, layer, -candidate.weight) if rank == 0 else (rank, -candidate.weight, layer)


def _merge(candidates: Iterable[CauseCandidate], case: Case) -> list[CauseCandidate]:
    """Return one candidate per cause: the heaviest one, with the evidence of all."""
    by_cause: dict[str, CauseCandidate] = {}
    for new in sorted(candidates, key=lambda c: (_RANK[c.confidence], -c.weight)):
        if new.cause in case.ruled_out and new.confidence != "certain":
            continue
        old = by_cause.setdefault(new.cause, new)
        if old is not new:
            evidence = tuple(dict.fromkeys((*old.evidence, *new.evidence)))[:_EVIDENCE]
            weight = max(old.weight, new.weight)
            by_cause[new.cause] = replace(old, evidence=evidence, weight=weight, title=old.title or new.title)
    return [c for c in by_cause.values() if c.weight >= _FAINT]


def _list_proved(place: Circumstances, case: Case, best: Sequence[CauseCandidate]) -> list[Finding]:
    """Return the findings of verify and detect that come before those of the text.

    A machine with another driver than the text's is not the text's machine. Of a machine that may be, certain
    findings count. Likely ones count if it has GPUs and the text allows the cause too (`best`).
    """
    machine, verdict = place.machine, place.verdict
    named = {c.cause for c in best}
    found = list(confirm(verdict.findings, case, best)) if verdict else []
    said = case.facts.first("driver")
    if machine and (place.here or not case.said.lines):
        found += machine.findings
    elif machine and said in (None, machine.driver.library, machine.target.driver):
        agreed = named if machine.gpus else ()
        found += [
            f
            for f in machine.findings
            if f.confidence == "certain" or (f.confidence == "likely" and f.cause in agreed)
        ]
    once: dict[str, Finding] = {}
    for finding in sorted(remaining(found, case), key=lambda f: _RANK[f.confidence]):
        once.setdefault(finding.cause, finding)
    return list(once.values())[:_SHOWN]


# --- words -----------------------------------------------------------------------------------


def _collect_values(case: Case) -> dict[str, str]:
    """Return the facts by the names that titles and fixes use."""
    facts = case.facts
    names = (
        "driver",
        "gpu",
        "cuda",
        "cuda_build",
        "cudnn_built",
        "cudnn_loaded",
        "visible",
        "library_path",
        "jax",
    )
    values = {n: v for n in names if (v := facts.first(n))}
    missing = facts.first("missing")
    if missing:
        values["missing"] = missing
    return values


def _find_place(case: Case, machine: Machine | None) -> str | None:
    """Return the place that changes a fix: "container", "windows" or None."""
    if case.said.group("container") or (machine and machine.context.container):
        return "container"
    native = case.facts.holds("os=windows") and not case.facts.holds("os=wsl") and not case.said.group("wsl")
    return "windows" if native else None


def _make_ranked_finding(
    candidate: CauseCandidate, cause: FailureCause, place: str | None, values: dict[str, str]
) -> Finding:
    there = {"container": cause.in_container, "windows": cause.on_windows}.get(place or "")
    fix = fill_text(candidate.fix or there or cause.fix, values)
    title = fill_text(candidate.title or cause.title, values)
    if re.search(r"\{\w+\}", title):  # the title has an unknown fact
        title = fill_text(cause.title, values)
    evidence: tuple[Evidence, ...] = tuple(dict.fromkeys(candidate.evidence))[:_EVIDENCE]
    if candidate.confidence != "certain":
        decides = fill_text(cause.decides, values)
        evidence = (*evidence, Evidence(text=f"to confirm: {decides}", source="to check"))
    return Finding(
        cause=candidate.cause,
        title=title,
        evidence=evidence,
        fix=fix,
        confidence=candidate.confidence,
    )


def _with_deciding_command(
    read: list[Finding], causes: dict[str, FailureCause], values: dict[str, str]
) -> list[Finding]:
    """Add to the first finding the command that distinguishes it from the second.

    It is the command of the lower layer, which explains the upper one.
    """
    if len(read) < 2 or read[0].confidence == "certain":
        return read
    both = sorted((causes[f.cause] for f in read[:2]), key=lambda c: int(c.layer))
    command = next(
        (found.group(0) for c in both if (found := _COMMAND.search(fill_text(c.decides, values)))), None
    )
    if command is None:
        return read
    text = f"to distinguish it from {read[1].cause}: {command}"
    first = replace(read[0], evidence=(*read[0].evidence, Evidence(text=text, source="to check")))
    return [first, *read[1:]]
