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

from ..model import Finding, Profiles
from . import hardware, libraries, packages, processes
from .context import (
    Circumstances,
    Installed,
    Ran,
    Remarks,
    add_circumstances,
    add_environment,
    add_machine,
    find_contradicted,
    find_environment,
    say_that_driver_works,
)
from .facts import read_facts
from .findings import add_holders, add_installs, allow_for_cpu, rank
from .fixes import check
from .lines import read_log, unwrap
from .rules import Case, Judge, by_catalogue, by_rules, without, without_optional_parts
from .signs import describe, read_context

__all__ = ["Circumstances", "Installed", "Ran", "Remarks", "diagnose"]

JUDGES: tuple[Judge, ...] = (
    hardware.judge_driver,
    hardware.judge_free_memory,
    hardware.judge_reserved_memory,
    hardware.judge_kernel_module,
    hardware.judge_kernels,
    hardware.judge_platform,
    hardware.judge_hidden_gpus,
    libraries.judge_cudnn_versions,
    libraries.judge_missing_cudnn,
    libraries.judge_missing_cuda,
    libraries.judge_listed,
    libraries.judge_unopened,
    libraries.judge_missing_procedure,
    libraries.judge_zlib,
    packages.judge_jax_plugin,
    packages.judge_pins,
    packages.judge_emptied,
    packages.judge_known_bad,
    libraries.judge_system_library,
    packages.judge_half_removed,
    packages.judge_module,
    packages.judge_damaged_file,
    processes.judge_killed,
    processes.judge_host_memory,
    processes.judge_address_space,
    processes.judge_open_files,
    processes.judge_crash,
)


def diagnose(
    texts: Sequence[tuple[str, Iterable[bytes]]],
    profiles: Profiles,
    place: Circumstances,
    remarks: Remarks | None = None,
) -> tuple[Finding, ...]:
    """Return the causes that the texts show, the likeliest first. The result is empty if no cause is known.

    `texts` are (name, bytes in pieces). `remarks` receives the notes that are not findings.
    Raises DataError for invalid rules.
    """
    check(profiles)
    remarks = remarks or Remarks()

    # The relevant lines, without wrappers and without messages that are no failure.
    lines = [line for name, chunks in texts for line in unwrap(read_log(name, chunks))]
    lines = without_optional_parts(without(lines, profiles, "harmless"), profiles)

    # The facts: those of the text first, completed by the machine's and the environment's.
    facts = read_facts(lines, profiles.gpus)
    files, device_named = find_environment(place.installed, lines, facts, remarks)
    machine, device = place.machine, place.device or device_named
    if device == "cpu":
        lines = without(lines, profiles, "notices_without_gpu")
        facts = read_facts(lines, profiles.gpus)
        machine = machine and replace(machine, gpus=(), target=replace(machine.target, gpus=()))
    completed = {*(add_machine(facts, machine) if lines else ()), *add_environment(facts, files)}
    place = replace(place, machine=machine, device=device)
    add_circumstances(facts, place)
    ruled_out = find_contradicted(facts, machine) if lines and place.is_of_machine else set()
    case = Case(lines=lines, facts=facts, profiles=profiles, place=place, ruled_out=ruled_out)
    read_context(case)
    remarks.context = describe(case)

    # The candidates. The catalogue speaks where nothing else does.
    found = [*(c for judge in JUDGES for c in judge(case)), *by_rules(case)]
    found += by_catalogue(case, found)
    found += hardware.judge_no_gpu(case, found)
    found += packages.judge_unknown_module(case, found)
    if device == "cpu":
        found = allow_for_cpu(found, case)
    if not place.is_of_machine:  # then facts of this machine prove nothing
        found = [
            replace(c, confidence="likely")
            if c.confidence == "certain" and completed.intersection(c.evidence)
            else c
            for c in found
        ]

    # The findings, with what happened before and what happens beside.
    ordered = add_holders(add_installs(rank(found, case), case), case)
    if not ordered:
        remarks.crash = processes.describe_crash(lines, place.ran)
    elif lines and not place.is_of_machine:
        remarks.elsewhere = say_that_driver_works(ordered[0].cause, facts, machine)
    return ordered
