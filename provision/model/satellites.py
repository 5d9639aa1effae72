"""Packages compiled against a framework or CUDA: the rows of profiles/satellites.yaml."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Satellite:
    """One release of a package with compiled code, on one platform.

    Rows that differ only in `cuda` are alternatives in one wheel. `form` is "wheel", "source", or "download" (a
    source whose build downloads a wheel from another index). `pythons` are the minor versions with a wheel. "3.10+"
    is a wheel for 3.10 and all later ones (abi3, or no Python code). `glibc` is the oldest glibc that its tag and its
    symbols allow.

    `cuda` is the CUDA major ("13"), or the release of an alternative ("12.8"). It is None without CUDA libraries.
    `cuda_by` is the evidence: "needed" (DT_NEEDED), "dlopen" (names in the code), "name" (of the package). `needs`
    are the NVIDIA libraries in DT_NEEDED of its libraries. `optional` are those that only an optional module needs,
    and `bundles` those inside the wheel. `cudnn` is a PEP 440 specifier, with `cudnn_by` like `cuda_by`. `kernels`
    are the GPUs for which any of its libraries has code. Code for one GPU alone (sm_90a) is shown as 9.0.

    `built_for` is the framework requirement ("torch==2.14.0"). `abi` is "stable" (runs with any later release of the
    framework) or "exact" (compiled for one release, unknown if `built_for` is a range). It is None if its code does
    not call a framework. `cxx11` is "1" or "0", the C++ string ABI of its calls. `extras` have libraries that the
    release needs and does not require. `nvcc` says that its setup.py compiles CUDA code.
    """

    package: str
    version: str
    platform: str
    index: str
    form: str
    pythons: tuple[str, ...] = ()
    glibc: str | None = None
    cuda: str | None = None
    cuda_by: str | None = None
    needs: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    bundles: tuple[str, ...] = ()
    built_for: str | None = None
    abi: str | None = None
    cxx11: str | None = None
    cudnn: str | None = None
    cudnn_by: str | None = None
    kernels: tuple[str, ...] = ()
    extras: tuple[str, ...] = ()
    nvcc: bool = False
    sha256: str | None = None
    bytes: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class PackageTrap:
    """A package whose content differs from its name.

    `versions` is a PEP 440 specifier, or None for all. It has the reason, and the package to install in its place.
    `action` is None if the name is always a mistake, and "warn" if it can be intended. It is "replace" if the plan's
    CUDA decides the replacement.
    """

    package: str
    why: str
    source: str
    versions: str | None = None
    instead: str | None = None
    action: str | None = None
