"""Explains why the driver cannot be used, from what was read of it.

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
from ..model.values import Value
from .files import DeviceFile, join_root, read_text
from .query import DriverAnswer


def make_finding(name: str, evidence: tuple[Evidence, ...] = (), /, **slots: Any) -> Finding:
    """Return the finding of a row of profiles/failures.yaml. A working driver needs none, and loads no profiles."""
    from ..profiles import wording

    return wording.make_finding(name, evidence, **slots)


class DriverState(Value):
    """What was read of a driver that does not work.

    `libcuda` is the file that the loader finds. `library` is the version of the driver's libraries, by their
    file names. `smi` is None if there is no nvidia-smi. `nouveau` is whether that module is loaded.
    `unsearched` is a folder with libcuda that the loader does not search.
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
    unsearched: str | None = None
    uvm: Uvm | None = None

    @property
    def answers(self) -> tuple[Evidence, ...]:
        """The errors of NVML, libcuda and nvidia-smi."""
        answers = (self.nvml, self.cuda, *((self.smi,) if self.smi else ()))
        return tuple(Evidence(a.error, a.path or a.source) for a in answers if a.error)

    @property
    def traces(self) -> tuple[Evidence, ...]:
        """The hardware on the bus and the loaded kernel module."""
        evidence = [
            Evidence(f"{h.vendor} device {h.device or ''}".strip(), h.address)
            for h in self.hardware
            if h.vendor == "nvidia"
        ]
        if self.kernel_module:
            where = {"proc": "/proc/driver/nvidia/version", "sys": "/sys/module/nvidia/version"}
            text = f"kernel module {self.kernel_module}"
            evidence.append(Evidence(text, where.get(self.kernel_source or "")))
        return tuple(evidence)

    def make_finding(self, name: str, *evidence: Evidence, **slots: Any) -> Finding:
        """Return a finding with all that was read as its evidence."""
        shown = (*evidence, *self.answers, *self.traces)
        return make_finding(name, shown, in_container=bool(self.context.container), **slots)

    @property
    def is_offered(self) -> bool:
        """Whether Windows offers its driver to this WSL."""
        return self.context.wsl and any(h.address.startswith("/usr/lib/wsl/") for h in self.hardware)

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


