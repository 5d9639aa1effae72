"""The PyTorch index: its packages and their addresses.

A plan that takes torch from there takes these from nowhere else, and nothing else from there: they hold code
compiled against that very torch, and releases of the same number on other indexes do not.
"""

from __future__ import annotations

import re

from ..model import PYTORCH_INDEX_PACKAGES, LockedPackage, Plan

# Wheels lie under /whl and, for one build, under its local label: /whl/cu128, /whl/cpu, /whl/nightly/cu130.
_PLACE = re.compile(r"(/whl(?:/nightly)?)(?:/(?:cu\d+|cpu|xpu|rocm[\d.]+))?/?$")


def is_one(url: str, base: str = "") -> bool:
    """Whether an address is of the PyTorch index or of a mirror of it: below `base`, or laid out as it is."""
    plain = url.partition("?")[0].rstrip("/")
    return bool(_PLACE.search(plain)) or bool(base and f"{plain}/".startswith(base.rstrip("/") + "/"))


def base_of(url: str) -> str:
    """The address below which every build has its own place."""
    return _PLACE.sub(r"\1", url.rstrip("/"))


def named_for(plan: Plan) -> tuple[str, ...]:
    """The packages that a plan takes from the PyTorch index, if it takes any."""
    return PYTORCH_INDEX_PACKAGES if any(b.index == "pytorch" for b in plan.builds) else ()


def address(base: str, plan: Plan) -> str:
    """Where a plan's builds lie: the pages under one local label never show another build."""
    pins = [r for b in plan.builds if b.index == "pytorch" for r in b.requirements]
    local = next((r.partition("+")[2] for r in pins if r.startswith("torch===")), "")
    return f"{base.rstrip('/')}/{local}" if local else base


def split(
    packages: tuple[LockedPackage, ...], plan: Plan
) -> tuple[tuple[LockedPackage, ...], tuple[LockedPackage, ...]]:
    """A lock's packages: those of the PyTorch index, and all others. One that the lock took from a folder of
    wheels is none of the index's."""
    names = named_for(plan)
    theirs = tuple(p for p in packages if p.name in names and p.index is not None)
    return theirs, tuple(p for p in packages if p not in theirs)
