"""Explains why the driver cannot be used: facts in, findings out.

The rules run in the order of the causes in the profiles, driver first. An error code of a library goes before
what is only inferred. A missing driver or GPU is explained by the place: a job, WSL, a container, a notebook.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from dataclasses import field, replace
from pathlib import Path
from typing import Any

from ..model import Evidence, Finding, HardwareDevice, HostContext
from ..model.values import dataclass
from .files import DeviceFile, read_text, under
from .query import DriverAnswer


def make_finding(name: str, evidence: tuple[Evidence, ...] = (), /, **facts: Any) -> Finding:
    """Return the finding of a row of profiles/failures.yaml. A working driver needs none, and loads no profiles."""
    from ..profiles import findings

    return findings.make_finding(name, evidence, **facts)


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

    def make_finding(self, name: str, *evidence: Evidence, **facts: Any) -> Finding:
        """Return a finding with all that was read as its evidence."""
        shown = (*evidence, *self.answers, *self.traces)
        return make_finding(name, shown, in_container=bool(self.context.container), **facts)

    @property
    def boards(self) -> bool:
        """Whether NVIDIA hardware is on the PCI bus."""
        return any(h.vendor == "nvidia" and ":" in h.address for h in self.hardware)


FILE = "/dev/nvidia-uvm"
_DEVICES = "/proc/devices"
_VERSION = "/sys/module/nvidia_uvm/version"
_SUSPENDS = "/sys/power/suspend_stats/success"
_MEMORY = 1  # the major number of /dev/null, which a sandbox binds over a device
_DENIED = (errno.EACCES, errno.EPERM)
_PASSING = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN, errno.EINTR)


@dataclass(frozen=True, kw_only=True, slots=True)
class Uvm:
    """The state of nvidia_uvm. `major` is its device number in /proc/devices, or None if it is not listed.

    `node` is the major number of its device file: None if the file is missing, 0 if it is not a character
    device. `refused` is the errno of opening that file. `suspends` counts the suspends since boot.
    """

    major: int | None
    node: int | None
    refused: int | None = None
    version: str | None = None
    suspends: int | None = None


def read_uvm(root: Path) -> Uvm | None:
    """Read the state of nvidia_uvm. Return None if the system lists no devices."""
    devices = read_text(under(root, _DEVICES))
    if not devices:
        return None
    listed = re.search(r"^\s*(\d{1,6}) nvidia-uvm$", devices, re.MULTILINE)
    count = read_text(under(root, _SUSPENDS)) or ""
    node, refused = _read_file(under(root, FILE))
    return Uvm(
        major=int(listed[1]) if listed else None,
        node=node,
        refused=refused,
        version=read_text(under(root, _VERSION)) or None,
        suspends=int(count) if re.fullmatch(r"\d{1,9}", count) else None,
    )


def _read_file(path: Path) -> tuple[int | None, int | None]:
    """Return the major number of a device file and the errno of opening it."""
    try:
        status = path.stat()
    except OSError:
        return None, None
    if not stat.S_ISCHR(status.st_mode):
        return 0, None
    try:
        os.close(os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY))
    except OSError as error:
        return os.major(status.st_rdev), error.errno
    return os.major(status.st_rdev), None


def judge_uvm(uvm: Uvm | None, module: str | None, *, container: bool) -> Finding:
    """Return why CUDA answers 999 although NVML gives GPUs.

    `module` is the version of the loaded module nvidia. If it is None, only the code is used.
    """
    known = uvm if module else None
    finding = known and (_find_fault(known, module or "") or _explain_refusal(known))
    if finding:
        return _adapt_to_host(finding) if container else finding
    suspends = known.suspends if known else None
    evidence = (
        () if suspends is None else (Evidence(text=f"{suspends} suspends since boot", source=_SUSPENDS),)
    )
    if suspends == 0:
        return make_finding("uvm_stale_without_suspend", evidence)
    return make_finding("uvm_stale", evidence)


def _find_fault(uvm: Uvm, module: str) -> Finding | None:
    """Return what is wrong with the module or its file by the system's own lists."""
    if uvm.major is None:
        return make_finding(
            "uvm_not_loaded", _make_evidence("/proc/devices does not list nvidia-uvm", _DEVICES)
        )
    if uvm.version and uvm.version != module:
        shown = _make_evidence(f"version {uvm.version}", _VERSION)
        return make_finding("uvm_of_other_version", shown, version=uvm.version, module=module)
    if uvm.node is None:
        return make_finding("uvm_without_file", _make_evidence("missing", FILE), file=FILE)
    if uvm.node == _MEMORY != uvm.major:
        return make_finding(
            "device_file_denied", _make_evidence("a different device exists at this path", FILE), file=FILE
        )
    if uvm.node != uvm.major:
        text = (
            f"its major device number is {uvm.node}, expected {uvm.major}"
            if uvm.node
            else "not a character device"
        )
        return make_finding("uvm_file_stale", _make_evidence(text, FILE), file=FILE)
    return None


def _explain_refusal(uvm: Uvm) -> Finding | None:
    """Return why the device file cannot be opened."""
    if uvm.refused is None or uvm.refused in _PASSING:
        return None
    said = os.strerror(uvm.refused)
    if uvm.refused in _DENIED:
        return make_finding("device_file_denied", _make_evidence(said, FILE), file=FILE)
    return make_finding("uvm_refuses", _make_evidence(said, FILE), file=FILE, reason=said)


def _make_evidence(text: str, source: str) -> tuple[Evidence, ...]:
    return (Evidence(text=text, source=source),)


