"""Find the causes of a failure in its log, and their fixes.

The stage is pure: texts, a machine, a verdict and tables are its input, findings its output. Messages alone seldom
prove a cause. So three kinds of evidence are combined:

- rules: rows of profiles/failures.yaml, which list messages of programs and their causes;
- judges: comparisons of facts in the text with the tables, such as a GPU with an arch list, or a driver with the
  minimum of a CUDA version;
- findings of detect and verify.

A proof comes first, then certain causes, lower layers before upper ones, then the likeliest.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from ..model import Evidence, Finding, Machine
from .candidates import Case, CauseCandidate
from .candidates_from_catalogue import by_catalogue
from .cause_judges import JUDGES
from .context import Installed, add_facts, applicable, device_of
from .evidence_from_machine import contradicted, hidden_gpus, machine_facts, say_that_driver_works
from .fact_readers import read_facts
from .facts import Facts
from .filter_by_device import possible, without_notices
from .findings import findings
from .gpu_memory_holders import with_holders
from .how_run_program_ended import Ran
from .installer_changes import with_installs
from .judge_crash_outside_frameworks import describe
from .lines import Line, read_log
from .log_wrappers import unwrapped
from .notes import Remarks
from .optional_parts import without_optional_parts
from .pattern_search import Said, without
from .rules import by_rules, check
from .tables_rules_and_place import Circumstances, Knowledge

__all__ = ["Circumstances", "Installed", "Knowledge", "Ran", "Remarks", "diagnose"]


def diagnose(
    texts: Sequence[tuple[str, Iterable[bytes]]],
    knowledge: Knowledge,
    circumstances: Circumstances,
    remarks: Remarks | None = None,
) -> tuple[Finding, ...]:
    """Return the causes that the texts show, the likeliest first. The result is empty if no cause is known.

    `texts` are (name, bytes in pieces). `remarks` receives the notes that are not findings.
    Raises DataError for invalid rules.
    """
    profiles = knowledge.profiles
    check(profiles)
    lines: list[Line] = [line for name, chunks in texts for line in unwrapped(read_log(name, chunks))]
    lines = without(lines, profiles.messages, "harmless")
    lines = without_optional_parts(lines, profiles.messages)
    facts = read_facts(lines, profiles.gpus) if lines else Facts()
    installed = applicable(circumstances.installed, lines, facts, remarks)
    device = circumstances.device or device_of(installed, lines)
    machine = circumstances.machine
    if device == "cpu":
        lines = without_notices(lines, profiles.messages)
        machine = _drop_gpus(machine)
        facts = read_facts(lines, profiles.gpus) if lines else Facts()
    from_here = (*(machine_facts(facts, machine) if lines else ()), *add_facts(facts, installed))
    _add_oom_kills(facts, circumstances.ran)
    case = Case(
        facts=facts,
        said=Said(lines, profiles.messages, profiles.failures, profiles.catalogue),
        profiles=profiles,
        serves=knowledge.serves,
        for_cpu=device == "cpu",
        ran=circumstances.ran,
        ruled_out=contradicted(facts, machine) if lines and circumstances.is_of_machine else set(),
    )
    place = replace(circumstances, machine=machine)
    candidates = _find_candidates(case, place, from_here)
    ordered = findings(candidates, case, place, knowledge.advise)
    if remarks:
        _remark(remarks, ordered, case, place, lines)
    return _add_context(ordered, case, place, lines)


def _remark(
    remarks: Remarks, ordered: Sequence[Finding], case: Case, place: Circumstances, lines: Sequence[Line]
) -> None:
    """Note a crash without a cause, or that this machine's driver works although the log says otherwise."""
    if not ordered:
        remarks.crash = describe(lines)
    elif lines and not place.is_of_machine:
        remarks.elsewhere = say_that_driver_works(ordered[0].cause, case.facts, place.machine)


def _add_context(
    ordered: tuple[Finding, ...], case: Case, place: Circumstances, lines: Sequence[Line]
) -> tuple[Finding, ...]:
    """Add earlier installs, and processes that use the GPU's memory, to findings."""
    ordered = with_installs(ordered, case, case.profiles.causes, lines)
    return with_holders(ordered, case, place.machine, place.holders) if place.holders else ordered


def _find_candidates(case: Case, place: Circumstances, from_here: Sequence[Evidence]) -> list[CauseCandidate]:
    """Return the candidates of judges, rules and the catalogue.

    A log can be from another machine, so facts of this machine (`from_here`) prove nothing then.
    """
    judged = [*(c for judge in JUDGES for c in judge(case)), *by_rules(case)]
    judged += hidden_gpus(case, place.machine) if place.here else []
    candidates = possible([*judged, *by_catalogue(case, judged)], case)
    if place.is_of_machine:
        return candidates
    return [_lower_confidence(c) if set(from_here) & set(c.evidence) else c for c in candidates]


def _drop_gpus(machine: Machine | None) -> Machine | None:
    return replace(machine, gpus=(), target=replace(machine.target, gpus=())) if machine else None


def _add_oom_kills(facts: Facts, ran: Ran | None) -> None:
    if ran and ran.oom_kills is not None:
        text = f"the kernel's out-of-memory counter (oom_kill) rose by {ran.oom_kills}"
        facts.add("oom_kills", str(ran.oom_kills), Evidence(text=text, source=ran.oom_source))


def _lower_confidence(candidate: CauseCandidate) -> CauseCandidate:
    return replace(candidate, confidence="likely") if candidate.confidence == "certain" else candidate
