"""Reads and judges the kernel module nvidia_uvm, which CUDA needs and NVML does not.

Opening its device file changes nothing. After an error that it cannot recover from, the module refuses to open
it: uvm_open returns the status of that error.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from dataclasses import dataclass, replace
from pathlib import Path

from ..model import Evidence, Finding
from .kernel_files import read_text, under
from .make_detect_finding import make_finding

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
        return make_finding("uvm_stale_without_suspend", evidence, confidence="possible")
    return make_finding("uvm_stale", evidence, confidence="likely")


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
