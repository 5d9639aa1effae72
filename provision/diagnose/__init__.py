"""diagnose: from a log to its cause and fix. Pure: texts, a machine, a verdict and tables in; findings out.

Words alone seldom prove a cause, so three kinds of evidence are joined: rules (rows of
profiles/failures.yaml: what programs print, and what it can mean), judges (facts of the text held
against the tables: a card against an arch list, a driver against a CUDA's floor, a loaded against a
built cuDNN, a missing soname against what is installed), and what detect and verify proved. A proof
comes first, then what is certain, the lower layer before the upper one, then the likeliest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from ..model import (
    Device,
    Evidence,
    Finding,
    GpuMemoryHolder,
    Machine,
    Plan,
    Profiles,
    Request,
    Target,
    Verdict,
)
from .candidates import Candidate, Case
from .catalogue import by_catalogue
from .cause_judges import JUDGES
from .cpu_environment import possible, without_notices
from .fact_readers import read_facts
from .facts import Facts
from .gpu_memory_holders import with_holders
from .installed_facts import Installed, add_facts, applicable, device_of
from .installer_output import with_installs
from .judge_crash import describe
from .log_lines import Line, read
from .log_wrappers import unwrapped
from .machine_evidence import contradicted, hidden_gpus, machine_facts
from .message_patterns import Said, without
from .notes import Remarks
from .program_exit import Ran
from .ranking import findings
from .rules import by_rules, check

__all__ = ["Installed", "Ran", "Remarks", "diagnose"]

Advise = Callable[[Request, Target], Plan]
Serves = Callable[[Sequence[str], str], bool]


def diagnose(
    texts: Sequence[tuple[str, Iterable[bytes]]],
    *,
    profiles: Profiles,
    serves: Serves,
    advise: Advise | None = None,
    machine: Machine | None = None,
    verdict: Verdict | None = None,
    here: bool = False,
    device: Device | None = None,
    holders: Callable[[], Sequence[GpuMemoryHolder]] | None = None,
    ran: Ran | None = None,
    remarks: Remarks | None = None,
    installed: Installed | None = None,
) -> tuple[Finding, ...]:
    """The causes of what the texts show, the likeliest first; empty where nothing is known. `device` is what the
    environment was made for, where that is known: with "cpu" no cause needs a GPU.

    `texts` are (name, bytes in pieces); `serves(kernels, capability)` says whether a GPU runs any of the
    kernels; `advise` makes a plan for the target of the text or machine, for fixes with real versions.
    `here` says that the texts were written on `machine`, a moment ago; `holders` asks who holds the
    memory of its GPUs now, and is called only where that is the question. `ran` is how the program ended, where
    gpuenv ran it. `remarks` gets what is no finding. `installed` is the environment
    that the texts are probably of.
    Raises DataError for rules that cannot be meant.
    """
    check(profiles)
    lines: list[Line] = [line for name, chunks in texts for line in unwrapped(read(name, chunks))]
    lines = without(lines, profiles.messages, "harmless")
    facts = read_facts(lines, profiles.gpus) if lines else Facts()
    installed = applicable(installed, lines, facts, remarks)
    device = device or device_of(installed, lines)
    if device == "cpu":
        lines = without_notices(lines, profiles.messages)
        machine = replace(machine, gpus=(), target=replace(machine.target, gpus=())) if machine else None
        facts = read_facts(lines, profiles.gpus) if lines else Facts()
    seen_here = machine_facts(facts, machine) if lines else ()
    seen_here += add_facts(facts, installed)
    ruled_out = contradicted(facts, machine) if lines and here else set()
    if ran and ran.oom_kills is not None:
        facts.add(
            "oom_kills",
            str(ran.oom_kills),
            Evidence(text=f"oom_kill rose by {ran.oom_kills}", source=ran.oom_source),
        )
    said = Said(lines, profiles.messages, profiles.failures, profiles.catalogue)
    case = Case(
        facts=facts,
        said=said,
        profiles=profiles,
        serves=serves,
        for_cpu=device == "cpu",
        ran=ran,
        ruled_out=ruled_out,
    )
    judged = [*(c for judge in JUDGES for c in judge(case)), *by_rules(case)]
    judged += hidden_gpus(case, machine) if here else []
    found = possible([*judged, *by_catalogue(case, judged)], case)
    if not here:  # it may have been written on another machine
        found = [_less_sure(c) if set(seen_here) & set(c.evidence) else c for c in found]
    ordered = findings(found, case, advise, machine, verdict, here=here)
    if remarks and not ordered:
        remarks.crash = describe(lines)
    ordered = with_installs(ordered, case, profiles.causes, lines)
    return with_holders(ordered, case, machine, holders) if holders else ordered


def _less_sure(candidate: Candidate) -> Candidate:
    return replace(candidate, confidence="likely") if candidate.confidence == "certain" else candidate
