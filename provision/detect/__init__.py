"""Stage detect: reads this machine from NVML, libcuda, /proc and /sys."""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ..model import CONFIDENCES, Driver, HostContext, Machine, PythonInstallation, Target, TargetGpu
from ..system import process
from .device import judge_device
from .driver import DriverReading, read_driver
from .files import read_environment, read_libraries, read_platform
from .host import judge_hardware, judge_platform, read_context, read_hardware, read_wsl
from .pythons import read_pythons
from .query import read_holders

if TYPE_CHECKING:
    from ..model import Plan

__all__ = [
    "MACHINE", "PARTS", "WITH_CUDA", "detect", "explain_idle_gpu", "find_python", "judge_device", "list_pythons",
    "machine_for_verdict", "read_holders",
]  # fmt: skip

PARTS = ("driver", "context", "hardware", "pythons", "libraries", "environment")
MACHINE = frozenset({"driver", "context", "hardware", "environment"})
"""The parts that describe a machine for a plan or a lock."""
WITH_CUDA = (*PARTS, "cuda")
"""With the part "cuda", CUDA is started also where NVML gives GPUs. It takes seconds where there are many GPUs."""


def detect(
    parts: Collection[str] = PARTS,
    *,
    root: Path = Path("/"),
    environ: Mapping[str, str] | None = None,
    seconds: float = 30.0,
    cache: Path | None = None,
) -> Machine:
    """Read this machine, but only some parts of it (of WITH_CUDA). Platform and glibc are always read, the GPUs with the
    driver.

    `root` is the folder of /proc, /sys, /dev and /etc. `environ` replaces this process's environment. `seconds`
    is the deadline of nvidia-smi and of the child that calls libcuda: cuInit takes seconds on machines with
    many GPUs. `cache` is a folder for the answers of Pythons.

    A driver that does not work raises no error. The result then has `driver.problem` and a finding, which also needs
    the context and the hardware. Raise ValueError for an unknown part.
    """
    wrong = set(parts) - set(WITH_CUDA)
    if wrong:
        raise ValueError(f"unknown part of a machine: {', '.join(sorted(wrong))}")
    environ = process.environ() if environ is None else environ
    platform, glibc = read_platform()
    machine = platform.split("-")[1]
    reading = DriverReading(driver=Driver())
    if "driver" in parts:
        reading = read_driver(root, environ, machine, seconds, start_cuda="cuda" in parts)
    hardware = read_hardware(root) if "hardware" in parts else ()
    found = (*reading.findings, *judge_platform(platform), *judge_hardware(hardware))
    return Machine(
        target=_make_target(platform, glibc, reading, wsl="driver" in parts and read_wsl(root)),
        driver=reading.driver,
        gpus=reading.gpus,
        context=read_context(root, environ) if "context" in parts else HostContext(),
        hardware=hardware,
        pythons=read_pythons(root, environ, cache) if "pythons" in parts else (),
        libraries=read_libraries(root, environ, machine) if "libraries" in parts else (),
        environment=read_environment(environ) if "environment" in parts else {},
        findings=tuple(sorted(found, key=lambda f: CONFIDENCES.index(f.confidence))),
    )


def _make_target(platform: str, glibc: str | None, reading: DriverReading, *, wsl: bool) -> Target:
    """Return the part of the machine that a plan depends on.

    The driver's version is that of its library, or of the kernel module if no library answered.
    """
    driver = reading.driver
    version = driver.library or driver.kernel_module
    windows = wsl or platform.startswith("windows-")
    return Target(
        platform=platform,
        glibc=glibc,
        driver=version,
        driver_os=("windows" if windows else "linux") if version else None,
        driver_cuda=driver.cuda,
        gpus=tuple(TargetGpu(capability=g.capability, name=g.name) for g in reading.gpus if g.capability),
        forward_compat=reading.forward_compat if driver.source else None,
    )


def find_python(
    minor: str, machine: Machine | None, cache: Path | None, *, exact: str | None = None
) -> str | None:
    """Return the path of a Python of a minor version ("3.12") or of an `exact` one on this machine, or None.

    `machine` is this one if its Pythons were read. The answers of the interpreters are kept in `cache`.
    """
    for installed in (machine and machine.pythons) or list_pythons(cache):
        if ".".join(installed.version.split(".")[:2]) == minor and (
            exact is None or installed.version.startswith(exact)
        ):
            return installed.path
    return None


@functools.cache
def list_pythons(cache: Path | None) -> tuple[PythonInstallation, ...]:
    """Return the Pythons of this machine. A run reads them once."""
    return read_pythons(Path("/"), process.environ(), cache)


def machine_for_verdict(*, seconds: float = 30.0) -> Machine:
    """Return what a verdict depends on: driver, GPUs and relevant variables."""
    return detect({"driver", "environment"}, seconds=seconds)


def explain_idle_gpu(plan: Plan | None, device: str, *, elsewhere: bool) -> str | None:
    """Return why an environment for the CPU should use this machine's GPU if the requested `device` is auto, or None.

    Raises MachineError if NVIDIA hardware is present and its driver does not work.
    """
    if plan is None or plan.device != "cpu" or device != "auto" or elsewhere:
        return None
    machine = detect(MACHINE)
    found, why = judge_device("auto", machine)
    return why if found == "cuda" else None