class Uvm(Value):
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
    devices = read_text(join_root(root, _DEVICES))
    if not devices:
        return None
    listed = re.search(r"^\s*(\d{1,6}) nvidia-uvm$", devices, re.MULTILINE)
    count = read_text(join_root(root, _SUSPENDS)) or ""
    node, refused = _read_file(join_root(root, FILE))
    return Uvm(
        major=int(listed[1]) if listed else None,
        node=node,
        refused=refused,
        version=read_text(join_root(root, _VERSION)) or None,
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
    finding = known and _find_fault(known, module or "")
    if finding and container and finding.cause == "nvidia_uvm_stale":
        return replace(finding, fix=make_finding("repair_on_host", fix=finding.fix).fix)
    if finding:
        return finding
    suspends = known.suspends if known else None
    evidence = () if suspends is None else (Evidence(f"{suspends} suspends since boot", _SUSPENDS),)
    if suspends == 0:
        return make_finding("uvm_stale_without_suspend", evidence)
    return make_finding("uvm_stale", evidence)


def _find_fault(uvm: Uvm, module: str) -> Finding | None:
    """Return what is wrong with the module or its file by the system's own lists, or why the file cannot be opened."""
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
    if uvm.refused is None or uvm.refused in _PASSING:
        return None
    reason = os.strerror(uvm.refused)
    name = "device_file_denied" if uvm.refused in _DENIED else "uvm_refuses"
    return make_finding(name, _make_evidence(reason, FILE), file=FILE, reason=reason)


def _make_evidence(text: str, source: str) -> tuple[Evidence, ...]:
    return (Evidence(text, source),)


NVML_NO_PERMISSION, NVML_NOT_LOADED, NVML_GPU_LOST = 4, 9, 15
NVML_MISMATCH, NVML_UNKNOWN = 18, 999
CUDA_STUB, CUDA_NO_DEVICE, CUDA_NOT_READY = 34, 100, 802
CUDA_MISMATCH, CUDA_COMPAT, CUDA_UNKNOWN = 803, 804, 999


def explain(state: DriverState) -> tuple[str, tuple[Finding, ...]]:
    """Return the problem and the findings, the likeliest first, for a driver that gave no usable GPU."""
    finding = _explain_codes(state) or _explain_place(state) or _explain_fault(state)
    finding = finding or explain_missing_driver(state)
    if finding.cause != "cuda_stub_library_loaded" or state.kernel_module or state.is_offered:
        return finding.title, (finding,)
    # the loader finds a toolkit's stub, and the driver is missing too
    return finding.title, (finding, _explain_place(state) or explain_missing_driver(state))


def explain_cuda(state: DriverState) -> Finding | None:
    """Return why CUDA does not start although NVML gives GPUs.

    Return None if CUDA starts, or if its code says too little.
    """
    if state.cuda.ok or (state.cuda.code is None and not state.cuda.hung):
        return None
    return _explain_codes(state)


def _explain_codes(state: DriverState) -> Finding | None:
    """Return what the codes of NVML and libcuda prove, or None."""
    nvml, cuda, in_container = state.nvml, state.cuda, state.context.container is not None
    codes = (nvml.code, *(trouble.code for trouble in nvml.troubles))
    if nvml.code == NVML_MISMATCH or cuda.code == CUDA_MISMATCH:
        name = "detected_versions_differ_in_container" if in_container else "detected_versions_differ"
        library, module = (text or "version unknown" for text in (state.library, state.kernel_module))
        return state.make_finding(name, library=library, module=module)
    if cuda.code == CUDA_STUB:
        path = cuda.path or "libcuda.so.1"
        folder = path.rpartition("/")[0] or "the stubs folder"
        return state.make_finding("detected_stub", library=path, folder=folder)
    locked = [node for node in state.nodes if not node.allowed]
    if locked or NVML_NO_PERMISSION in codes:
        return state.make_finding(
            "detected_access_denied_in_container" if in_container else "detected_access_denied",
            *(Evidence(f"mode {node.mode}, access denied", node.path) for node in locked),
            files=", ".join(node.path for node in locked) or "/dev/nvidia*",
            confidence="certain" if NVML_NO_PERMISSION in codes else "likely",
        )
    if cuda.code == CUDA_NOT_READY:
        return state.make_finding("detected_fabric_manager")
    if cuda.code == CUDA_COMPAT:
        return state.make_finding("detected_compat_library", library=cuda.path)
    if NVML_GPU_LOST in codes:
        return state.make_finding("a_gpu_lost")
    if nvml.code == NVML_UNKNOWN and in_container and state.nodes:
        return state.make_finding("detected_lost_cgroup")
    if cuda.code == CUDA_UNKNOWN and nvml.ok:
        finding = judge_uvm(state.uvm, state.kernel_module, container=in_container)
        return replace(finding, evidence=(*finding.evidence, *state.answers, *state.traces))
    return state.make_finding("driver_hangs", call=cuda.hung) if cuda.hung else None


_STARTED_OTHERWISE = ("kubernetes", "podman", "apptainer")
"""Kinds of containers that get a GPU by other options than docker's."""


def _explain_place(state: DriverState) -> Finding | None:
    """Return the finding for a place that gets its GPU from elsewhere: a job of Slurm, WSL, a notebook, a container."""
    context, kind = state.context, state.context.container
    if (
        context.slurm == "job" and state.kernel_module
    ):  # Slurm hides GPUs that were not requested (ConstrainDevices)
        return state.make_finding("slurm_job_without_gpu")
    if context.wsl:
        if state.is_offered and state.cuda.code is None and not state.libcuda:
            return state.make_finding("wsl_folder_not_on_path")
        dxg = any(node.path == "/dev/dxg" for node in state.nodes)
        evidence = Evidence("present" if dxg else "absent", "/dev/dxg")
        # a container gets the driver's folder only by an option
        confidence = "likely" if state.is_offered or kind else "certain"
        return state.make_finding("wsl_without_working_driver", evidence, confidence=confidence)
    if any(node.path != "/dev/dxg" for node in state.nodes):
        return None
    if context.colab:
        evidence = Evidence("no /dev/nvidia* in this runtime", "Colab")
        return state.make_finding("colab_without_gpu", evidence)
    if not kind:
        return None
    program = kind if kind in _STARTED_OTHERWISE else "container"
    name = f"{program}_without_hosts_gpu" if state.kernel_module or state.boards else f"{program}_without_gpu"
    return state.make_finding(name, Evidence("no /dev/nvidia* in this container", kind))


def _explain_fault(state: DriverState) -> Finding | None:
    """Return the finding for a driver without device files, or of which only the module or the libraries work."""
    nvml, cuda, module = state.nvml, state.cuda, state.kernel_module
    unloaded = nvml.code == NVML_NOT_LOADED
    has_control = any(node.path == "/dev/nvidiactl" for node in state.nodes)
    if module and not has_control and not nvml.ok and (unloaded or cuda.code == CUDA_NO_DEVICE):
        evidence = Evidence("absent", "/dev/nvidiactl")
        return state.make_finding("control_file_missing", evidence)
    answered = nvml.code is not None or cuda.code not in (None, CUDA_STUB)
    if not answered:
        return state.make_finding("detected_library_not_found") if state.smi and state.smi.ok else None
    if not (nvml.ok or unloaded or (state.boards and not module)):
        return None
    name = "module_does_not_answer" if module else "module_not_loaded"
    name = "module_serves_no_gpu" if nvml.ok else name
    loaded = (Evidence("nouveau is loaded", "/sys/module/nouveau"),) if state.nouveau else ()
    return state.make_finding(name, *loaded, module=module)


def explain_missing_driver(state: DriverState) -> Finding:
    """Return that no driver is installed, or in a container none of its host's."""
    if state.kernel_module and state.unsearched and not state.libcuda:
        return state.make_finding("driver_library_not_on_path", folder=state.unsearched)
    if state.kernel_module:
        no_library = state.nvml.code is None and state.cuda.code is None
        name = "driver_without_libraries" if no_library else "driver_does_not_work"
        return state.make_finding(name, module=state.kernel_module)
    if state.boards or any(h.vendor == "nvidia" for h in state.hardware):
        return state.make_finding("gpu_without_driver")
    return state.make_finding("no_driver_and_no_gpu")
