"""What a failure of the lower layers means: statuses of CUDA and cuDNN to causes of the taxonomy.

The status alone says little (a hidden GPU, a stub libcuda and a masked device file look alike at
cudnnCreate), so each rule also looks at what the stage saw around it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..model import Confidence, Evidence, Finding
from ..system import process
from . import codes
from .message_causes import explain_loader_message

_NO_DEVICE = (100, 101)
_UNKNOWN = 999
_OUT_OF_MEMORY = 2
_NOT_PERMITTED = 304
_UVM, _MISSING = "/dev/nvidia-uvm", "not there"
_CONTROL = r"/dev/nvidia(ctl|-uvm)$"  # every process needs these two, of the cards only its own
# Where the driver's libraries lie that containers, Colab, WSL and distributions put on the loader's path.
_DRIVER_FOLDERS = (
    "/usr/local/nvidia/lib64",
    "/usr/lib64-nvidia",
    "/usr/lib/wsl/lib",
    "/usr/lib64/nvidia",
    "/usr/lib/nvidia",
)


def is_in_container() -> bool:
    """Whether this process runs in a container: its runtimes leave these files and this variable."""
    marks = ("/.dockerenv", "/run/.containerenv", "/.singularity.d")
    return any(os.path.exists(m) for m in marks) or os.path.exists("/var/run/secrets/kubernetes.io")


def _in_colab() -> bool:
    """Whether this is a notebook's runtime on Colab, which sets this variable in each."""
    return "COLAB_RELEASE_TAG" in process.environ()


def _in_wsl() -> bool:
    try:
        with open("/proc/sys/kernel/osrelease", encoding="ascii", errors="replace") as stream:
            return "microsoft" in stream.read().lower()
    except OSError:
        return False


def describe_call(failed: Mapping[str, Any]) -> str:
    """A failed call in words: "cuInit: CUDA_ERROR_NO_DEVICE (100)"."""
    code = "" if failed.get("code") is None else f" ({failed['code']})"
    what = " ".join(str(failed[k]) for k in ("name", "text") if failed.get(k))
    return f"{failed['call']}: {what or 'failed'}{code}"


def explain_cuda_call(
    failed: Mapping[str, Any], told: Mapping[str, Any], driver: Mapping[str, Any]
) -> Finding | None:
    """The cause of a failed call into libcuda or libcudart. `told` is what the failing stage saw,
    `driver` what stage 1 saw; they are one and the same where stage 1 failed."""
    evidence = (Evidence(text=describe_call(failed), source=told.get("libcudart") or driver.get("libcuda")),)
    code = failed.get("code")
    if code is None:
        return _not_loaded(failed, driver, evidence)
    if code == _OUT_OF_MEMORY:
        held: Confidence = "certain" if any(h["memory_mib"] for h in told.get("holders", ())) else "likely"
        return explain_memory("The GPU's memory is full", told, evidence + list_memory(told), held)
    if not codes.is_known(code) or code == _NOT_PERMITTED:
        denied = _denied(driver, evidence, _CONTROL, code)
        if denied:
            return denied
    if codes.is_known(code):
        found = codes.judge_code(code, told, driver)
        return replace(found, evidence=(*evidence, *found.evidence, *list_memory(told)))
    if code in _NO_DEVICE:
        return _no_device(driver, evidence)
    if code == _UNKNOWN:
        return _denied(driver, evidence, code=code) or Finding(
            cause="nvidia_uvm_stale",
            title="CUDA cannot start though the driver answers, as after suspend and resume",
            evidence=evidence,
            fix="Reload the module (rmmod nvidia_uvm && modprobe nvidia_uvm), or reboot.",
            confidence="possible",
        )
    return None


