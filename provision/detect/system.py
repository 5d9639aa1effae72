"""The platform and the C library of this machine, as plans name them."""

from __future__ import annotations

import os
import platform

from ..model import PLATFORMS, Evidence, Finding


def platform_name(system: str, machine: str, glibc: str | None) -> str:
    """The platform string of a plan, "linux-x86_64", from what `platform` says.

    A Linux without glibc is named for the C library it has instead ("linux-x86_64-musl"): wheels
    with the tag manylinux do not run there (PEP 600).
    """
    system = system.lower()
    machine = {"amd64": "x86_64", "x64": "x86_64"}.get(machine.lower(), machine.lower())
    if system == "darwin":
        return f"macos-{machine}"
    if system == "linux" and machine == "arm64":
        machine = "aarch64"
    name = f"{system}-{machine}"
    return name if system != "linux" or glibc else f"{name}-musl"


def glibc_version(answer: str | None) -> str | None:
    """The version in what confstr(CS_GNU_LIBC_VERSION) answers: "glibc 2.36" is "2.36"."""
    name, _, version = (answer or "").partition(" ")
    return version.strip() or None if name == "glibc" else None


def read_glibc() -> str | None:
    """The glibc that this Python runs on; None where there is none (musl, macOS, Windows)."""
    names = getattr(os, "confstr_names", {})
    if "CS_GNU_LIBC_VERSION" not in names:
        return None
    try:
        return glibc_version(os.confstr("CS_GNU_LIBC_VERSION"))
    except (OSError, ValueError):
        return None  # musl knows the name's number but not the question


def read_platform() -> tuple[str, str | None]:
    """(platform, glibc) of this machine."""
    glibc = read_glibc() if platform.system() == "Linux" else None
    return platform_name(platform.system(), platform.machine(), glibc), glibc


def judge_platform(name: str) -> tuple[Finding, ...]:
    """One honest sentence about a platform for which no CUDA builds are known."""
    if name in PLATFORMS:
        return ()
    if name.startswith("macos-"):
        title = "macOS has no NVIDIA driver, so no CUDA environment can be made on this machine"
        fix = "Make the environment on the GPU machine, or lock for it here: `gpuenv lock --target FILE`."
    elif name.endswith("-musl"):
        title = (
            "This Linux has musl instead of glibc (Alpine), and no framework publishes CUDA wheels for musl"
        )
        fix = "Use an image with glibc, for example `docker run --gpus all -it debian:stable`."
    else:
        title = f"No framework publishes CUDA builds for {name}"
        fix = f"Use one of {', '.join(PLATFORMS)}, or lock for such a machine: `gpuenv lock --target FILE`."
    evidence = Evidence(text=f"platform {name}", source="python")
    return (
        Finding(
            cause="no_gpu_build_for_platform",
            title=title,
            evidence=(evidence,),
            fix=fix,
            confidence="certain",
        ),
    )
