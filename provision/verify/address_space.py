"""A limit on address space (`ulimit -v`), which makes CUDA and frameworks report that memory ran out.

CUDA reserves tens of GiB of addresses that take no memory, so under such a limit a GPU with all its memory free
refuses a context. The limit is the cause then, and neither the GPU nor another process.
"""

from __future__ import annotations

import re
import resource
from collections.abc import Sequence

from ..model import Evidence, Finding, StageResult

CAUSE = "process_limit_reached"
_MEMORY_CAUSES = ("gpu_memory_exhausted", "preallocation_leaves_no_memory")
_REFUSED = re.compile(
    r"out of memory|OUT_OF_MEMORY|RESOURCE_EXHAUSTED|MemoryAllocation|MemoryError|bad_alloc|[Cc]annot allocate memory"
    r"(?! in static TLS)|failed to map segment|not enough memory|can't start new thread|[Rr]esource temporarily unavailable|Memory allocation still failed"
)
_ENDED = re.compile(r"ended by SIG(ABRT|SEGV|BUS|KILL|TRAP)")


def limit() -> int | None:
    """The bytes of address space that this process and its children may use; None where there is no limit."""
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if soft == resource.RLIM_INFINITY else soft


def explained(stages: Sequence[StageResult], findings: Sequence[Finding], *, full: bool) -> list[Finding]:
    """The findings, led by the limit where a stage failed for want of memory under it. `full` says that little
    memory of the GPU was free: then the limit is not the only cause."""
    allowed, failed = limit(), next((s for s in stages if s.status == "fail"), None)
    if allowed is None or failed is None or full:
        return list(findings)
    texts = [failed.detail, *(e.text for e in failed.evidence)]
    shown = next((t for t in texts if _REFUSED.search(t)), None)
    ended = next((t for t in texts if _ENDED.search(t)), None)
    if shown is None and (ended is None or findings):
        return list(findings)
    finding = Finding(
        cause=CAUSE,
        title=f"This shell allows a process {allowed >> 20} MiB of address space (ulimit -v), which is not enough",
        evidence=(
            Evidence(text=(shown or ended or "")[:300], source=failed.stage),
            Evidence(text=f"RLIMIT_AS is {allowed} bytes", source="getrlimit"),
        ),
        fix="Remove the limit (ulimit -v unlimited), or ask the scheduler for a job without one: CUDA reserves more "
        "addresses than the machine has memory.",
        confidence="likely" if shown else "possible",
    )
    return [finding, *(f for f in findings if f.cause not in _MEMORY_CAUSES)]
