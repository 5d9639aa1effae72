"""Reads the platform and C library of this machine, and environment variables that concern GPUs.

Secrets in the variables are removed.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping

from ..model import PLATFORMS, Evidence, Finding
from ..system.redaction import redact_variable
from .make_detect_finding import make_finding


def name_platform(system: str, machine: str, glibc: str | None) -> str:
    """Return the platform string of a plan, "linux-x86_64", from the values of `platform`.

    A Linux without glibc is named after its C library ("linux-x86_64-musl"), because manylinux wheels do not
    run there (PEP 600).
    """
    system = system.lower()
    machine = {"amd64": "x86_64", "x64": "x86_64"}.get(machine.lower(), machine.lower())
    if system == "darwin":
        return f"macos-{machine}"
    if system == "linux" and machine == "arm64":
        machine = "aarch64"
    name = f"{system}-{machine}"
    return name if system != "linux" or glibc else f"{name}-musl"


def parse_glibc_version(answer: str | None) -> str | None:
    """Return the version in the answer of confstr(CS_GNU_LIBC_VERSION): "glibc 2.36" is "2.36"."""
    name, _, version = (answer or "").partition(" ")
    return version.strip() or None if name == "glibc" else None


def read_glibc() -> str | None:
    """Return the glibc of this Python, or None without glibc (musl, macOS, Windows)."""
    names = getattr(os, "confstr_names", {})
    if "CS_GNU_LIBC_VERSION" not in names:
        return None
    try:
        return parse_glibc_version(os.confstr("CS_GNU_LIBC_VERSION"))
    except (OSError, ValueError):
        return None  # musl knows the name, but has no value


def read_platform() -> tuple[str, str | None]:
    """Return (platform, glibc) of this machine."""
    glibc = read_glibc() if platform.system() == "Linux" else None
    return name_platform(platform.system(), platform.machine(), glibc), glibc


def judge_platform(name: str) -> tuple[Finding, ...]:
    """Return a finding for a platform without CUDA builds."""
    if name in PLATFORMS:
        return ()
    finding = "platform_without_builds"
    if name.startswith("macos-"):
        finding = "macos"
    elif name.endswith("-musl"):
        finding = "musl"
    evidence = Evidence(text=f"platform {name}", source="python")
    return (make_finding(finding, (evidence,), platform=name, platforms=", ".join(PLATFORMS)),)


NAMES = frozenset(
    (
        "CUDA_DEVICE_ORDER",
        "CUDA_HOME",
        "CUDA_MODULE_LOADING",
        "CUDA_PATH",
        "CUDA_ROOT",
        "CUDA_VISIBLE_DEVICES",
        "CONDA_PREFIX",
        "LD_LIBRARY_PATH",
        "LD_PRELOAD",
        "NVIDIA_DRIVER_CAPABILITIES",
        "NVIDIA_REQUIRE_CUDA",
        "NVIDIA_VISIBLE_DEVICES",
        "PYTHONHOME",
        "PYTHONPATH",
        "PYTHONNOUSERSITE",
        "VIRTUAL_ENV",
        "SLURM_JOB_ID",
        "TRITON_PTXAS_PATH",
    )
)
PREFIXES = (
    "CONDA_OVERRIDE_",
    "CUDNN_",
    "JAX_",
    "NCCL_",
    "PYTORCH_",
    "TF_",
    "TORCH_",
    "XLA_",
)
# Terraform's, not TensorFlow's.
OTHERS = ("TF_CLI_", "TF_DATA_DIR", "TF_LOG", "TF_TOKEN_", "TF_VAR_", "TF_WORKSPACE")


def read_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that concern GPU environments, sorted by name."""
    return {
        name: redact_variable(name, value)
        for name, value in sorted(environ.items())
        if name in NAMES or (name.startswith(PREFIXES) and not name.startswith(OTHERS))
    }
