"""gpuenv's own packages in a bundle, for whichever Python the target has."""

from __future__ import annotations

import importlib.metadata
from concurrent.futures import ThreadPoolExecutor

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from .. import bundle, lock
from ..errors import LockError
from ..index import uv
from ..model import Event, Lock, Package, Plan
from .bundle_lock import Got
from .solving import Emit


def packages(got: Got, emit: Emit) -> tuple[tuple[Package, ...], tuple[str, ...]]:
    """What gpuenv requires, for every Python that it runs on and has wheels for, and which those are. Of uv the
    version that is here. Raises LockError where there are none for any."""
    conda = got.lock.manager == "conda"
    wanted = [
        *bundle.own.requirements(*(["conda"] if conda else [])),
        f"uv=={importlib.metadata.version('uv')}",
    ]
    minors = _minors(got)
    emit(Event(kind="start", stage="bundle",
               text=f"solving what gpuenv itself needs, for Python {minors[-1]} to {minors[0]}"))  # fmt: skip
    uv.program()  # found once, here: sysconfig, which it asks, is not safe to begin in several threads
    with ThreadPoolExecutor(len(minors)) as pool:
        solved = list(pool.map(lambda minor: _solved(got, tuple(wanted), minor), minors))
    found = {p.url: p for one in solved if isinstance(one, Lock) for p in one.packages}
    if not found:
        raise next(one for one in solved if isinstance(one, LockError))
    served = tuple(m for m, one in zip(minors, solved, strict=True) if isinstance(one, Lock))
    return tuple(found.values()), served


def _solved(got: Got, wanted: tuple[str, ...], minor: str) -> Lock | LockError:
    """The packages for one Python, or why there are none. Raises LockError where the index is silent."""
    plan = got.lock.plan
    empty = Plan(
        builds=(), python=minor, platform=plan.platform, manager="venv", device="cpu", target=got.lock.target,
        packages=wanted,
    )  # fmt: skip
    try:
        return lock.lock_venv(empty, got.sources, lambda _event: None)
    except LockError as error:
        if error.unreachable:
            raise
        return error


def _minors(got: Got) -> list[str]:
    """The Pythons that gpuenv runs on, of those that any build is known for, the newest first."""
    bounds = SpecifierSet(bundle.own.requires_python())
    known = {p for b in got.profiles.builds for p in b.python if f"{p}.99" in bounds}
    return sorted(known, key=Version, reverse=True)
