"""Causes in failed calls into CUDA and cuDNN, and in signals.

A status alone says little: a hidden GPU, a stub libcuda and a masked device file look alike at cudnnCreate. So
each rule also uses the other values that the stage read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..model import Confidence, Evidence, Finding, GpuMemoryHolder
from ..profiles.wording import make_finding
from ..system import process
from ..system.versions import numbers

# CUDA's numbers are the same in driver and runtime since 10.1 (driver_types.h, cuda.h).
_CODES = {
    34: "cuda_stub_library",
    35: "driver_older_than_cuda",
    36: "driver_older_than_cuda",
    46: "gpu_is_exclusive",
    209: "no_kernels_for_gpu",
    214: "gpu_memory_error",
    222: "driver_older_than_ptx",
    304: "devices_refused",
    802: "fabric_manager_stopped",
    803: "driver_versions_differ",
    804: "compat_library_refused",
}
_NEWER_MAJOR, _NEWER = 35, (35, 36, 222)
_BUSY = 46
_EXCLUSIVE, _PROHIBITED = (1, 3), 2  # CUcomputemode of cuda.h; 0 is the default
_NO_DEVICE = (100, 101)
_UNKNOWN = 999
_OUT_OF_MEMORY = 2
_NOT_PERMITTED = 304
_UVM, _MISSING = "/dev/nvidia-uvm", "missing"
_CONTROL = r"/dev/nvidia(ctl|-uvm)$"  # every process needs these two, and of the cards only its own
_CUDNN = {
    "SUBLIBRARY_VERSION_MISMATCH": "cudnn_parts_differ",
    "SUBLIBRARY_LOADING_FAILED": "cudnn_part_not_loaded",
    "ARCH_MISMATCH": "cudnn_without_kernels",
    "ALLOC_FAILED": "cudnn_without_memory",
}


# --- calls into CUDA -----------------------------------------------------------------------------


def describe_call(failed: Mapping[str, Any]) -> str:
    """Return a failed call in words: "cuInit: CUDA_ERROR_NO_DEVICE (100)"."""
    code = "" if failed.get("code") is None else f" ({failed['code']})"
    what = " ".join(str(failed[k]) for k in ("name", "text") if failed.get(k))
    what = what.removeprefix(f"{failed['call'].removeprefix('dlopen ')}: ")
    return f"{failed['call']}: {what or 'failed'}{code}"


def explain_cuda_call(
    failed: Mapping[str, Any], seen: Mapping[str, Any], driver: Mapping[str, Any]
) -> Finding | None:
    """Return the cause of a failed call into libcuda or libcudart.

    `seen` is what the failing stage read, `driver` what the stage driver read. They are the same if that one failed.
    """
    evidence = (Evidence(describe_call(failed), seen.get("libcudart") or driver.get("libcuda")),)
    code = failed.get("code")
    if code is None:
        return make_finding("driver_library_not_found", evidence) if "libcuda.so" in failed["call"] else None
    if code == _OUT_OF_MEMORY:
        is_held = any(h["memory_mib"] for h in seen.get("holders", ()))
        shown = evidence + list_memory(seen)
        return explain_memory("The GPU's memory is full", seen, shown, "certain" if is_held else "likely")
    refused = code not in _CODES or code == _NOT_PERMITTED
    if refused and (denied := _explain_denied(driver, evidence, _CONTROL, code)):
        return denied
    if code in _CODES:
        if code == _BUSY:
            finding = _explain_busy(seen, driver)
        elif code in _NEWER:
            finding = _explain_versions(code, seen.get("version"), driver.get("cuda"))
        else:
            finding = make_finding(_CODES[code])
        return replace(finding, evidence=(*evidence, *finding.evidence, *list_memory(seen)))
    if code in _NO_DEVICE:
        return _explain_no_device(driver, evidence)
    if code == _UNKNOWN:
        return _explain_denied(driver, evidence) or make_finding("cuda_unknown_error", evidence)
    return None


def _explain_versions(code: int, runtime: str | None, supported: str | None) -> Finding:
    """Compare the runtime's CUDA with the driver's.

    From CUDA 11 on a runtime starts on each driver of its major version. A single function, and PTX, can need the
    minor version too.
    """
    if not runtime or not supported:
        return make_finding(_CODES[code])
    needed, has = (numbers(text)[:2] for text in (runtime, supported))
    by_major = code == _NEWER_MAJOR and needed[0] >= 11
    is_newer = needed[0] > has[0] if by_major else needed > has
    confidence: Confidence = "certain" if is_newer else "possible"
    return make_finding(_CODES[code], confidence=confidence, runtime=runtime, supported=supported)


def _explain_busy(seen: Mapping[str, Any], driver: Mapping[str, Any]) -> Finding:
    """Judge a busy GPU by its compute mode and by the processes that hold it."""
    index = seen.get("device")
    mode = next((d.get("compute_mode") for d in driver.get("devices", ()) if d["index"] == index), None)
    if mode is None:
        return make_finding("gpu_is_exclusive")
    shown = (Evidence(f"compute mode {mode} of device {index}", "libcuda"),)
    if mode == _PROHIBITED:
        return make_finding("gpu_is_prohibited", shown)
    if mode in _EXCLUSIVE:
        is_held = any(h["gpu"] in (None, index) for h in seen.get("holders", ()))
        return make_finding("gpu_is_exclusive", shown, confidence="certain" if is_held else "likely")
    return make_finding("gpu_gives_no_context", shown)


def _explain_no_device(driver: Mapping[str, Any], evidence: tuple[Evidence, ...]) -> Finding:
    """Return why CUDA starts and sees no GPU."""
    visible = driver.get("visible")
    if visible is not None:
        shown = Evidence(f"CUDA_VISIBLE_DEVICES={visible}", "environment")
        return make_finding("variable_hides_gpus", (*evidence, shown), visible=repr(visible))
    if denied := _explain_denied(driver, evidence):
        return denied
    return make_finding("module_finds_no_gpu", evidence)


def _explain_denied(
    driver: Mapping[str, Any],
    evidence: tuple[Evidence, ...],
    pattern: str = r"/dev/nvidia(ctl|-uvm|\d+)$",
    code: int | None = None,
) -> Finding | None:
    """Return the device files that this process may not open, or that are missing beside a loaded module.

    CUDA needs both control devices, so one of them decides.
    """
    files = {f["path"]: f["problem"] for f in driver.get("files", ())}
    bad = {path: why for path, why in files.items() if why and re.search(pattern, path)}
    if any(path.startswith("/dev/nvidia") for path in files):  # WSL has one device for all
        bad |= {path: _MISSING for path in ("/dev/nvidiactl", _UVM) if path not in files}
    if not bad:
        return None
    shown = evidence + tuple(Evidence(why, path) for path, why in sorted(bad.items()))
    if code == _UNKNOWN and bad == {_UVM: _MISSING}:
        return make_finding("uvm_file_missing", shown, file=_UVM)
    confidence: Confidence = "certain" if any(re.search(_CONTROL, path) for path in bad) else "likely"
    return make_finding("device_files_unusable", shown, confidence=confidence, files=", ".join(sorted(bad)))


# --- memory of the GPU ---------------------------------------------------------------------------


def list_memory(seen: Mapping[str, Any]) -> tuple[Evidence, ...]:
    """Return the free memory of each GPU, and the processes that hold the rest."""
    free = [
        Evidence(f"GPU {m['index']}: {m['free_mib']} of {m['total_mib']} MiB free", "cudaMemGetInfo")
        for m in seen.get("memory", ())
    ]
    held = (
        Evidence(f"{h} {h.use}", "/dev/nvidia*" if h.gpu is None else "NVML") for h in _list_holders(seen)
    )
    return (*free, *held)


def _list_holders(seen: Mapping[str, Any]) -> list[GpuMemoryHolder]:
    """Return the processes that the stage runtime saw on the GPUs, the largest first."""
    found = [
        GpuMemoryHolder(
            pid=h["pid"], gpu=h["gpu"], memory_mib=h["memory_mib"], name=h["name"], framework=h["framework"]
        )
        for h in seen.get("holders", ())
    ]
    return sorted(found, key=lambda h: -(h.memory_mib or 0))


def explain_memory(
    situation: str, seen: Mapping[str, Any], evidence: tuple[Evidence, ...], confidence: Confidence
) -> Finding:
    """Return who holds the GPU's memory: a process, or a framework that reserves nearly all of it."""
    first = next(iter(_list_holders(seen)), None)
    if first and first.switch:
        return make_finding(
            "reserved_by_framework", evidence, confidence=confidence, situation=situation, pid=first.pid,
            framework=first.framework, switch=first.switch,
        )  # fmt: skip
    return make_finding(
        "gpu_memory_low", evidence, confidence=confidence, situation=situation, holder=first or "the process"
    )