def _not_loaded(
    failed: Mapping[str, Any], driver: Mapping[str, Any], evidence: tuple[Evidence, ...]
) -> Finding | None:
    """libcuda.so.1 could not be loaded at all."""
    if "libcuda.so" not in failed["call"]:
        return None
    if _in_wsl():
        linked = os.path.exists("/usr/lib/wsl/lib/libcuda.so.1")
        return Finding(
            cause="wsl_libcuda_wrong_or_unlinked" if linked else "wsl_driver_missing",
            title="Windows offers its driver to WSL, but the loader does not find it"
            if linked
            else "Windows offers no NVIDIA driver to WSL",
            evidence=evidence,
            fix="Put /usr/lib/wsl/lib on the loader path."
            if linked
            else "Install a current NVIDIA driver in Windows, run wsl --update, use WSL 2.",
        )
    hidden = next((f for f in _DRIVER_FOLDERS if os.path.exists(os.path.join(f, "libcuda.so.1"))), None)
    if hidden:
        return Finding(
            cause="nvidia_libs_not_on_loader_path",
            title=f"The driver's libcuda.so.1 lies in {hidden}, where the loader does not look",
            evidence=(*evidence, Evidence(text="the driver's library", source=f"{hidden}/libcuda.so.1")),
            fix=f"Put {hidden} on LD_LIBRARY_PATH, or into /etc/ld.so.conf.d and run ldconfig.",
            confidence="certain",
        )
    if _in_colab():
        return _notebook_without_gpu(evidence)
    if is_in_container():
        return Finding(
            cause="container_without_gpu",
            title="This container was started without the GPU's driver",
            evidence=evidence,
            fix="Start it with --gpus all and NVIDIA_DRIVER_CAPABILITIES=compute,utility; without a GPU, "
            "verify with --device cpu.",
        )
    if driver.get("kernel_module"):
        return Finding(
            cause="nvidia_libs_not_on_loader_path",
            title="The kernel module is loaded, but the loader does not find the driver's libcuda.so.1",
            evidence=(
                *evidence,
                Evidence(text=driver["kernel_module"], source="/proc/driver/nvidia/version"),
            ),
            fix="Install the driver's libraries, or put their folder on the loader path.",
        )
    return Finding(
        cause="driver_missing",
        title="There is no NVIDIA driver on this machine",
        evidence=evidence,
        fix="Install the driver; without a GPU, verify with --device cpu.",
    )


def _no_device(driver: Mapping[str, Any], evidence: tuple[Evidence, ...]) -> Finding:
    """CUDA is there but sees no GPU: hidden, forbidden, not given, or without its kernel module."""
    visible = driver.get("visible")
    if visible is not None:
        return Finding(
            cause="visible_devices_invalid",
            title=f"CUDA_VISIBLE_DEVICES={visible!r} hides every GPU",
            evidence=(*evidence, Evidence(text=f"CUDA_VISIBLE_DEVICES={visible}", source="environment")),
            fix="Unset CUDA_VISIBLE_DEVICES, or name a GPU that is there (numbers begin at 0).",
            confidence="certain" if visible.strip() in ("", "-1") else "likely",
        )
    denied = _denied(driver, evidence)
    if denied:
        return denied
    if _in_colab() and not driver.get("files"):
        return _notebook_without_gpu(evidence)
    if is_in_container() and not driver.get("files"):
        return Finding(
            cause="container_without_gpu",
            title="This container was given the driver's libraries, but no GPU",
            evidence=evidence,
            fix="Start it with --gpus all (or the GPU request of your scheduler).",
        )
    return Finding(
        cause="driver_module_not_loaded",
        title="The driver's libraries are there, but its kernel module answers with no GPU",
        evidence=evidence,
        fix="Load the module (modprobe nvidia), or install the driver again for the running kernel.",
    )


def _notebook_without_gpu(evidence: tuple[Evidence, ...]) -> Finding:
    return Finding(
        cause="driver_missing",
        title="The notebook's runtime has no GPU",
        evidence=evidence,
        fix="Choose one: Runtime, Change runtime type; without a GPU, verify with --device cpu.",
    )


def _denied(
    driver: Mapping[str, Any],
    evidence: tuple[Evidence, ...],
    which: str = r"/dev/nvidia(ctl|-uvm|\d+)$",
    code: int | None = None,
) -> Finding | None:
    """Device files that this process may not open, or that are missing though the module is loaded. CUDA needs both
    control devices, so that one of them decides."""
    files = {f["path"]: f["problem"] for f in driver.get("files", ())}
    bad = {p: why for p, why in files.items() if why and re.search(which, p)}
    if any(path.startswith("/dev/nvidia") for path in files):  # not under WSL, which has one device for all
        bad |= {path: _MISSING for path in ("/dev/nvidiactl", _UVM) if path not in files}
    if not bad:
        return None
    shown = evidence + tuple(Evidence(text=why, source=path) for path, why in sorted(bad.items()))
    if code == _UNKNOWN and bad == {_UVM: _MISSING}:
        return Finding(
            cause="nvidia_uvm_stale",
            title=f"CUDA does not start: {_UVM} is missing",
            evidence=shown,
            fix="Make it: `sudo nvidia-modprobe -u -c 0`; start a container anew after that.",
            confidence="certain",
        )
    return Finding(
        cause="gpu_device_access_denied",
        title=f"This process cannot use {', '.join(sorted(bad))}",
        evidence=shown,
        fix="Add the user to the group that owns the device files, relax their mode, or give the container these devices.",
        confidence="certain" if any(re.search(_CONTROL, path) for path in bad) else "likely",
    )


