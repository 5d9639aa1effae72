"""Which GPUs a set of compiled kernels supports.

Rules (CUDA Programming Guide, binary and PTX compatibility): a cubin for X.Y runs on X.Z with Z >= Y of the
same major. Tegra parts and arch-specific (`a`, `f`) targets match only themselves. PTX is compiled for
anything newer, by a driver that supports at least the CUDA that made it.
"""

from __future__ import annotations

from functools import cache

from .versions import version

# CUDA 13 renamed sm_101 of CUDA 12.8 and 12.9 to sm_110: the same device (CUDA 13.0 release notes).
_RENAMED = {"10.1": "11.0"}
# Cubins for 10.0 and 12.0 run on these GPUs, but CUDA libraries older than 12.9 do not support them.
_NEED_CUDA = {"10.3": "12.9", "12.1": "12.9"}


def same_device(capability: str) -> str:
    return _RENAMED.get(capability, capability)


@cache
def how_they_run(kernels: tuple[str, ...], capability: str, tegra: frozenset[str]) -> str | None:
    """Return how kernels ("8.0", "9.0a", "9.0+PTX") run on a GPU.

    "cubin" means directly, "ptx" after compilation by the driver, None not at all. `tegra` are the
    capabilities of Tegra parts.
    """
    if any(_by_cubin(k, capability, tegra) for k in kernels):
        return "cubin"
    return "ptx" if any(_by_ptx(k, capability) for k in kernels) else None


def _by_cubin(kernel: str, capability: str, tegra: frozenset[str]) -> bool:
    target = kernel.removesuffix("+PTX")
    plain = same_device(target.rstrip("af"))
    capability = same_device(capability)
    if target[-1] in "af" or plain in tegra or capability in tegra:
        return plain == capability
    have, need = version(capability).release, version(plain).release
    return have[0] == need[0] and have >= need


def _by_ptx(kernel: str, capability: str) -> bool:
    if not kernel.endswith("+PTX") or kernel[-5] in "af":
        return False
    return version(same_device(capability)) >= version(kernel.removesuffix("+PTX"))


def needs_cuda(capability: str) -> str | None:
    """Return the oldest CUDA whose libraries support a GPU on which older cubins would already run."""
    return _NEED_CUDA.get(capability)
