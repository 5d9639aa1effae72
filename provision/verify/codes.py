"""A status of CUDA that names its cause, and how sure that is beside what the driver and the devices said."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..model import Confidence, Evidence, Finding

# CUDA's numbers are the same in driver and runtime since 10.1 (driver_types.h, cuda.h).
_CODES: dict[int, tuple[str, str, str]] = {
    34: ("cuda_stub_library_loaded", "The CUDA toolkit's stub libcuda is loaded in place of the driver's", "Take the stubs folder off LD_LIBRARY_PATH."),
    36: ("driver_too_old_for_runtime", "The driver is older than this CUDA runtime needs", "Update the driver, or let gpuenv choose a build for this one: gpuenv create --recreate."),
    35: ("driver_too_old_for_runtime", "The driver is older than this CUDA runtime needs", "Update the driver, or let gpuenv choose a build for this one: gpuenv create --recreate."),
    46: ("gpu_busy_exclusive", "The GPU is in exclusive mode and another process owns it", "Take a free GPU, end the other process, or run nvidia-smi -c 0."),
    209: ("arch_not_in_wheel_too_new", "The build holds no code for this GPU", "Take a build made for this GPU: gpuenv create --recreate."),
    214: ("gpu_hardware_fault", "The GPU reports an uncorrectable memory error", "Leave this GPU out (CUDA_VISIBLE_DEVICES) and have it checked."),
    222: ("driver_too_old_for_runtime", "The driver cannot compile this build's PTX: it was made by a newer CUDA", "Update the driver, or let gpuenv choose a build for this one: gpuenv create --recreate."),
    304: ("gpu_device_access_denied", "The system refuses this process the GPU's device files", "Add the user to the group that owns /dev/nvidia*, or give the container these devices."),
    802: ("fabricmanager_not_running", "The GPUs of this NVSwitch machine wait for their fabric manager", "Start nvidia-fabricmanager in the driver's version (on the host)."),
    803: ("driver_library_mismatch", "The kernel module and the driver's libraries are of different versions", "Reboot, or reload the NVIDIA modules; remove a second driver from the image."),
    804: ("forward_compat_unsupported_hw", "A cuda-compat libcuda is in use, which this GPU does not allow", "Take the compat folder off the loader path, or update the host's driver."),
}  # fmt: skip
_BY_DEFINITION = frozenset((34, 214, 802, 803, 804))  # cuda.h gives each of these one meaning
_NEWER_MAJOR, _NEWER = 35, frozenset((36, 222))
_BUSY = 46
_EXCLUSIVE, _PROHIBITED = (1, 3), 2  # CUcomputemode of cuda.h; 0 is the default


def is_known(code: Any) -> bool:
    """Whether a status names its cause."""
    return code in _CODES


def judge_code(code: int, told: Mapping[str, Any], driver: Mapping[str, Any]) -> Finding:
    """Return the cause of a status. `told` is what the failing stage saw, `driver` what stage 1 saw."""
    cause, title, fix = _CODES[code]
    found = Finding(cause=cause, title=title, evidence=(), fix=fix, confidence="likely")
    if code in _BY_DEFINITION:
        return replace(found, confidence="certain")
    if code == _NEWER_MAJOR or code in _NEWER:
        return _compare(found, code, told.get("version"), driver.get("cuda"))
    return _judge_mode(found, told, driver) if code == _BUSY else found


def _compare(found: Finding, code: int, runtime: str | None, speaks: str | None) -> Finding:
    """Compare the runtime's CUDA with the driver's. A runtime starts on each driver of its major, by minor-version
    compatibility, from CUDA 11 on; one function, and PTX, can need the minor too."""
    if not runtime or not speaks:
        return found
    asked, has = _numbers(runtime), _numbers(speaks)
    by_major = code == _NEWER_MAJOR and asked[0] >= 11
    newer = asked[0] > has[0] if by_major else asked > has
    confidence: Confidence = "certain" if newer else "possible"
    title = f"{found.title}: CUDA runtime {runtime}, the driver speaks CUDA {speaks}"
    return replace(found, title=title, confidence=confidence)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2])


def _judge_mode(found: Finding, told: Mapping[str, Any], driver: Mapping[str, Any]) -> Finding:
    """Judge a busy GPU by its compute mode and by who holds it."""
    index = told.get("device")
    devices = driver.get("devices", ())
    mode = next((d.get("compute_mode") for d in devices if d["index"] == index), None)
    if mode is None:
        return found
    shown = (Evidence(text=f"compute mode {mode} of device {index}", source="libcuda"),)
    if mode == _PROHIBITED:
        title = "The GPU is in prohibited mode: no process may use it"
        fix = "Take another GPU, or run nvidia-smi -c 0."
        return replace(found, title=title, fix=fix, evidence=shown, confidence="certain")
    if mode in _EXCLUSIVE:
        held = any(h["gpu"] in (None, index) for h in told.get("holders", ()))
        return replace(found, evidence=shown, confidence="certain" if held else "likely")
    return Finding(
        cause="gpu_hardware_fault",
        title="The GPU gives no context, and it is not in exclusive mode",
        evidence=shown,
        fix="See what the driver says: `sudo dmesg | grep -i -e nvrm -e xid`; end MPS if it runs; then reboot.",
        confidence="possible",
    )
