"""Causes of failed calls into CUDA and cuDNN.

A status alone says little: a hidden GPU, a stub libcuda and a masked device file look alike at cudnnCreate. So
each rule also uses the other values that the stage read.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..model import Confidence, Evidence, Finding
from ..profiles.findings import make_finding
from ..system import process
from .message_causes import explain_loader_message

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
_BY_DEFINITION = frozenset((34, 214, 802, 803, 804))  # cuda.h gives each of these one meaning
_NEWER_MAJOR, _NEWER = 35, frozenset((36, 222))
_BUSY = 46
_EXCLUSIVE, _PROHIBITED = (1, 3), 2  # CUcomputemode of cuda.h; 0 is the default
_NO_DEVICE = (100, 101)
_UNKNOWN = 999
_OUT_OF_MEMORY = 2
_NOT_PERMITTED = 304
_UVM, _MISSING = "/dev/nvidia-uvm", "missing"
_CONTROL = r"/dev/nvidia(ctl|-uvm)$"  # every process needs these two, and of the cards only its own
# Folders of the driver's libraries that containers, Colab, WSL and distributions put on the loader's path.
_DRIVER_FOLDERS = (
    "/usr/local/nvidia/lib64",
    "/usr/lib64-nvidia",
    "/usr/lib/wsl/lib",
    "/usr/lib64/nvidia",
    "/usr/lib/nvidia",
)
_CUDNN = {
    "SUBLIBRARY_VERSION_MISMATCH": "cudnn_parts_differ",
    "SUBLIBRARY_LOADING_FAILED": "cudnn_part_not_loaded",
    "ARCH_MISMATCH": "cudnn_without_kernels",
    "ALLOC_FAILED": "cudnn_without_memory",
}


def is_in_container() -> bool:
    """Return whether this process runs in a container, by the files that container runtimes create."""
    marks = ("/.dockerenv", "/run/.containerenv", "/.singularity.d", "/var/run/secrets/kubernetes.io")
    return any(os.path.exists(m) for m in marks)


def _is_in_colab() -> bool:
    return "COLAB_RELEASE_TAG" in process.environ()  # Colab sets it in each runtime


def _is_in_wsl() -> bool:
    try:
        with open("/proc/sys/kernel/osrelease", encoding="ascii", errors="replace") as stream:
            return "microsoft" in stream.read().lower()
    except OSError:
        return False


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

    `seen` is what the failing stage read, `driver` what stage 1 read. They are the same for a failed stage 1.
    """
    evidence = (Evidence(text=describe_call(failed), source=seen.get("libcudart") or driver.get("libcuda")),)
    code = failed.get("code")
    if code is None:
        return _explain_load(failed, driver, evidence)
    if code == _OUT_OF_MEMORY:
        is_held = any(h["memory_mib"] for h in seen.get("holders", ()))
        shown = evidence + list_memory(seen)
        return explain_memory("The GPU's memory is full", seen, shown, "certain" if is_held else "likely")
    if code not in _CODES or code == _NOT_PERMITTED:
        denied = _explain_denied(driver, evidence, _CONTROL, code)
        if denied:
            return denied
    if code in _CODES:
        finding = _explain_code(code, seen, driver)
        return replace(finding, evidence=(*evidence, *finding.evidence, *list_memory(seen)))
    if code in _NO_DEVICE:
        return _explain_no_device(driver, evidence)
    if code == _UNKNOWN:
        denied = _explain_denied(driver, evidence, code=code)
        return denied or make_finding("cuda_unknown_error", evidence, confidence="possible")
    return None


def _explain_code(code: int, seen: Mapping[str, Any], driver: Mapping[str, Any]) -> Finding:
    """Return the cause that a status names, and how sure that is."""
    if code == _BUSY:
        return _explain_busy(seen, driver)
    if code == _NEWER_MAJOR or code in _NEWER:
        return _explain_versions(code, seen.get("version"), driver.get("cuda"))
    return make_finding(_CODES[code], confidence="certain" if code in _BY_DEFINITION else "likely")


def _explain_versions(code: int, runtime: str | None, supported: str | None) -> Finding:
    """Compare the runtime's CUDA with the driver's.

    From CUDA 11 on a runtime starts on each driver of its major version. A single function, and PTX, can need the
    minor version too.
    """
    if not runtime or not supported:
        return make_finding(_CODES[code])
    needed, has = _parse_version(runtime), _parse_version(supported)
    by_major = code == _NEWER_MAJOR and needed[0] >= 11
    is_newer = needed[0] > has[0] if by_major else needed > has
    confidence: Confidence = "certain" if is_newer else "possible"
    return make_finding(_CODES[code], confidence=confidence, runtime=runtime, supported=supported)


def _parse_version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".")[:2])


def _explain_busy(seen: Mapping[str, Any], driver: Mapping[str, Any]) -> Finding:
    """Judge a busy GPU by its compute mode and by the processes that hold it."""
    index = seen.get("device")
    devices = driver.get("devices", ())
    mode = next((d.get("compute_mode") for d in devices if d["index"] == index), None)
    if mode is None:
        return make_finding("gpu_is_exclusive")
    shown = (Evidence(text=f"compute mode {mode} of device {index}", source="libcuda"),)
    if mode == _PROHIBITED:
        return make_finding("gpu_is_prohibited", shown, confidence="certain")
    if mode in _EXCLUSIVE:
        is_held = any(h["gpu"] in (None, index) for h in seen.get("holders", ()))
        return make_finding("gpu_is_exclusive", shown, confidence="certain" if is_held else "likely")
    return make_finding("gpu_gives_no_context", shown, confidence="possible")


