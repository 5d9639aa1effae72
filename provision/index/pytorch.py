"""The PyTorch index: which packages are named for it, and its address for a build.

A plan that takes torch from there takes these from nowhere else, and nothing else from there: they hold code
compiled against that very torch, and the releases of the same number on other indexes do not.
"""

from __future__ import annotations

from ..model import Package, Plan

FAMILY = ("torch", "torchvision", "torchaudio", "pytorch-triton")


def named_for(plan: Plan) -> tuple[str, ...]:
    """The packages that a plan takes from the PyTorch index, if it takes any."""
    return FAMILY if any(b.index == "pytorch" for b in plan.builds) else ()


def address(base: str, plan: Plan) -> str:
    """Where the builds of a plan lie on the index at `base`: each local label (cu128, cpu) is an index of
    its own below it, and pages of one torch build never show another's."""
    pins = [r for b in plan.builds if b.index == "pytorch" for r in b.requirements]
    local = next((r.partition("+")[2] for r in pins if r.startswith("torch===")), "")
    return f"{base.rstrip('/')}/{local}" if local else base


def split(packages: tuple[Package, ...], plan: Plan) -> tuple[tuple[Package, ...], tuple[Package, ...]]:
    """A lock's packages: those of the PyTorch index, and all others. One that the lock took from a folder of
    wheels is none of the index's."""
    names = named_for(plan)
    theirs = tuple(p for p in packages if p.name in names and p.index is not None)
    return theirs, tuple(p for p in packages if p not in theirs)
