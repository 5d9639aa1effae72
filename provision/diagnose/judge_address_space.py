"""Judge a GPU without processes that runs out of memory in a process with limited address space."""

from __future__ import annotations

import re

from ..model import Confidence, Evidence
from .candidates import Case, CauseCandidate
from .pattern_search import evidence

_USED = re.compile(r"\b(\d{1,7}) ?MiB(?: ?/ ?|, )(\d{2,7}) ?MiB")
_EMPTY = 0.05  # of the GPU's memory: what the desktop or the driver uses


def limited(case: Case) -> list[CauseCandidate]:
    """Find a limit on address space, which CUDA needs for the memory of the machine and of all GPUs."""
    limits = case.said.group("address_space_limited")
    shows = case.said.group("oom") or case.said.group("oom_xla") or case.said.group("cuinit_unknown")
    if not limits or not shows:
        return []
    unused = _find_unused(case)
    if unused is None:
        return []
    confidence: Confidence = "likely" if unused else "possible"
    return [
        CauseCandidate(
            cause="process_limit_reached", weight=90 if unused else 56, confidence=confidence,
            evidence=(*limits[:1], *unused, *shows[:1]),
            title="The address space of the process is limited, and CUDA needs more of it than the job allows",
            fix="Remove the limit: `ulimit -v unlimited`, or a job without a limit on virtual memory (h_vmem, vmem).",
        )
    ]  # fmt: skip


def _find_unused(case: Case) -> tuple[Evidence, ...] | None:
    """Return the lines of a GPU without load, or None if the text shows only GPUs in use."""
    loads = [
        (int(match.group(1)) / int(match.group(2)), line)
        for line in case.said.lines
        for match in _USED.finditer(line.text)
        if int(match.group(2))
    ]
    unused = tuple(evidence(line) for share, line in loads if share < _EMPTY)[:1]
    return None if loads and not unused else unused