def _adapt_to_host(finding: Finding) -> Finding:
    """Return a finding whose fix must be run on the host of a container."""
    if finding.cause != "nvidia_uvm_stale":
        return finding
    return replace(finding, fix=make_finding("repair_on_host", fix=finding.fix).fix)


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
    return facts.make_finding(name, library=library, module=module)


def _find_stub(facts: DriverFacts) -> Finding | None:
    if facts.cuda.code != CUDA_STUB:
        return None
    path = facts.cuda.path or "libcuda.so.1"
    folder = path.rpartition("/")[0] or "the stubs folder"
    return facts.make_finding("detected_stub", library=path, folder=folder)


def _find_denied(facts: DriverFacts) -> Finding | None:
    locked = [node for node in facts.nodes if not node.allowed]
    codes = (facts.nvml.code, *(trouble.code for trouble in facts.nvml.troubles))
    by_code = NVML_NO_PERMISSION in codes
    if not by_code and not locked:
        return None
    names = ", ".join(node.path for node in locked) or "/dev/nvidia*"
    evidence = tuple(Evidence(text=f"mode {node.mode}, access denied", source=node.path) for node in locked)
    name = "detected_access_denied_in_container" if facts.context.container else "detected_access_denied"
    return facts.make_finding(name, *evidence, files=names, confidence="certain" if by_code else "likely")


def _judge_code(facts: DriverFacts) -> Finding | None:
    if facts.cuda.code == CUDA_NOT_READY:
        return facts.make_finding("detected_fabric_manager")
    if facts.cuda.code == CUDA_COMPAT:
        return facts.make_finding("detected_compat_library", library=facts.cuda.path)
    if NVML_GPU_LOST in (facts.nvml.code, *(trouble.code for trouble in facts.nvml.troubles)):
        return facts.make_finding("a_gpu_lost")
    if facts.nvml.code == NVML_UNKNOWN and facts.context.container and facts.nodes:
        return facts.make_finding("detected_lost_cgroup")
    if facts.cuda.code == CUDA_UNKNOWN and facts.nvml.ok:
        container = facts.context.container is not None
        finding = judge_uvm(facts.uvm, facts.kernel_module, container=container)
        return replace(finding, evidence=(*finding.evidence, *facts.answers, *facts.traces))
    return None


def _find_hang(facts: DriverFacts) -> Finding | None:
    if not facts.cuda.hung:
        return None
    return facts.make_finding("driver_hangs", call=facts.cuda.hung)


def _find_missing_files(facts: DriverFacts) -> Finding | None:
    """Return the finding for a loaded module and installed libraries without device files."""
    if not facts.kernel_module or any(node.path == "/dev/nvidiactl" for node in facts.nodes):
        return None
    if facts.nvml.ok or (facts.nvml.code != NVML_NOT_LOADED and facts.cuda.code != CUDA_NO_DEVICE):
        return None
    evidence = Evidence(text="absent", source="/dev/nvidiactl")
    return facts.make_finding("control_file_missing", evidence)


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
    return facts.make_finding(name, *evidence, module=facts.kernel_module)


def _find_library_fault(facts: DriverFacts) -> Finding | None:
    """Return the finding if only nvidia-smi works, or if the module is loaded and no driver library is found."""
    if facts.nvml.code is not None or facts.cuda.code not in (None, CUDA_STUB):
        return None
    if facts.smi and facts.smi.ok:
        return facts.make_finding("detected_library_not_found")
    return None


_STARTED_OTHERWISE = ("kubernetes", "podman", "apptainer")
"""Kinds of containers that get a GPU by other options than docker's."""


def judge_slurm(facts: DriverFacts) -> Finding | None:
    """Return the finding for a Slurm job that requested no GPU. Slurm hides GPUs from it (ConstrainDevices)."""
    if facts.context.slurm != "job" or not facts.kernel_module:
        return None
    return facts.make_finding("slurm_job_without_gpu")


def judge_wsl(facts: DriverFacts) -> Finding | None:
    """Return the finding for WSL without a driver. WSL gets its driver from Windows."""
    if not facts.context.wsl:
        return None
    offered = _is_offered(facts)
    if offered and facts.cuda.code is None and not facts.libcuda:
        return facts.make_finding("wsl_folder_not_on_path")
    dxg = any(node.path == "/dev/dxg" for node in facts.nodes)
    evidence = Evidence(text="present" if dxg else "absent", source="/dev/dxg")
    hidden = facts.context.container is not None  # a container gets this folder only by an option
    confidence = "likely" if offered or hidden else "certain"
    return facts.make_finding("wsl_without_working_driver", evidence, confidence=confidence)


def _is_offered(facts: DriverFacts) -> bool:
    return any(h.address.startswith("/usr/lib/wsl/") for h in facts.hardware)


def judge_container(facts: DriverFacts) -> Finding | None:
    """Return the finding for a container without a GPU or driver libraries, which come from its host."""
    kind = facts.context.container
    if any(node.path != "/dev/dxg" for node in facts.nodes):
        return None
    if facts.context.colab:
        evidence = Evidence(text="no /dev/nvidia* in this runtime", source="Colab")
        return facts.make_finding("colab_without_gpu", evidence)
    if not kind:
        return None
    host = bool(facts.kernel_module) or facts.boards
    program = kind if kind in _STARTED_OTHERWISE else "container"
    evidence = Evidence(text="no /dev/nvidia* in this container", source=kind)
    name = f"{program}_without_hosts_gpu" if host else f"{program}_without_gpu"
    return facts.make_finding(name, evidence)


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
        return facts.make_finding(name, module=facts.kernel_module)
    if facts.boards or any(h.vendor == "nvidia" for h in facts.hardware):
        return facts.make_finding("gpu_without_driver")
    return facts.make_finding("no_driver_and_no_gpu")