def list_memory(told: Mapping[str, Any]) -> tuple[Evidence, ...]:
    """Free memory per GPU, and who holds the rest."""
    free = [
        Evidence(
            text=f"GPU {m['index']}: {m['free_mib']} of {m['total_mib']} MiB free", source="cudaMemGetInfo"
        )
        for m in told.get("memory", ())
    ]
    held = [
        Evidence(
            text=f"process {h['pid']} ({h['name'] or 'unknown'}{', ' + h['framework'] if h.get('framework') else ''}) "
            f"holds {'an unknown amount' if h['memory_mib'] is None else str(h['memory_mib']) + ' MiB'}"
            f"{'' if h['gpu'] is None else ' of GPU ' + str(h['gpu'])}",
            source="/dev/nvidia*" if h["gpu"] is None else "NVML",
        )
        for h in told.get("holders", ())
    ]
    return (*free, *held)


def explain_memory(
    title: str, told: Mapping[str, Any], evidence: tuple[Evidence, ...], confidence: Confidence = "likely"
) -> Finding:
    """Too little memory is free: taken by work, or reserved by a framework that takes nearly all it finds."""
    holders = told.get("holders", ())
    first = max(holders, key=lambda h: h["memory_mib"] or 0, default=None)
    if first and first.get("framework"):
        name, pid = first["framework"], first["pid"]
        switch = {
            "jax": "XLA_PYTHON_CLIENT_PREALLOCATE=false (or XLA_PYTHON_CLIENT_MEM_FRACTION)",
            "tensorflow": "TF_FORCE_GPU_ALLOW_GROWTH=true",
        }[name]
        return Finding(
            cause="preallocation_leaves_no_memory",
            title=f"{title}: process {pid} runs {name}, which reserves nearly the whole GPU",
            evidence=evidence,
            fix=f"Start process {pid} with {switch}, or end it.",
            confidence=confidence,
        )
    who = f"process {first['pid']} ({first['name'] or 'unknown'})" if first else "the process"
    return Finding(
        cause="gpu_memory_exhausted",
        title=title,
        evidence=evidence,
        fix=f"End {who} that holds the GPU's memory, or take another GPU.",
        confidence=confidence,
    )


_CUDNN: tuple[tuple[str, str, str, str], ...] = (
    ("SUBLIBRARY_VERSION_MISMATCH", "cudnn_shadowed_by_other_copy", "A cuDNN sublibrary of another version is mixed in", "Take the other copy off the loader path."),
    ("SUBLIBRARY_LOADING_FAILED", "cudnn_not_found", "A cuDNN sublibrary is missing or cannot be loaded", "Install cuDNN again, as one whole."),
    ("ARCH_MISMATCH", "arch_dropped_too_old", "This cuDNN has no code for this GPU", "Take a build whose cuDNN serves this GPU: gpuenv create --recreate."),
    ("ALLOC_FAILED", "gpu_memory_exhausted", "cuDNN could not get memory on the GPU", "End the process that holds the GPU's memory, or take another GPU."),
)  # fmt: skip


def explain_cudnn_call(
    failed: Mapping[str, Any], complaints: tuple[Evidence, ...], low: Mapping[str, Any] | None
) -> Finding | None:
    """The cause of a failed call into cuDNN. `complaints` are from its own log; `low` is what stage 2 saw
    where little GPU memory was free: then any status means that, because cuDNN reports a full GPU as INTERNAL_ERROR or NOT_INITIALIZED."""
    words = describe_call(failed)
    evidence = (Evidence(text=words, source="cuDNN"), *complaints)
    if low is not None:
        title = "The GPU has too little free memory for cuDNN to start"
        return explain_memory(title, low, evidence + list_memory(low), "certain")
    if failed["call"] == "cudnnConvolutionForward" and failed.get("code") is None:
        return Finding(
            cause="gpu_hardware_fault",
            title="cuDNN's convolution gives wrong numbers",
            evidence=evidence,
            fix="Try another GPU of this machine and another cuDNN release: where only one GPU is wrong, have it checked.",
            confidence="possible",
        )
    for pattern, cause, title, fix in _CUDNN:
        if pattern in words:
            return Finding(cause=cause, title=title, fix=fix, evidence=evidence)
    return explain_loader_message(words, evidence)
