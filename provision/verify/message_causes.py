"""The cause in a framework's own words: messages that only one thing can mean."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ..model import Evidence, Finding
from ..system.process import Finished
from .run_probe import ProbeReport

_SETTINGS: tuple[tuple[str, str, str, str], ...] = (
    (r"Unknown flags? in (TF_)?XLA_FLAGS|failed to parse XLA_FLAGS", "variable_breaks_framework",
     "XLA_FLAGS holds a flag that this release of XLA does not have", "Take the flag out of XLA_FLAGS, or unset it."),
    (r"CachingAllocator option|in ConfigTokenizer|garbage_collect_threshold|Unknown allocator backend|[Uu]nrecognized key.{1,80}allocator config", "variable_breaks_framework",
     "PYTORCH_CUDA_ALLOC_CONF or PYTORCH_ALLOC_CONF holds an option that this PyTorch refuses",
     "Correct the option, or unset PYTORCH_CUDA_ALLOC_CONF and PYTORCH_ALLOC_CONF."),
    (r"Too many open files|\[Errno 24\]", "process_limit_reached",
     "The limit on open files of this process is reached (ulimit -n)", "Raise the limit: ulimit -n 65536."),
    (r"can't start new thread|pthread_create failed|Thread creation failed: Resource temporarily|\[Errno 11\]", "process_limit_reached",
     "The limit on processes and threads of this user or container is reached (ulimit -u)",
     "Raise the limit (ulimit -u, docker run --pids-limit), or end other processes."),
)  # fmt: skip
"""Values of variables and limits: they come before what a framework reports because of them."""
_TEXTS: tuple[tuple[str, str, str, str], ...] = (
    (r"re-initialize CUDA in forked subprocess|CUDA_ERROR_NOT_INITIALIZED|(CUDA error|failed): initialization error",
     "forked_after_cuda_init", "CUDA was initialised before the process forked",
     "Start workers with the spawn method, and let nothing use CUDA before a fork."),
    (r"compiled against .*found runtime version|Loaded runtime CuDNN library: .* but source was compiled with|runtime version.*older than the version.*compiled",
     "cudnn_shadowed_by_other_copy", "Another cuDNN than the build's is loaded", "Take the other copy off the loader's path."),
    (r"out of memory|RESOURCE_EXHAUSTED|CUDA_ERROR_OUT_OF_MEMORY",
     "gpu_memory_exhausted", "The GPU's memory ran out", "End the process that holds the GPU's memory, or take another GPU."),
    (r"no kernel image is available|sm_\d+ is not compatible|CUDA_ERROR_NO_BINARY_FOR_GPU",
     "arch_not_in_wheel_too_new", "The build holds no code for this GPU", "Take a build made for this GPU: gpuenv create --recreate."),
    (r"driver version is insufficient|driver on your system is too old|unsupported toolchain",
     "driver_too_old_for_runtime", "The driver is older than this build needs", "Update the driver, or: gpuenv create --recreate."),
    (r"not compiled with CUDA enabled|CUDA-enabled jaxlib is not installed|Unknown backend:? '?(gpu|cuda)'?",
     "cpu_only_build", "This is a build for the CPU only", "Make the environment for the GPU: gpuenv create --recreate --device cuda."),
    (r"Mismatched PJRT plugin|Unexpected PJRT_", "jax_plugin_version_mismatch",
     "jax, jaxlib and the CUDA plugin are of different releases", "Install all of one release."),
    (r"compiled using NumPy 1\.x|_ARRAY_API not found|compiled against API version", "numpy_abi",
     "NumPy's binary interface is not the one this build was made for", "Install numpy<2, or a newer framework."),
    (r"No CUDA GPUs are available|invalid device ordinal|CUDA_ERROR_NO_DEVICE|no supported devices found", "visible_devices_invalid",
     "The framework sees no GPU though the driver does", "Unset CUDA_VISIBLE_DEVICES and what else hides GPUs."),
)  # fmt: skip


def explain_message(text: str, saw: Mapping[str, Any], evidence: tuple[Evidence, ...]) -> Finding | None:
    """The cause that a framework's message names; `saw` is what its framework stage told before."""
    finding = explain_setting(text, evidence) or _no_kernels(text, saw, evidence)
    if finding:
        return finding
    for pattern, label, title, fix in _TEXTS:
        if re.search(pattern, text):
            return Finding(cause=label, title=title, evidence=evidence, fix=fix)
    return None


def explain_setting(text: str, evidence: tuple[Evidence, ...]) -> Finding | None:
    """The variable or limit that a message names."""
    for pattern, label, title, fix in _SETTINGS:
        if found := re.search(rf".{{0,120}}(?:{pattern}).{{0,160}}", text):
            shown = Evidence(text=found.group(0).strip(), source="stderr")
            return Finding(cause=label, title=title, evidence=(shown, *evidence), fix=fix)
    return None


