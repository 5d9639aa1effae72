"""An environment that was made for the CPU: which messages count, and which causes remain.

Frameworks print on every machine without a GPU that they find none. In an environment for the CPU that is as
expected, so such lines are dropped, and so is every cause that is about GPUs (`about_gpu` in failures.yaml). What
remains of them is a program or package that asks for a GPU and gets none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from ..model import FailureCause, FailureMessage, Finding
from .candidates import Candidate, Case
from .log_lines import Line
from .message_patterns import without

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
"""Groups of messages of a program that asks for a GPU and ends because there is none."""
_CUDA_LIBRARY = re.compile(
    r"lib(cud|cublas|cufft|cupti|curand|cusolver|cusparse|nccl|nv|torch_cuda)", re.IGNORECASE
)


def without_notices(lines: Sequence[Line], messages: Iterable[FailureMessage]) -> list[Line]:
    """The lines without those that a framework prints on every machine without a GPU."""
    return without(lines, messages, _NOTICES)


def possible(candidates: Iterable[Candidate], case: Case) -> list[Candidate]:
    """The candidates that an environment for the CPU allows; all of them where it was not made for the CPU."""
    if not case.for_cpu:
        return list(candidates)
    excluded = _excluded(case.profiles.causes)
    return [*(c for c in candidates if c.cause not in excluded), *_library(case), *_device(case)]


def remaining(findings: Iterable[Finding], case: Case) -> list[Finding]:
    """The findings of the machine and of verify that an environment for the CPU allows."""
    excluded = _excluded(case.profiles.causes) if case.for_cpu else frozenset()
    return [f for f in findings if f.cause not in excluded]


def _excluded(causes: Iterable[FailureCause]) -> frozenset[str]:
    return frozenset(c.cause for c in causes if c.about_gpu)


def _device(case: Case) -> list[Candidate]:
    """The program asks for a GPU."""
    shows = next((found for name in _DEMANDS if (found := case.said.group(name))), ())
    if not shows:
        return []
    return [
        Candidate(
            cause="cpu_only_build",
            weight=80,
            confidence="likely",
            evidence=shows[:1],
            title="This environment was made for the CPU, and the program asks for a GPU",
            fix="Let the program use the CPU (`device='cpu'`, `map_location='cpu'`), or make an environment for "
            "the GPU: `gpuenv create --recreate --device cuda`.",
        )
    ]


def _library(case: Case) -> list[Candidate]:
    """A package asks for a library of CUDA."""
    missing = next((name for name in case.facts.all("missing") if _CUDA_LIBRARY.match(name)), None)
    if missing is None:
        return []
    return [
        Candidate(
            cause="nvidia_libs_not_installed",
            weight=85,
            confidence="likely",
            evidence=case.facts.said("missing", re.compile(re.escape(missing)))[:1],
            title=f"This environment was made for the CPU, and a package in it needs {missing}",
            fix="Install the CPU build of the package that the traceback names, or make an environment for the GPU: "
            "`gpuenv create --recreate --device cuda`.",
        )
    ]
