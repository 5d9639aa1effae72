"""What a machine is: its GPUs, its driver, its Pythons and libraries, and the target made of it."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import ClassVar

from provision.model.shared_words import Confidence


@dataclass(frozen=True, kw_only=True, slots=True)
class TargetGpu:
    """A GPU that a plan must serve: compute capability "9.0", board name where known."""

    FORMS: ClassVar[dict[str, str]] = {"capability": r"\d{1,2}\.\d{1,2}"}

    capability: str
    name: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """The machine an environment is meant for, as far as a plan depends on it.

    `driver` None means no limit by the driver; no `gpus` means no limit by GPUs.
    `driver_os` is "windows" in WSL, where driver numbers and floors are those of Windows.
    `forward_compat` is the CUDA that a cuda-compat libcuda speaks, where one is in use.
    """

    SCHEMA: ClassVar[str] = "gpuenv.target/1"
    FORMS: ClassVar[dict[str, str]] = {
        "glibc": r"\d{1,3}\.\d{1,4}", "driver": r"\d{1,6}(\.\d{1,6}){0,4}", "driver_cuda": r"\d{1,3}(\.\d{1,3})?",
        "forward_compat": r"\d{1,3}(\.\d{1,3})?",
    }  # fmt: skip

    platform: str
    glibc: str | None = None
    driver: str | None = None
    driver_os: str | None = None
    driver_cuda: str | None = None
    gpus: tuple[TargetGpu, ...] = ()
    forward_compat: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Gpu:
    """One physical GPU of this machine. `index` is NVML's, `memory_mib` the whole memory in MiB,
    `mig` the UUIDs of its MIG devices (empty when MIG is off)."""

    index: int
    name: str | None = None
    capability: str | None = None
    uuid: str | None = None
    memory_mib: int | None = None
    mig: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Driver:
    """Versions of the user-mode driver library and of the kernel module: they must be equal.

    `source` says who told: nvml, libcuda, proc, sys or nvidia-smi. `libcuda` is the file that
    the loader finds for libcuda.so.1, `problem` why the driver cannot be used (None when it can).
    """

    library: str | None = None
    kernel_module: str | None = None
    cuda: str | None = None
    source: str | None = None
    libcuda: str | None = None
    problem: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class HostContext:
    """Where gpuenv runs. `container` is a kind ("docker", "podman", "kubernetes", "apptainer",
    "other"), `slurm` is "login" or "job"."""

    container: str | None = None
    wsl: bool = False
    colab: bool = False
    slurm: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class HardwareDevice:
    """A display or accelerator device seen on the PCI bus, or a board recognised otherwise."""

    vendor: str
    address: str
    device: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class PythonInstallation:
    """A CPython found on this machine. `source`: path, pyenv, uv, conda or system."""

    path: str
    version: str
    source: str


@dataclass(frozen=True, kw_only=True, slots=True)
class LibraryFile:
    """A cuDNN or CUDA file. `owner` is the distribution whose file it is, `inside` whether it
    lies in the environment judged (None where no environment is). `ran` is whether something shows that it was used:
    None where it was loaded and nothing shows either."""

    soname: str
    path: str
    version: str | None = None
    owner: str | None = None
    inside: bool | None = None
    ran: bool | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Evidence:
    """Words that show something: where they stand (`source`), at which line (1-based)."""

    text: str
    source: str | None = None
    line: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """A cause (a label of the taxonomy), what shows it, and what to do about it."""

    cause: str
    title: str
    evidence: tuple[Evidence, ...] = ()
    fix: str | None = None
    confidence: Confidence = "likely"


@dataclass(frozen=True, kw_only=True, slots=True)
class Machine:
    """What `detect` saw of this machine; parts that were not asked for stay empty."""

    SCHEMA: ClassVar[str] = "gpuenv.machine/1"

    target: Target
    driver: Driver = Driver()
    gpus: tuple[Gpu, ...] = ()
    context: HostContext = HostContext()
    hardware: tuple[HardwareDevice, ...] = ()
    pythons: tuple[PythonInstallation, ...] = ()
    libraries: tuple[LibraryFile, ...] = ()
    environment: dict[str, str] = dataclasses.field(default_factory=dict)
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class GpuMemoryHolder:
    """A process that holds GPU memory. `gpu` is NVML's index, None where only its open device file is
    known; `framework` is one that reserves nearly the whole GPU by itself (jax, tensorflow)."""

    pid: int
    gpu: int | None = None
    memory_mib: int | None = None
    name: str | None = None
    framework: str | None = None