def _no_kernels(text: str, saw: Mapping[str, Any], evidence: tuple[Evidence, ...]) -> Finding | None:
    """A GPU outside the build's list of kernels, told as older or newer than all of them."""
    kernels = [int(k[3:].rstrip("af")) for k in saw.get("kernels", ()) if re.fullmatch(r"sm_\d+[af]?", k)]
    gpus = [int(d["capability"].replace(".", "")) for d in saw.get("devices", ()) if d["capability"]]
    if not kernels or not gpus or "no kernel image" not in text:
        return None
    old = min(gpus) < min(kernels)
    return Finding(
        cause="arch_dropped_too_old" if old else "arch_not_in_wheel_too_new",
        title=f"The build holds code for sm_{', sm_'.join(map(str, kernels))}, "
        f"the GPU is {'older' if old else 'not among them'} (sm_{min(gpus) if old else max(gpus)})",
        evidence=evidence,
        fix="Take a build made for this GPU: gpuenv create --recreate.",
        confidence="certain",
    )


def explain_no_gpu(
    told: ProbeReport, saw: Mapping[str, Any], stage: str, unopened: Finding | None
) -> Finding | None:
    """A GPU build that raised before it saw any GPU."""
    if stage != "framework" or not saw.get("cuda") or saw.get("devices"):
        return None
    return explain_unseen_gpu(told, "The framework sees no GPU, though the driver does", unopened)


def explain_unseen_gpu(told: ProbeReport, title: str, unopened: Finding | None) -> Finding:
    """A framework that sees no GPU: what it lacks stands in its log, if anywhere. `unopened` is what the
    loader did not find for it."""
    stderr = told.finished.stderr
    said = told.words(6)
    found = unopened or explain_message(stderr, {}, said) or explain_loader_message(stderr, said)
    if found:
        return found
    dlopen = "dlopen" in stderr
    return Finding(
        cause="nvidia_libs_not_on_loader_path" if dlopen else "visible_devices_invalid",
        title=title,
        evidence=said,
        fix="Start it with TF_CPP_VMODULE=dso_loader=1: it then names each library that it does not find."
        if dlopen
        else "Unset what hides GPUs from it: CUDA_VISIBLE_DEVICES, JAX_PLATFORMS, a call of set_visible_devices.",
        confidence="possible",
    )


# The cause in the dynamic loader's words.
def explain_loader_message(words: str, evidence: tuple[Evidence, ...]) -> Finding | None:
    """The cause in the dynamic loader's words."""
    if re.search(r"version `(GLIBC|GLIBCXX|CXXABI)_", words):
        return Finding(
            cause="system_libs_too_old",
            title="glibc or libstdc++ on this machine is older than this build needs",
            evidence=evidence,
            fix="Take an older build (gpuenv create reads this machine's glibc), or a newer system.",
        )
    missing = re.search(r"(?<![\w.+-])(lib[\w.+-]+): cannot open shared object file", words)
    if missing:
        cudnn = missing.group(1).startswith("libcudnn")
        return Finding(
            cause="cudnn_not_found" if cudnn else "nvidia_libs_not_installed",
            title=f"{missing.group(1)} is not found",
            evidence=evidence,
            fix="Install the missing library's package again; an environment of gpuenv's: gpuenv repair ENV.",
        )
    if re.search(r"(?<![\w.+-])lib[\w.+-]+: (file too short|invalid ELF header|ELF load command)", words):
        return Finding(
            cause="package_files_damaged",
            title="The loader refuses a library: its file is damaged",
            evidence=evidence,
            fix="Install the package of that library again; an environment of gpuenv's: gpuenv repair ENV.",
        )
    if re.search(r"undefined symbol: \w*(nvJitLink|cublas|nvrtc|nccl|cusparse)", words, re.IGNORECASE):
        return Finding(
            cause="nvidia_lib_symbol_mismatch",
            title="An NVIDIA library of another version is loaded beside its siblings",
            evidence=evidence,
            fix="Unset LD_LIBRARY_PATH, or remove the second copy.",
        )
    return None


# The cause of a process's end where only the signal says something.
def explain_signal(finished: Finished, evidence: tuple[Evidence, ...]) -> Finding | None:
    """What SIGBUS and SIGKILL mean while libraries are loaded; None for other signals."""
    if finished.signal == "SIGBUS":
        return Finding(
            cause="package_files_damaged",
            title="A library's file is shorter than it says: reading it ended the process by SIGBUS",
            evidence=evidence,
            fix="Install the framework and its libraries again, without the installer's cache.",
        )
    if finished.signal == "SIGKILL" and not finished.timed_out:
        return Finding(
            cause="process_limit_reached",
            title="The process was ended by SIGKILL, as the kernel does when memory runs out",
            evidence=evidence,
            fix="See whether memory ran out (sudo dmesg | grep -i oom); if so, give the machine, container or job more.",
            confidence="possible",
        )
    return None
