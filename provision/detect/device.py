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
    if traces:
        raise _make_broken_error(machine, traces)
    if machine.context.slurm == "login":
        raise MachineError(
            "This is a Slurm login node without a GPU. Only the compute nodes have GPUs",
            hint=f"Run `srun --gpus=1 {_name_program()} detect --json > node.json` once, then pass "
            f"{_pass('target', 'node.json')}. For an environment without a GPU, pass {_pass('device', 'cpu')}",
        )
    if wanted == "cuda":
        raise _make_no_driver_error(machine)
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
    if machine.driver.libcuda and machine.driver.libcuda.startswith("/usr/lib/wsl/"):
        traces.append(machine.driver.libcuda)
    if machine.driver.library and machine.driver.source == "nvml" and not traces:
        traces.append(f"driver {machine.driver.library}")
    traces += [f.title for f in machine.findings if f.cause in _DRIVER_ANSWERED]
    return tuple(dict.fromkeys(traces))


def _make_broken_error(machine: Machine, traces: tuple[str, ...]) -> MachineError:
    findings = machine.findings
    what = machine.driver.problem or (findings[0].title if findings else "its driver does not respond")
    fix = findings[0].fix if findings and findings[0].fix else "Run `nvidia-smi` and check its output."
    error = MachineError(
        f"This machine has NVIDIA hardware ({', '.join(traces)}), but CUDA cannot be used: {what}",
        hint=f"{fix} For an environment without a GPU, pass {_pass('device', 'cpu')}",
    )
    error.findings = findings
    return error


def _make_no_driver_error(machine: Machine) -> MachineError:
    findings = machine.findings
    what = machine.driver.problem or "no NVIDIA GPU found"
    fix = next((f.fix for f in findings if f.fix), "Run this on a machine with an NVIDIA driver.")
    sentence = "; ".join(f.title for f in findings if f.cause == "no_gpu_build_for_platform")
    error = MachineError(
        f"--device cuda was requested, but is not possible: {what}" + (f". {sentence}" if sentence else ""),
        hint=f"{fix} For another machine, pass {_pass('target', 'FILE')}, or --driver and --gpu",
    )
    error.findings = findings
    return error


def explain_cpu(machine: Machine, doing: str = "") -> str:
    """Return the reason for a CPU environment that was not requested and what gpuenv is `doing`, with warnings."""
    sentence = f"No NVIDIA GPU found{doing and f': {doing}'}"
    others = [f.title for f in machine.findings if f.cause == "no_gpu_build_for_platform"]
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