# --- calls into cuDNN ----------------------------------------------------------------------------


def explain_cudnn_call(
    failed: Mapping[str, Any], complaints: tuple[Evidence, ...], low: Mapping[str, Any] | None
) -> Finding | None:
    """Return the cause of a failed call into cuDNN. `complaints` are from its own log.

    `low` is what the stage runtime read of a GPU with little free memory. Any status means that then, because cuDNN reports a
    full GPU as INTERNAL_ERROR or NOT_INITIALIZED.
    """
    words = describe_call(failed)
    evidence = (Evidence(words, "cuDNN"), *complaints)
    if low is not None:
        situation = "The GPU has too little free memory for cuDNN to start"
        return explain_memory(situation, low, evidence + list_memory(low), "certain")
    if failed["call"] == "cudnnConvolutionForward" and failed.get("code") is None:
        return make_finding("cudnn_gives_wrong_numbers", evidence)
    name = next((name for status, name in _CUDNN.items() if status in words), None)
    return make_finding(name, evidence) if name else None


# --- kernels and signals ---------------------------------------------------------------------------


def explain_kernels(text: str, seen: Mapping[str, Any], evidence: tuple[Evidence, ...]) -> Finding | None:
    """Return why a GPU has no kernels: it is older or newer than those of the build, if the framework lists them."""
    if not re.search(r"no kernel image|CUDA_ERROR_NO_BINARY_FOR_GPU", text):
        return None
    kernels = [int(k[3:].rstrip("af")) for k in seen.get("kernels", ()) if re.fullmatch(r"sm_\d+[af]?", k)]
    gpus = [int(d["capability"].replace(".", "")) for d in seen.get("devices", ()) if d["capability"]]
    if not kernels or not gpus:
        return make_finding("no_kernels_for_gpu", evidence)
    is_old = min(gpus) < min(kernels)
    return make_finding(
        "gpu_older_than_kernels" if is_old else "no_kernels_in_list",
        evidence,
        kernels=", ".join(f"sm_{k}" for k in kernels),
        gpu=f"sm_{min(gpus) if is_old else max(gpus)}",
    )


def explain_signal(finished: process.Finished, evidence: tuple[Evidence, ...]) -> Finding | None:
    """Return the cause of SIGBUS or SIGKILL while libraries are loaded, else None."""
    if finished.signal == "SIGBUS":
        return make_finding("library_truncated", evidence)
    if finished.signal == "SIGKILL" and not finished.timed_out:
        return make_finding("killed_for_memory", evidence)
    return None
