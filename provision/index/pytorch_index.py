"""The PyTorch index: its packages and their addresses.

A plan that takes torch from this index takes all of these packages from it, and no others. They have code compiled
against exactly that torch. Releases of the same number on other indexes do not.
"""

from __future__ import annotations

import re

from ..model import PYTORCH_INDEX_PACKAGES, LockedPackage, Plan

# Wheels are below /whl and, for one build, below its local label: /whl/cu128, /whl/cpu, /whl/nightly/cu130.
_PLACE = re.compile(r"(/whl(?:/nightly)?)(?:/(?:cu\d+|cpu|xpu|rocm[\d.]+))?/?$")


def is_one(url: str, base: str = "") -> bool:
    """Return whether an address belongs to the PyTorch index or a mirror: below `base`, or with the same layout."""
    plain = url.partition("?")[0].rstrip("/")
    return bool(_PLACE.search(plain)) or bool(base and f"{plain}/".startswith(base.rstrip("/") + "/"))


def base_of(url: str) -> str:
    """Return the address that is the parent of every build's address."""
    return _PLACE.sub(r"\1", url.rstrip("/"))


def list_index_packages(plan: Plan) -> tuple[str, ...]:
    """Return the packages that a plan takes from the PyTorch index, if any."""
    return PYTORCH_INDEX_PACKAGES if any(b.index == "pytorch" for b in plan.builds) else ()


def address(base: str, plan: Plan) -> str:
    """Return the address of a plan's builds. The pages of one local label list no other builds."""
    pins = [r for b in plan.builds if b.index == "pytorch" for r in b.requirements]
    local = next((r.partition("+")[2] for r in pins if r.startswith("torch===")), "")
    return f"{base.rstrip('/')}/{local}" if local else base


def split(
    packages: tuple[LockedPackage, ...], plan: Plan
) -> tuple[tuple[LockedPackage, ...], tuple[LockedPackage, ...]]:
    """Return a lock's packages of the PyTorch index, and all others.

    A package from a folder of wheels is one of the others.
    """
    names = list_index_packages(plan)
    theirs = tuple(p for p in packages if p.name in names and p.index is not None)
    return theirs, tuple(p for p in packages if p not in theirs)
