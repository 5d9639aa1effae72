"""Decides whether an environment on this machine is for CUDA or for the CPU."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

from ..errors import MachineError
from ..model import Device, Machine
from ..system import process
from .host import WSL_LIBCUDA


def judge_device(wanted: Device, machine: Machine) -> tuple[Device, str]:
    """Return "cuda" or "cpu" for a machine, and one sentence that says why.

    The parts driver, gpus, context, hardware and environment must have been read. A GPU server never silently
    gets a CPU environment. Raise MachineError (exit 4) with the findings in three cases: NVIDIA hardware whose
    driver does not work, a Slurm login node, and a request for "cuda" that is impossible.
    """
    if wanted == "cpu":
        return "cpu", "--device cpu was asked for"
    if machine.gpus and not machine.driver.problem:
        names = ", ".join(dict.fromkeys(gpu.name or "a GPU of unknown name" for gpu in machine.gpus))
        driver = f"driver {machine.driver.library}" if machine.driver.library else "a driver"
        return "cuda", f"this machine has {names} and {driver}"
    traces = list_nvidia_traces(machine)
    problem = machine.driver.problem
    if traces:
        what = problem or next((f.title for f in machine.findings), "its driver does not respond")
        raise _make_error(
            machine, f"This machine has NVIDIA hardware ({', '.join(traces)}), but CUDA cannot be used: {what}",
            "Run `nvidia-smi` and check its output.",
            f"For an environment without a GPU, pass {_pass('device', 'cpu')}",
        )  # fmt: skip
    if machine.context.slurm == "login":
        raise MachineError(
            "This is a Slurm login node without a GPU. Only the compute nodes have GPUs",
            hint=f"Run `srun --gpus=1 {_name_program()} detect --json > node.json` once, then pass "
            f"{_pass('target', 'node.json')}. For an environment without a GPU, pass {_pass('device', 'cpu')}",
        )
    if wanted == "cuda":
        reasons = "; ".join(f.title for f in machine.findings if f.cause == "no_gpu_build_for_platform")
        what = f"{problem or 'no NVIDIA GPU found'}{reasons and f'. {reasons}'}"
        raise _make_error(
            machine, f"--device cuda was requested, but is not possible: {what}",
            "Run this on a machine with an NVIDIA driver.",
            f"For another machine, pass {_pass('target', 'FILE')}, or --driver and --gpu",
        )  # fmt: skip
    return "cpu", explain_cpu(machine)


def _pass(option: str, value: str) -> str:
    """Return how to give an option a value: as it is typed, or as a variable where make types the command line."""
    if "MAKELEVEL" in process.environ():
        return f"GPUENV_{option.upper()}={value} to make"
    return f"`--{option} {value}`"


def _name_program() -> str:
    """Return gpuenv as it can be typed: make starts one that is not on PATH."""
    named = "MAKELEVEL" in process.environ() and Path(sys.argv[0]).name == "gpuenv"
    return shlex.quote(sys.argv[0]) if named else "gpuenv"


# Causes that show hardware, even if there is no device file and no PCI device.
_DRIVER_ANSWERED = (
    "driver_library_mismatch",
    "fabricmanager_not_running",
    "forward_compat_unsupported_hw",
    "gpu_busy_exclusive",
    "gpu_device_access_denied",
    "gpu_hardware_fault",
    "nvidia_uvm_stale",
)


def list_nvidia_traces(machine: Machine) -> tuple[str, ...]:
    """Return the signs of NVIDIA hardware or a driver, in words.

    Signs are device files, PCI devices, the kernel module, WSL's libcuda, and a driver that answers without a
    GPU.
    """
    traces = []
    for item in machine.hardware:
        if item.vendor != "nvidia":
            continue
        if item.address.startswith("/"):
            traces.append(item.address)
        else:
            traces.append(f"NVIDIA device {item.device or ''} at {item.address}".replace("  ", " "))
    if machine.driver.kernel_module:
        traces.append(f"kernel module nvidia {machine.driver.kernel_module}")
    if machine.driver.library and machine.driver.source == "nvml" and not traces:
        traces.append(f"driver {machine.driver.library}")
    traces += [f.title for f in machine.findings if f.cause in _DRIVER_ANSWERED]
    return tuple(dict.fromkeys(traces))


def _make_error(machine: Machine, problem: str, fix: str, choice: str) -> MachineError:
    """Return an error with the findings: why CUDA cannot be used, and the first fix, or `fix` if none is known."""
    findings = machine.findings
    fix = next((f.fix for f in findings if f.fix), fix)
    error = MachineError(problem, hint=f"{fix} {choice}")
    error.findings = findings
    return error


def explain_cpu(machine: Machine, doing: str = "") -> str:
    """Return the reason for a CPU environment that was not requested and what gpuenv is `doing`, with warnings."""
    reasons = [e.text for f in machine.findings for e in f.evidence if e.source == "nvml"]
    broken = machine.driver.libcuda and reasons
    found = f"No working NVIDIA driver ({reasons[0]})" if broken else "No NVIDIA GPU found"
    sentence = f"{found}{doing and f': {doing}'}"
    others = [f.title for f in machine.findings if f.cause == "no_gpu_build_for_platform"]
    if broken:
        others.append(
            "`gpuenv detect` names the cause and its fix. With a working driver the same command is for the GPU"
        )
    warnings = []
    if machine.context.wsl:
        warnings.append(f"this is WSL, but Windows offers it no GPU ({WSL_LIBCUDA} is absent)")
    if machine.context.colab:
        warnings.append(
            "the notebook's runtime has no GPU: select Runtime > Change runtime type, then select a GPU"
        )
    visible = machine.environment.get("NVIDIA_VISIBLE_DEVICES", "")
    if not machine.context.colab and visible not in ("", "void", "none"):
        warnings.append(
            f"NVIDIA_VISIBLE_DEVICES={visible} is set, as CUDA images do, but no GPU was given to this container"
        )
    return ". ".join([sentence, *others, *(f"Warning: {text}" for text in warnings)])
