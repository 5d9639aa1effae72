"""Which GPU a set of compiled kernels runs on.

Rules (CUDA Programming Guide, binary and PTX compatibility): a cubin for X.Y runs on X.Z with
Z >= Y of the same major; Tegra parts and arch-specific (`a`, `f`) targets match only themselves;
PTX is compiled for anything newer, by a driver that speaks at least the CUDA that made it.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..model import GpuModel
from .versions import version

# sm_101 of CUDA 12.8 and 12.9 was renamed sm_110 in CUDA 13: one device (CUDA 13.0 release notes).
_RENAMED = {"10.1": "11.0"}
# Cubins for 10.0 and 12.0 run there, but CUDA libraries older than 12.9 do not know the parts.
_NEED_CUDA = {"10.3": "12.9", "12.1": "12.9"}


def same_device(capability: str) -> str:
    return _RENAMED.get(capability, capability)


def by_cubin(kernel: str, capability: str, gpus: Mapping[str, GpuModel]) -> bool:
    """Whether machine code for `kernel` ("8.0", "9.0a", "9.0+PTX") runs on `capability`."""
    target = kernel.removesuffix("+PTX")
    plain = same_device(target.rstrip("af"))
    capability = same_device(capability)
    exact_only = target[-1] in "af" or _is_tegra(plain, gpus) or _is_tegra(capability, gpus)
    if exact_only:
        return plain == capability
    have, need = version(capability).release, version(plain).release
    return have[0] == need[0] and have >= need


def by_ptx(kernel: str, capability: str) -> bool:
    """Whether PTX of `kernel` can be compiled for `capability` by a driver that is new enough."""
    if not kernel.endswith("+PTX") or kernel[-5] in "af":
        return False
    return version(same_device(capability)) >= version(kernel.removesuffix("+PTX"))


def needs_cuda(capability: str) -> str | None:
    """The oldest CUDA whose libraries know a GPU that older cubins would already run on."""
    return _NEED_CUDA.get(capability)


def _is_tegra(capability: str, gpus: Mapping[str, GpuModel]) -> bool:
    known = gpus.get(capability)
    return known is not None and known.tegra
