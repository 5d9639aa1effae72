"""The kernel module nvidia_uvm, which CUDA needs and NVML does not: read from the system, and judged.

Opening its device file changes nothing. The module refuses it after an error that it cannot recover from: its own
uvm_open returns the status of that error.
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

FILE = "/dev/nvidia-uvm"
_DEVICES = "/proc/devices"
_VERSION = "/sys/module/nvidia_uvm/version"
_SUSPENDS = "/sys/power/suspend_stats/success"
_MEMORY = 1  # the major number of /dev/null, which a sandbox binds over a device
_DENIED = (errno.EACCES, errno.EPERM)
_PASSING = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN, errno.EINTR)

_RELOAD = "`sudo rmmod nvidia_uvm && sudo modprobe nvidia_uvm`, or reboot"
_NEW_FILE = "`sudo rm -f /dev/nvidia-uvm && sudo nvidia-modprobe -u -c 0`"


@dataclass(frozen=True, kw_only=True, slots=True)
class Uvm:
    """What the system says of nvidia_uvm. `major` is the number of its devices in /proc/devices, None where it is not
    listed; `node` the major number of its device file, None where the file is missing, 0 where it is no character
    device. `refused` is the errno of opening that file. `suspends` counts the suspends since boot."""

    major: int | None
    node: int | None
    refused: int | None = None
    version: str | None = None
    suspends: int | None = None


def read_uvm(root: Path) -> Uvm | None:
    """Read what the system says of nvidia_uvm; None where it lists no devices."""
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
    """Return why CUDA answers 999 where NVML gives GPUs. `module` is the version of the loaded module nvidia, None
    where it is unknown: then only the code speaks."""
    known = uvm if module else None
    found = known and (_fault(known, module or "") or _refusal(known))
    if found:
        return _on_host(found) if container else found
    suspends = known.suspends if known else None
    evidence = (
        () if suspends is None else (Evidence(text=f"{suspends} suspends since boot", source=_SUSPENDS),)
    )
    return Finding(
        cause="nvidia_uvm_stale",
        title="CUDA does not start though the driver answers: nvidia_uvm is stale, as after suspend"
        if suspends != 0
        else "CUDA does not start though the driver answers, and the machine was not suspended since boot",
        fix=f"{_RELOAD}." if suspends != 0 else f"See `sudo dmesg | grep -i nvrm`; then {_RELOAD}.",
        evidence=evidence,
        confidence="possible" if suspends == 0 else "likely",
    )


def _fault(uvm: Uvm, module: str) -> Finding | None:
    """Return what is wrong with the module or its file by the system's own lists."""
    if uvm.major is None:
        title = "CUDA does not start: the kernel module nvidia_uvm is not loaded"
        return _certain(title, "`sudo modprobe nvidia_uvm`", "nvidia-uvm is not listed", _DEVICES)
    if uvm.version and uvm.version != module:
        title = f"CUDA does not start: nvidia_uvm {uvm.version} is loaded beside nvidia {module}"
        return _certain(title, _RELOAD, f"version {uvm.version}", _VERSION)
    if uvm.node is None:
        title = f"CUDA does not start: nvidia_uvm is loaded, but {FILE} is missing"
        return _certain(title, "`sudo nvidia-modprobe -u -c 0`", "missing", FILE)
    if uvm.node == _MEMORY != uvm.major:
        return _denied(FILE, "another device stands in its place")
    if uvm.node != uvm.major:
        title = f"CUDA does not start: {FILE} is stale, it is no device of the loaded nvidia_uvm"
        text = f"major {uvm.node}, expected {uvm.major}" if uvm.node else "no character device"
        return _certain(title, _NEW_FILE, text, FILE)
    return None


def _refusal(uvm: Uvm) -> Finding | None:
    """Return why the device file cannot be opened."""
    if uvm.refused is None or uvm.refused in _PASSING:
        return None
    said = os.strerror(uvm.refused)
    if uvm.refused in _DENIED:
        return _denied(FILE, said)
    return _certain(f"CUDA does not start: nvidia_uvm refuses {FILE} ({said})", _RELOAD, said, FILE)


def _denied(path: str, why: str) -> Finding:
    return Finding(
        cause="gpu_device_access_denied",
        title=f"This process may not open {path}",
        evidence=(Evidence(text=why, source=path),),
        fix="See who may: `ls -l /dev/nvidia*`; join that group, or give the container this device.",
        confidence="certain",
    )


def _certain(title: str, fix: str, text: str, source: str) -> Finding:
    return Finding(
        cause="nvidia_uvm_stale",
        title=title,
        evidence=(Evidence(text=text, source=source),),
        fix=f"{fix}.",
        confidence="certain",
    )


def _on_host(finding: Finding) -> Finding:
    """Return a finding whose fix is one for the host of a container."""
    if finding.cause != "nvidia_uvm_stale":
        return finding
    fix = f"On the host, not in the container: {finding.fix} Then start the container anew."
    return replace(finding, fix=fix)