def _explain_load(
    failed: Mapping[str, Any], driver: Mapping[str, Any], evidence: tuple[Evidence, ...]
) -> Finding | None:
    """Return why libcuda.so.1 could not be loaded."""
    if "libcuda.so" not in failed["call"]:
        return None
    if _is_in_wsl():
        linked = os.path.exists("/usr/lib/wsl/lib/libcuda.so.1")
        return make_finding("wsl_driver_not_on_path" if linked else "wsl_without_driver", evidence)
    hidden = next((f for f in _DRIVER_FOLDERS if os.path.exists(os.path.join(f, "libcuda.so.1"))), None)
    if hidden:
        shown = Evidence(text="the driver's library", source=f"{hidden}/libcuda.so.1")
        return make_finding(
            "driver_library_not_on_path", (*evidence, shown), confidence="certain", folder=hidden
        )
    if _is_in_colab():
        return make_finding("notebook_without_gpu", evidence)
    if is_in_container():
        return make_finding("container_without_driver", evidence)
    if driver.get("kernel_module"):
        shown = Evidence(text=driver["kernel_module"], source="/proc/driver/nvidia/version")
        return make_finding("driver_library_not_found", (*evidence, shown))
    return make_finding("machine_without_driver", evidence)


def _explain_no_device(driver: Mapping[str, Any], evidence: tuple[Evidence, ...]) -> Finding:
    """Return why CUDA starts and sees no GPU."""
    visible = driver.get("visible")
    if visible is not None:
        shown = Evidence(text=f"CUDA_VISIBLE_DEVICES={visible}", source="environment")
        return make_finding("variable_hides_gpus", (*evidence, shown), visible=repr(visible))
    denied = _explain_denied(driver, evidence)
    if denied:
        return denied
    if _is_in_colab() and not driver.get("files"):
        return make_finding("notebook_without_gpu", evidence)
    if is_in_container() and not driver.get("files"):
        return make_finding("container_without_devices", evidence)
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
    shown = evidence + tuple(Evidence(text=why, source=path) for path, why in sorted(bad.items()))
    if code == _UNKNOWN and bad == {_UVM: _MISSING}:
        return make_finding("uvm_file_missing", shown, confidence="certain", file=_UVM)
    confidence: Confidence = "certain" if any(re.search(_CONTROL, path) for path in bad) else "likely"
    return make_finding("device_files_unusable", shown, confidence=confidence, files=", ".join(sorted(bad)))


def list_memory(seen: Mapping[str, Any]) -> tuple[Evidence, ...]:
    """Return the free memory of each GPU, and the processes that hold the rest."""
    free = [
        Evidence(
            text=f"GPU {m['index']}: {m['free_mib']} of {m['total_mib']} MiB free", source="cudaMemGetInfo"
        )
        for m in seen.get("memory", ())
    ]
    holders = [
        Evidence(
            text=f"process {h['pid']} ({h['name'] or 'unknown'}{', ' + h['framework'] if h.get('framework') else ''}) "
            f"holds {'an unknown amount' if h['memory_mib'] is None else str(h['memory_mib']) + ' MiB'}"
            f"{'' if h['gpu'] is None else ' of GPU ' + str(h['gpu'])}",
            source="/dev/nvidia*" if h["gpu"] is None else "NVML",
        )
        for h in seen.get("holders", ())
    ]
    return (*free, *holders)


def explain_memory(
    situation: str, seen: Mapping[str, Any], evidence: tuple[Evidence, ...], confidence: Confidence = "likely"
) -> Finding:
    """Return who holds the GPU's memory: a process, or a framework that reserves nearly all of it."""
    first = max(seen.get("holders", ()), key=lambda h: h["memory_mib"] or 0, default=None)
    if first and first.get("framework"):
        switch = {
            "jax": "XLA_PYTHON_CLIENT_PREALLOCATE=false (or XLA_PYTHON_CLIENT_MEM_FRACTION)",
            "tensorflow": "TF_FORCE_GPU_ALLOW_GROWTH=true",
        }[first["framework"]]
        return make_finding(
            "reserved_by_framework", evidence, confidence=confidence, situation=situation, pid=first["pid"],
            framework=first["framework"], switch=switch,
        )  # fmt: skip
    holder = f"process {first['pid']} ({first['name'] or 'unknown'})" if first else "the process"
    return make_finding("gpu_memory_low", evidence, confidence=confidence, situation=situation, holder=holder)


def explain_cudnn_call(
    failed: Mapping[str, Any], complaints: tuple[Evidence, ...], low: Mapping[str, Any] | None
) -> Finding | None:
    """Return the cause of a failed call into cuDNN. `complaints` are from its own log.

    `low` is what stage 2 read of a GPU with little free memory. Any status means that then, because cuDNN reports a
    full GPU as INTERNAL_ERROR or NOT_INITIALIZED.
    """
    words = describe_call(failed)
    evidence = (Evidence(text=words, source="cuDNN"), *complaints)
    if low is not None:
        situation = "The GPU has too little free memory for cuDNN to start"
        return explain_memory(situation, low, evidence + list_memory(low), "certain")
    if failed["call"] == "cudnnConvolutionForward" and failed.get("code") is None:
        return make_finding("cudnn_gives_wrong_numbers", evidence, confidence="possible")
    for status, name in _CUDNN.items():
        if status in words:
            return make_finding(name, evidence)
    return explain_loader_message(words, evidence)
