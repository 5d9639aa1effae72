"""Explains why the driver cannot be used: facts in, findings out.

The rules run in the order of the causes in the profiles, driver first. An error code of a library goes before
what is only inferred.
"""

from __future__ import annotations

from dataclasses import replace

from ..model import Evidence, Finding
from .broken_driver_facts import DriverFacts
from .context_findings import (
    explain_missing_driver,
    judge_container,
    judge_slurm,
    judge_wsl,
    list_missing_beside_stub,
)
from .uvm import judge_uvm

NVML_NO_PERMISSION, NVML_NOT_LOADED, NVML_GPU_LOST = 4, 9, 15
NVML_MISMATCH, NVML_UNKNOWN = 18, 999
CUDA_STUB, CUDA_NO_DEVICE, CUDA_NOT_READY = 34, 100, 802
CUDA_MISMATCH, CUDA_COMPAT, CUDA_UNKNOWN = 803, 804, 999


def explain(facts: DriverFacts) -> tuple[str, tuple[Finding, ...]]:
    """Return the problem and the findings, the likeliest first, for a driver that gave no usable GPU."""
    rules = (
        _find_mismatch,
        _find_stub,
        _find_denied,
        _judge_code,
        _find_hang,
        judge_slurm,
        judge_wsl,
        judge_container,
        _find_missing_files,
        _find_module_fault,
        _find_library_fault,
    )
    finding = next((f for rule in rules if (f := rule(facts))), None) or explain_missing_driver(facts)
    if finding.cause == "cuda_stub_library_loaded":
        return finding.title, (finding, *list_missing_beside_stub(facts))
    return finding.title, (finding,)


def explain_cuda(facts: DriverFacts) -> Finding | None:
    """Return why CUDA does not start although NVML gives GPUs.

    Return None if CUDA starts, or if its code says too little.
    """
    if facts.cuda.ok or (facts.cuda.code is None and not facts.cuda.hung):
        return None
    rules = (_find_mismatch, _find_stub, _find_denied, _judge_code, _find_hang)
    return next((finding for rule in rules if (finding := rule(facts))), None)


def _find_mismatch(facts: DriverFacts) -> Finding | None:
    if facts.nvml.code != NVML_MISMATCH and facts.cuda.code != CUDA_MISMATCH:
        return None
    library = facts.library or "version unknown"
    name = "detected_versions_differ_in_container" if facts.context.container else "detected_versions_differ"
    module = facts.kernel_module or "version unknown"
    return facts.make_finding(name, "certain", library=library, module=module)


def _find_stub(facts: DriverFacts) -> Finding | None:
    if facts.cuda.code != CUDA_STUB:
        return None
    path = facts.cuda.path or "libcuda.so.1"
    folder = path.rpartition("/")[0] or "the stubs folder"
    return facts.make_finding("detected_stub", "certain", library=path, folder=folder)


def _find_denied(facts: DriverFacts) -> Finding | None:
    locked = [node for node in facts.nodes if not node.allowed]
    codes = (facts.nvml.code, *(trouble.code for trouble in facts.nvml.troubles))
    by_code = NVML_NO_PERMISSION in codes
    if not by_code and not locked:
        return None
    names = ", ".join(node.path for node in locked) or "/dev/nvidia*"
    evidence = tuple(Evidence(text=f"mode {node.mode}, access denied", source=node.path) for node in locked)
    name = "detected_access_denied_in_container" if facts.context.container else "detected_access_denied"
    return facts.make_finding(name, "certain" if by_code else "likely", *evidence, files=names)


def _judge_code(facts: DriverFacts) -> Finding | None:
    if facts.cuda.code == CUDA_NOT_READY:
        return facts.make_finding("detected_fabric_manager", "certain")
    if facts.cuda.code == CUDA_COMPAT:
        return facts.make_finding("detected_compat_library", "certain", library=facts.cuda.path)
    if NVML_GPU_LOST in (facts.nvml.code, *(trouble.code for trouble in facts.nvml.troubles)):
        return facts.make_finding("a_gpu_lost", "certain")
    if facts.nvml.code == NVML_UNKNOWN and facts.context.container and facts.nodes:
        return facts.make_finding("detected_lost_cgroup", "likely")
    if facts.cuda.code == CUDA_UNKNOWN and facts.nvml.ok:
        container = facts.context.container is not None
        finding = judge_uvm(facts.uvm, facts.kernel_module, container=container)
        return replace(finding, evidence=(*finding.evidence, *facts.answers, *facts.traces))
    return None


def _find_hang(facts: DriverFacts) -> Finding | None:
    if not facts.cuda.hung:
        return None
    return facts.make_finding("driver_hangs", "possible", call=facts.cuda.hung)


def _find_missing_files(facts: DriverFacts) -> Finding | None:
    """Return the finding for a loaded module and installed libraries without device files."""
    if not facts.kernel_module or any(node.path == "/dev/nvidiactl" for node in facts.nodes):
        return None
    if facts.nvml.ok or (facts.nvml.code != NVML_NOT_LOADED and facts.cuda.code != CUDA_NO_DEVICE):
        return None
    evidence = Evidence(text="absent", source="/dev/nvidiactl")
    return facts.make_finding("control_file_missing", "likely", evidence)


def _find_module_fault(facts: DriverFacts) -> Finding | None:
    libraries = facts.nvml.code is not None or facts.cuda.code not in (None, CUDA_STUB)
    if facts.kernel_module and not (facts.nvml.ok or facts.nvml.code == NVML_NOT_LOADED):
        return None
    if not (libraries and (facts.boards or facts.nvml.code == NVML_NOT_LOADED or facts.nvml.ok)):
        return None
    if facts.nvml.ok:
        name = "module_serves_no_gpu"
    elif facts.kernel_module:
        name = "module_does_not_answer"
    else:
        name = "module_not_loaded"
    evidence = (Evidence(text="nouveau is loaded", source="/sys/module/nouveau"),) if facts.nouveau else ()
    return facts.make_finding(name, "certain", *evidence, module=facts.kernel_module)


def _find_library_fault(facts: DriverFacts) -> Finding | None:
    """Return the finding if only nvidia-smi works, or if the module is loaded and no driver library is found."""
    if facts.nvml.code is not None or facts.cuda.code not in (None, CUDA_STUB):
        return None
    if facts.smi and facts.smi.ok:
        return facts.make_finding("detected_library_not_found", "certain")
    return None
