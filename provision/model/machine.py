"""A machine: its GPUs, driver, Pythons and libraries, and the target of a plan."""

import dataclasses
from dataclasses import field
from typing import ClassVar

from .values import Value
from .words import Confidence


class TargetGpu(Value):
    """A GPU that a plan must support: its compute capability ("9.0"), and the name of the board if known."""

    FORMS: ClassVar = {"capability": r"\d{1,2}\.\d{1,2}"}

    capability: str
    name: str | None = None


class Target(Value):
    """The properties of a machine that a plan depends on.

    `driver` None means no limit by the driver. No `gpus` mean no limit by GPUs. `driver_os` is "windows" in WSL,
    because driver numbers and floors are those of Windows. `forward_compat` is the CUDA release of a cuda-compat
    libcuda in use. `driver_branch` is the branch ("580") or shortened release ("580.65") that was given, if `driver`
    is the release that it was completed to.
    """

    SCHEMA = "gpuenv.target/1"
    FORMS: ClassVar = {
        "glibc": r"\d{1,3}\.\d{1,4}", "driver": r"\d{1,6}(\.\d{1,6}){0,4}", "driver_cuda": r"\d{1,3}(\.\d{1,3})?",
        "forward_compat": r"\d{1,3}(\.\d{1,3})?",
    }  # fmt: skip
    EXAMPLES: ClassVar = {"glibc": "2.35", "driver": "580.65.06"}

    platform: str
    glibc: str | None = None
    driver: str | None = None
    driver_os: str | None = None
    driver_cuda: str | None = None
    gpus: tuple[TargetGpu, ...] = ()
    forward_compat: str | None = None
    driver_branch: str | None = field(default=None, metadata={"internal": True})

    @property
    def allowed_compat(self) -> str | None:
        """The CUDA of a forward-compatibility libcuda, which GeForce and Titan boards never use (error 804; CUDA
        Compatibility, Forward Compatibility)."""
        names = " ".join(g.name or "" for g in self.gpus).lower()
        return None if "geforce" in names or "titan" in names else self.forward_compat

    @property
    def words(self) -> str:
        """The machine in words: "linux-x86_64, glibc 2.35, driver 580.95.05, NVIDIA B200 (10.0)"."""
        named = [f"{k} {v}" for k, v in (("glibc", self.glibc), ("driver", self.driver)) if v]
        return ", ".join([self.platform, *named, *(f"{g.name or 'GPU'} ({g.capability})" for g in self.gpus)])


class Gpu(Value):
    """One physical GPU. `index` is NVML's, and `memory_mib` the whole memory in MiB.

    `mig` are the UUIDs of its MIG devices, empty if MIG is off.
    """

    index: int
    name: str | None = None
    capability: str | None = None
    uuid: str | None = None
    memory_mib: int | None = None
    mig: tuple[str, ...] = ()


class Driver(Value):
    """Versions of the user-mode driver library and of the kernel module, which must be equal.

    `source` is nvml, libcuda, proc, sys or nvidia-smi. `libcuda` is the file that the loader finds for libcuda.so.1.
    `problem` says why the driver cannot be used; None if it works.
    """

    library: str | None = None
    kernel_module: str | None = None
    cuda: str | None = None
    source: str | None = None
    libcuda: str | None = None
    problem: str | None = None


class HostContext(Value):
    """The surroundings of this process.

    `container` is a kind ("docker", "podman", "kubernetes", "apptainer", "other"). `slurm` is "login" or "job".
    """

    container: str | None = None
    wsl: bool = False
    colab: bool = False
    slurm: str | None = None


class HardwareDevice(Value):
    """A display or accelerator device on the PCI bus, or a board recognized in another way."""

    vendor: str
    address: str
    device: str | None = None


class PythonInstallation(Value):
    """A CPython on this machine. `source` is path, pyenv, uv, conda or system."""

    path: str
    version: str
    source: str


class LibraryFile(Value):
    """A cuDNN or CUDA file. `owner` is its distribution.

    `inside` says whether it is in the environment, and is None without an environment. `ran` says whether evidence
    shows that it was used. It is None for a loaded file without evidence.
    """

    soname: str
    path: str
    version: str | None = None
    owner: str | None = None
    inside: bool | None = None
    ran: bool | None = None


TO_CHECK = "to check"
"""The source of a text that is no evidence yet: what would confirm a finding that is not certain."""


class Evidence(Value, kw_only=False):
    """A quotation that shows something: its `source`, and its line (from 1). That of TO_CHECK is advice."""

    text: str
    source: str | None = None
    line: int | None = None


class Finding(Value):
    """A cause (a label of the taxonomy), its evidence, and its fix."""

    cause: str
    title: str
    evidence: tuple[Evidence, ...] = ()
    fix: str | None = None
    confidence: Confidence = "likely"


class Machine(Value):
    """The result of `detect`. Parts that were not read are empty."""

    SCHEMA = "gpuenv.machine/1"

    target: Target
    driver: Driver = Driver()
    gpus: tuple[Gpu, ...] = ()
    context: HostContext = HostContext()
    hardware: tuple[HardwareDevice, ...] = ()
    pythons: tuple[PythonInstallation, ...] = ()
    libraries: tuple[LibraryFile, ...] = ()
    environment: dict[str, str] = dataclasses.field(default_factory=dict)
    findings: tuple[Finding, ...] = ()


class VariantProperties(Value):
    """What NVIDIA's provider of wheel variants reports for a machine, the preferred property first (PEP 825).

    It speaks of one GPU, whose `capability` is the highest. `left_out` are the capabilities of the other GPUs.
    """

    SCHEMA = "gpuenv.variant-properties/1"

    cuda: str | None = None
    capability: str | None = None
    left_out: tuple[str, ...] = ()
    properties: tuple[str, ...] = ()


MEMORY_GROWTH = {
    "jax": ("XLA_PYTHON_CLIENT_PREALLOCATE", "false"),
    "tensorflow": ("TF_FORCE_GPU_ALLOW_GROWTH", "true"),
}
"""The variable of a framework that makes it take memory of the GPU as it needs it."""


class GpuMemoryHolder(Value):
    """A process that uses GPU memory.

    `gpu` is NVML's index, or None if only its open device file is known. `framework` is one that reserves nearly the
    whole GPU by default (jax, tensorflow).
    """

    pid: int
    gpu: int | None = None
    memory_mib: int | None = None
    name: str | None = None
    framework: str | None = None

    def __str__(self) -> str:
        return f"process {self.pid} ({', '.join(filter(None, (self.name or 'unknown', self.framework)))})"

    @property
    def use(self) -> str:
        """What it does with a GPU, as the predicate of a sentence."""
        if self.gpu is None:
            return "has a GPU open"
        amount = "uses" if self.memory_mib is None else f"holds {self.memory_mib} MiB of"
        return f"{amount} GPU {self.gpu}"

    @property
    def switch(self) -> str | None:
        """The variable that keeps its framework from reserving nearly the whole GPU."""
        return "=".join(MEMORY_GROWTH.get(self.framework or "", ())) or None
