"""Add the processes that use the GPU's memory to findings."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from ..model import Evidence, Finding, GpuMemoryHolder, Machine
from .candidates import Case

_SWITCH = {
    "jax": "XLA_PYTHON_CLIENT_PREALLOCATE=false",
    "tensorflow": "TF_FORCE_GPU_ALLOW_GROWTH=true",
}
_DECIDED = ("gpu_memory_exhausted", "preallocation_leaves_no_memory", "gpu_busy_exclusive")
_SHOWN = 3


def with_holders(
    findings: Sequence[Finding],
    case: Case,
    machine: Machine | None,
    holders: Callable[[], Sequence[GpuMemoryHolder]],
) -> tuple[Finding, ...]:
    """Return the findings. Add the current processes to those of a full or busy GPU."""
    said = case.facts.first("driver")
    elsewhere = machine is not None and said not in (None, machine.driver.library)
    if elsewhere or not any(f.cause in _DECIDED for f in findings):
        return tuple(findings)
    processes = tuple(holders())[:_SHOWN]
    return tuple(
        _add_holders(f, processes, machine) if processes and f.cause in _DECIDED else f for f in findings
    )


def _is_worth_ending(holder: GpuMemoryHolder, machine: Machine | None) -> bool:
    """Return whether ending the process helps. A desktop's 300 MiB do not matter to a job."""
    if holder.memory_mib is None:
        return True
    gpus = machine.gpus if machine else ()
    total = next((g.memory_mib for g in gpus if g.index == holder.gpu), None)
    return holder.memory_mib * 10 >= (total or 10240)


def _add_holders(finding: Finding, processes: Sequence[GpuMemoryHolder], machine: Machine | None) -> Finding:
    """Add the processes to a finding. A fix that names the process already stays."""
    evidence = tuple(
        Evidence(text=_describe_holder(h), source="/dev/nvidia*" if h.gpu is None else "NVML, measured now")
        for h in processes
    )
    if f"process {processes[0].pid}" in (finding.fix or ""):
        return finding
    finding = dataclasses.replace(finding, evidence=(*finding.evidence, *evidence))
    first, busy = processes[0], finding.cause == "gpu_busy_exclusive"
    if not busy and not _is_worth_ending(first, machine):
        return finding
    what = f"process {first.pid} ({first.name or 'unknown'})"
    fix = f"End {what}, which {_describe_amount(first)}."
    if first.framework and not busy:
        fix = f"{fix[:-1]}, or start it with {_SWITCH[first.framework]}."
    return dataclasses.replace(finding, fix=f"{fix} {finding.fix or ''}".strip())


def _describe_amount(holder: GpuMemoryHolder) -> str:
    if holder.gpu is None:
        return "has a GPU open on this machine"
    if holder.memory_mib is None:
        return f"uses GPU {holder.gpu} of this machine"
    return f"holds {holder.memory_mib} MiB of GPU {holder.gpu} on this machine"


def _describe_holder(holder: GpuMemoryHolder) -> str:
    framework = f", {holder.framework}" if holder.framework else ""
    return f"process {holder.pid} ({holder.name or 'unknown'}{framework}) {_describe_amount(holder)}"
