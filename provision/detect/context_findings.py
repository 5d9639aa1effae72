"""Explains a missing driver or GPU by the place: a job, WSL, a container, a notebook."""

from __future__ import annotations

from ..model import Confidence, Evidence, Finding
from .broken_driver_facts import DriverFacts

_STARTED_OTHERWISE = ("kubernetes", "podman", "apptainer")
"""Kinds of containers that get a GPU by other options than docker's."""


def judge_slurm(facts: DriverFacts) -> Finding | None:
    """Return the finding for a Slurm job that requested no GPU. Slurm hides GPUs from it (ConstrainDevices)."""
    if facts.context.slurm != "job" or not facts.kernel_module:
        return None
    return facts.make_finding("slurm_job_without_gpu", "likely")


def judge_wsl(facts: DriverFacts) -> Finding | None:
    """Return the finding for WSL without a driver. WSL gets its driver from Windows."""
    if not facts.context.wsl:
        return None
    offered = _is_offered(facts)
    if offered and facts.cuda.code is None and not facts.libcuda:
        return facts.make_finding("wsl_folder_not_on_path", "certain")
    dxg = any(node.path == "/dev/dxg" for node in facts.nodes)
    evidence = Evidence(text="present" if dxg else "absent", source="/dev/dxg")
    hidden = facts.context.container is not None  # a container gets this folder only by an option
    confidence: Confidence = "likely" if offered or hidden else "certain"
    return facts.make_finding("wsl_without_working_driver", confidence, evidence)


def _is_offered(facts: DriverFacts) -> bool:
    return any(h.address.startswith("/usr/lib/wsl/") for h in facts.hardware)


def judge_container(facts: DriverFacts) -> Finding | None:
    """Return the finding for a container without a GPU or driver libraries, which come from its host."""
    kind = facts.context.container
    if any(node.path != "/dev/dxg" for node in facts.nodes):
        return None
    if facts.context.colab:
        evidence = Evidence(text="no /dev/nvidia* in this runtime", source="Colab")
        return facts.make_finding("colab_without_gpu", "likely", evidence)
    if not kind:
        return None
    host = bool(facts.kernel_module) or facts.boards
    program = kind if kind in _STARTED_OTHERWISE else "container"
    evidence = Evidence(text="no /dev/nvidia* in this container", source=kind)
    name = f"{program}_without_hosts_gpu" if host else f"{program}_without_gpu"
    return facts.make_finding(name, "certain" if host else "possible", evidence)


def list_missing_beside_stub(facts: DriverFacts) -> tuple[Finding, ...]:
    """Return what else is missing if the loader finds a toolkit's stub and no kernel module is loaded."""
    if facts.kernel_module or (facts.context.wsl and _is_offered(facts)):
        return ()
    return (judge_wsl(facts) or judge_container(facts) or explain_missing_driver(facts),)


def explain_missing_driver(facts: DriverFacts) -> Finding:
    """Return that no driver is installed, or in a container none of its host's."""
    if facts.kernel_module:
        no_library = facts.nvml.code is None and facts.cuda.code is None
        name = "driver_without_libraries" if no_library else "driver_does_not_work"
        return facts.make_finding(name, "certain", module=facts.kernel_module)
    if facts.boards or any(h.vendor == "nvidia" for h in facts.hardware):
        return facts.make_finding("gpu_without_driver", "certain")
    return facts.make_finding("no_driver_and_no_gpu", "likely")
