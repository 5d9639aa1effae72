"""Causes in the messages of frameworks and of the dynamic loader, and in signals."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ..model import Evidence, Finding
from ..profiles.findings import make_finding
from ..system.process import Finished
from .run_probe import ProbeReport

# Pattern of a message -> finding. Variables and limits come before the errors that they cause in a framework.
_SETTINGS = {
    r"Unknown flags? in (TF_)?XLA_FLAGS|failed to parse XLA_FLAGS": "xla_flag_unknown",
    r"CachingAllocator option|in ConfigTokenizer|garbage_collect_threshold|Unknown allocator backend"
    r"|[Uu]nrecognized key.{1,80}allocator config": "allocator_option_unknown",
    r"Too many open files|\[Errno 24\]": "open_files_limited",
    r"can't start new thread|pthread_create failed|Thread creation failed: Resource temporarily|\[Errno 11\]": "processes_limited",
}
_MESSAGES = {
    r"re-initialize CUDA in forked subprocess|CUDA_ERROR_NOT_INITIALIZED|(CUDA error|failed): initialization error": "forked_after_start",
    r"compiled against .*found runtime version|Loaded runtime CuDNN library: .* but source was compiled with"
    r"|runtime version.*older than the version.*compiled": "other_cudnn_loaded",
    r"out of memory|RESOURCE_EXHAUSTED|CUDA_ERROR_OUT_OF_MEMORY": "gpu_memory_ran_out",
    r"no kernel image is available|sm_\d+ is not compatible|CUDA_ERROR_NO_BINARY_FOR_GPU": "no_kernels_for_gpu",
    r"driver version is insufficient|driver on your system is too old|unsupported toolchain": "driver_older_than_build",
    r"not compiled with CUDA enabled|CUDA-enabled jaxlib is not installed|Unknown backend:? '?(gpu|cuda)'?": "build_for_cpu",
    r"Mismatched PJRT plugin|Unexpected PJRT_": "jax_releases_differ",
    r"compiled using NumPy 1\.x|_ARRAY_API not found|compiled against API version": "numpy_interface_differs",
    r"No CUDA GPUs are available|invalid device ordinal|CUDA_ERROR_NO_DEVICE|no supported devices found": "framework_sees_no_gpu",
}


def explain_message(text: str, seen: Mapping[str, Any], evidence: tuple[Evidence, ...]) -> Finding | None:
    """Return the cause that a framework's message names. `seen` is what its framework stage reported before."""
    finding = explain_setting(text, evidence) or _explain_kernels(text, seen, evidence)
    if finding:
        return finding
    name = next((name for pattern, name in _MESSAGES.items() if re.search(pattern, text)), None)
    return make_finding(name, evidence, framework="The framework") if name else None


def explain_setting(text: str, evidence: tuple[Evidence, ...]) -> Finding | None:
    """Return the variable or limit that a message names."""
    for pattern, name in _SETTINGS.items():
        if match := re.search(rf".{{0,120}}(?:{pattern}).{{0,160}}", text):
            shown = Evidence(text=match.group(0).strip(), source="stderr")
            return make_finding(name, (shown, *evidence))
    return None


def _explain_kernels(text: str, seen: Mapping[str, Any], evidence: tuple[Evidence, ...]) -> Finding | None:
    """Return whether a GPU without kernels is older or newer than all kernels of the build."""
    kernels = [int(k[3:].rstrip("af")) for k in seen.get("kernels", ()) if re.fullmatch(r"sm_\d+[af]?", k)]
    gpus = [int(d["capability"].replace(".", "")) for d in seen.get("devices", ()) if d["capability"]]
    if not kernels or not gpus or "no kernel image" not in text:
        return None
    is_old = min(gpus) < min(kernels)
    return make_finding(
        "gpu_older_than_kernels" if is_old else "no_kernels_in_list",
        evidence,
        confidence="certain",
        kernels=", ".join(f"sm_{k}" for k in kernels),
        gpu=f"sm_{min(gpus) if is_old else max(gpus)}",
    )


def explain_no_gpu(
    report: ProbeReport, seen: Mapping[str, Any], stage: str, missing: Finding | None
) -> Finding | None:
    """Return why a GPU build raised an exception before it saw any GPU."""
    if stage != "framework" or not seen.get("cuda") or seen.get("devices"):
        return None
    return explain_unseen_gpu(report, "The framework", missing)


def explain_unseen_gpu(report: ProbeReport, framework: str, missing: Finding | None) -> Finding:
    """Return why a framework sees no GPU, from its log. `missing` is the library that the loader did not find."""
    stderr, shown = report.finished.stderr, report.words(6)
    finding = missing or explain_message(stderr, {}, shown) or explain_loader_message(stderr, shown)
    if finding:
        return finding
    name = "framework_misses_libraries" if "dlopen" in stderr else "framework_sees_no_gpu"
    return make_finding(name, shown, confidence="possible", framework=framework)


def explain_loader_message(text: str, evidence: tuple[Evidence, ...]) -> Finding | None:
    """Return the cause that the dynamic loader's message names."""
    if re.search(r"version `(GLIBC|GLIBCXX|CXXABI)_", text):
        return make_finding("system_older_than_build", evidence)
    missing = re.search(r"(?<![\w.+-])(lib[\w.+-]+): cannot open shared object file", text)
    if missing:
        library = missing.group(1)
        name = "cudnn_library_not_found" if library.startswith("libcudnn") else "library_not_found"
        return make_finding(name, evidence, library=library)
    if re.search(r"(?<![\w.+-])lib[\w.+-]+: (file too short|invalid ELF header|ELF load command)", text):
        return make_finding("library_refused", evidence)
    if re.search(r"undefined symbol: \w*(nvJitLink|cublas|nvrtc|nccl|cusparse)", text, re.IGNORECASE):
        return make_finding("nvidia_libraries_differ", evidence)
    return None


def explain_signal(finished: Finished, evidence: tuple[Evidence, ...]) -> Finding | None:
    """Return the cause of SIGBUS or SIGKILL while libraries are loaded, else None."""
    if finished.signal == "SIGBUS":
        return make_finding("library_truncated", evidence)
    if finished.signal == "SIGKILL" and not finished.timed_out:
        return make_finding("killed_for_memory", evidence, confidence="possible")
    return None
