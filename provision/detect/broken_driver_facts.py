"""The facts about a driver that does not work. They are the evidence of its findings."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..model import Confidence, Evidence, Finding, HardwareDevice, HostContext
from .kernel_files import DeviceFile
from .make_detect_finding import make_finding
from .nvml_and_smi import DriverAnswer
from .uvm import Uvm


@dataclass(frozen=True, kw_only=True, slots=True)
class DriverFacts:
    """The facts about a driver that does not work.

    `libcuda` is the file that the loader finds. `library` is the version of the driver's libraries, by their
    file names. `smi` is None if there is no nvidia-smi. `nouveau` is whether that module is loaded.
    """

    nvml: DriverAnswer
    cuda: DriverAnswer = field(default_factory=lambda: DriverAnswer(source="libcuda"))
    context: HostContext = field(default_factory=HostContext)
    smi: DriverAnswer | None = None
    kernel_module: str | None = None
    kernel_source: str | None = None
    libcuda: str | None = None
    library: str | None = None
    nodes: tuple[DeviceFile, ...] = ()
    hardware: tuple[HardwareDevice, ...] = ()
    nouveau: bool = False
    uvm: Uvm | None = None

    @property
    def answers(self) -> tuple[Evidence, ...]:
        """The errors of NVML, libcuda and nvidia-smi."""
        answers = (self.nvml, self.cuda, *((self.smi,) if self.smi else ()))
        return tuple(Evidence(text=a.error, source=a.path or a.source) for a in answers if a.error)

    @property
    def traces(self) -> tuple[Evidence, ...]:
        """The hardware on the bus and the loaded kernel module."""
        evidence = [
            Evidence(text=f"{h.vendor} device {h.device or ''}".strip(), source=h.address)
            for h in self.hardware
            if h.vendor == "nvidia"
        ]
        if self.kernel_module:
            where = {"proc": "/proc/driver/nvidia/version", "sys": "/sys/module/nvidia/version"}
            text = f"kernel module {self.kernel_module}"
            evidence.append(Evidence(text=text, source=where.get(self.kernel_source or "")))
        return tuple(evidence)

    def make_finding(
        self, name: str, confidence: Confidence, *evidence: Evidence, **facts: object
    ) -> Finding:
        """Return a finding with all that was read as its evidence."""
        return make_finding(
            name, (*evidence, *self.answers, *self.traces), confidence=confidence,
            in_container=bool(self.context.container), **facts,
        )  # fmt: skip

    @property
    def boards(self) -> bool:
        """Whether NVIDIA hardware is on the PCI bus."""
        return any(h.vendor == "nvidia" and ":" in h.address for h in self.hardware)
