"""Find the causes of a failure in its log, and their fixes.

Texts, tables and `Circumstances` are its input, findings its output. Of the machine it reads only the environment in which
gpuenv ran a program, and the program's own folders. Messages alone seldom prove a cause. So several kinds of evidence are
combined:

- rules and the catalogue: rows of profiles/failures.yaml, which list messages of programs and their causes;
- judges: comparisons of facts in the text with the tables, such as a GPU with an arch list, or a driver with the
  minimum of a CUDA version;
- findings of detect and verify.

A proof comes first, then certain causes, lower layers before upper ones, then the likeliest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from ..model import ContextValue, Finding, Profiles
from ..model.values import Value
from . import hardware, libraries, packages, processes
from .case import Candidate, Case, Circumstances, Installed, Ran
from .context import describe_elsewhere, find_contradicted, list_context, read_case
from .findings import add_holders, add_installs, join, make_finding, rank
from .lines import read_log, unwrap
from .messages import drop_messages, drop_optional_parts
from .rules import apply_catalogue, apply_rules, check_tables
from .slots import find_slots

__all__ = ["Circumstances", "Diagnosis", "Installed", "Ran", "find_causes"]

# In any order: none looks at what another one yields.
JUDGES: tuple[Callable[[Case], Iterator[Candidate]], ...] = (
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
    libraries.judge_listed_libraries,
    libraries.judge_unopened_libraries,
    libraries.judge_missing_procedure,
    libraries.judge_zlib,
    libraries.judge_cpu_environment,
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


class Diagnosis(Value):
    """The findings of a text, the likeliest first, notes, and what the texts say of their program and place.

    With findings the notes name the environment that was read, and say what works here although the text failed. Without,
    they describe a crash, with the next command.
    """

    findings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()
    context: tuple[ContextValue, ...] = ()


def find_causes(
    texts: Sequence[tuple[str, Iterable[bytes]]], profiles: Profiles, circumstances: Circumstances
) -> Diagnosis:
    """Return the causes that the texts show, and what else they say. There are no findings if no cause is known.

    `texts` are (name, bytes in pieces). Raises DataError for invalid rules.
    """
    check_tables(profiles)

    # The relevant lines, without wrappers and without messages that are no failure.
    lines = [line for name, chunks in texts for line in unwrap(read_log(name, chunks))]
    lines = drop_optional_parts(drop_messages(lines, profiles, "harmless"), profiles)

    # The facts: those of the text first, completed by the machine's and the environment's.
    case, note = read_case(lines, profiles, circumstances)

    # The candidates. A fact can contradict some. The catalogue speaks of causes that nothing else found, the last two
    # judges where nothing else speaks.
    judged = [*(c for judge in JUDGES for c in judge(case)), *apply_rules(case)]
    ruled_out = {c.cause for c in judged if not c.weight}
    if circumstances.is_of_machine:
        ruled_out.update(find_contradicted(case))
    found = [c for c in judged if c.weight]
    found += apply_catalogue(case, found)
    found += [*hardware.judge_no_gpu(case, found)]
    found += [*packages.judge_unknown_module(case, found)]

    # The findings in order: each with the words that its slots fill, with what happened before and what happens beside.
    proved, best = rank(found, case, ruled_out)
    findings = join(proved, [make_finding(c, find_slots(c, case), case) for c in best])
    findings = add_holders(add_installs(findings, case), case)
    notes = (
        (note, describe_elsewhere(findings[0].cause, case)) if findings else (processes.describe_crash(case),)
    )
    return Diagnosis(findings=findings, notes=tuple(filter(None, notes)), context=list_context(case))
