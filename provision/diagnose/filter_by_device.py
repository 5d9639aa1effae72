"""Select the messages and causes that count in an environment for the CPU.

On a machine without a GPU, frameworks print that they find none. An environment for the CPU expects that, so
these lines are dropped, and so are causes about GPUs (`about_gpu` in failures.yaml). A program or package that
requests a GPU remains a cause.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from ..model import FailureCause, FailureMessage, Finding
from .candidates import Case, CauseCandidate
from .lines import Line
from .pattern_search import without

_NOTICES = "notices_without_gpu"
_DEMANDS = (
    "cpu_build",
    "no_driver",
    "no_cuda_gpus",
    "no_device",
    "insufficient",
    "bad_ordinal",
    "deserialize",
)
"""Groups of messages of a program that requires a GPU and ends without one."""
_CUDA_LIBRARY = re.compile(
    r"lib(cud|cublas|cufft|cupti|curand|cusolver|cusparse|nccl|nv|torch_cuda)", re.IGNORECASE
)


def without_notices(lines: Sequence[Line], messages: Iterable[FailureMessage]) -> list[Line]:
    """Return the lines without a framework's notices about a missing GPU."""
    return without(lines, messages, _NOTICES)


def possible(candidates: Iterable[CauseCandidate], case: Case) -> list[CauseCandidate]:
    """Return the candidates that the environment's device allows."""
    if not case.for_cpu:
        return list(candidates)
    excluded = _list_excluded(case.profiles.causes)
    return [*(c for c in candidates if c.cause not in excluded), *_judge_library(case), *_judge_device(case)]


def remaining(findings: Iterable[Finding], case: Case) -> list[Finding]:
    """Return the findings of detect and verify that the environment's device allows."""
    excluded = _list_excluded(case.profiles.causes) if case.for_cpu else frozenset()
    return [f for f in findings if f.cause not in excluded]


def _list_excluded(causes: Iterable[FailureCause]) -> frozenset[str]:
    return frozenset(c.cause for c in causes if c.about_gpu)


def _judge_device(case: Case) -> list[CauseCandidate]:
    """Find a program that requests a GPU."""
    shows = next((evidence for name in _DEMANDS if (evidence := case.said.group(name))), ())
    if not shows:
        return []
    return [
        CauseCandidate(
            cause="cpu_only_build",
            weight=80,
            confidence="likely",
            evidence=shows[:1],
            title="This environment is for the CPU, but the program requests a GPU",
            fix="Let the program use the CPU (`device='cpu'`, `map_location='cpu'`), or create an environment for "
            "the GPU: `gpuenv create --recreate --device cuda`.",
        )
    ]


def _judge_library(case: Case) -> list[CauseCandidate]:
    """Find a package that requires a CUDA library."""
    missing = next((name for name in case.facts.all("missing") if _CUDA_LIBRARY.match(name)), None)
    if missing is None:
        return []
    return [
        CauseCandidate(
            cause="nvidia_libs_not_installed",
            weight=85,
            confidence="likely",
            evidence=case.facts.said("missing", re.compile(re.escape(missing)))[:1],
            title=f"This environment is for the CPU, but a package in it requires {missing}",
            fix="Install the CPU build of the package that the traceback names, or create an environment for the GPU: "
            "`gpuenv create --recreate --device cuda`.",
        )
    ]
