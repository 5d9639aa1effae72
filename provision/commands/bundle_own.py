"""gpuenv's own packages in a bundle, for whichever Python the target has."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from .. import bundle
from ..errors import LockError
from ..managers.protocol import locking
from ..model import Emit, Event, Lock, Package, Plan
from ..wheels import pypi, universal
from ..wheels.source_builds import SourceBuilds
from .bundle_lock import Got


def packages(got: Got, emit: Emit) -> tuple[tuple[Package, ...], tuple[str, ...]]:
    """What gpuenv requires, and pip, for every Python that it runs on and has wheels for; and which Pythons
    those are, the newest first. Of uv the version that is here. Raises LockError where there are none."""
    emit(Event(kind="start", stage="bundle", text="solving what gpuenv itself needs"))
    wanted = [
        *bundle.own.requirements(*locking(got.lock.manager).EXTRAS),
        f"uv=={importlib.metadata.version('uv')}",
        "pip",
    ]
    minors = _minors(got)
    found = universal.wheels_for(wanted, minors, got.lock.plan, got.sources)
    rest = [m for m in minors if m not in found]
    refusals = []
    with ThreadPoolExecutor(max(1, len(rest))) as pool:
        for minor, one in zip(rest, pool.map(lambda m: _solved(got, wanted, m), rest), strict=True):
            if isinstance(one, Lock):
                found[minor] = one.packages
            else:
                refusals.append(one)
    if not found:
        raise refusals[0]
    served = tuple(m for m in minors if m in found)
    return tuple({p.url: p for m in served for p in found[m]}.values()), served


def _solved(got: Got, wanted: Sequence[str], minor: str) -> Lock | LockError:
    """The packages for one Python, or why there are none. Raises LockError where the index is silent."""
    plan = Plan(
        builds=(), python=minor, platform=got.lock.plan.platform, manager="venv", device="cpu",
        target=got.lock.target, packages=tuple(wanted),
    )  # fmt: skip
    try:
        return pypi.lock(plan, got.sources, _ignore, builds=SourceBuilds(_ignore, forbidden_by="a bundle"))
    except LockError as error:
        if error.unreachable:
            raise
        return error


def _ignore(_event: Event) -> None:
    """Several solves run at a time: what each does is not shown."""


def _minors(got: Got) -> list[str]:
    """The Pythons that gpuenv runs on, of those that any build is known for, the newest first."""
    bounds = SpecifierSet(bundle.own.requires_python())
    known = {p for b in got.profiles.builds for p in b.python if f"{p}.99" in bounds}
    return sorted(known, key=Version, reverse=True)
