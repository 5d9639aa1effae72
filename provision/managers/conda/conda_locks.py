"""Locks of the manager `conda`: conda-lock.yml and locks of other tools."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path

from ...errors import LockError
from ...model import Lock, Profiles, RequestContext
from . import conda_lock_yml, engine, foreign_locks
from .solver_question import assumed_gpu, question

__all__ = ["assumed_gpu"]
OPTION = " --manager conda"
PLANS_FIRST = False
BRINGS_PYTHON = True
KEEPS_UPLOAD_LIMITS = False
EXTRAS = ("conda",)


def require() -> None:
    """Raise UsageError if the solver or conda-lock is missing."""
    engine.require("rattler", "conda_lock")


def read_lock(path: Path, platform: str, known: Callable[[], Profiles]) -> Lock:
    """Read a conda lock of any kind. Raises LockError, OtherPlatformError."""
    return foreign_locks.read(path, platform, known().conda)


def write_lock(
    path: Path, lock: Lock, virtual: tuple[Mapping[str, str], ...], *, alone: bool = False
) -> None:
    """Write a conda-lock.yml with the virtual packages that it was solved with. Raises LockError."""
    conda_lock_yml.write(path, lock, virtual, alone=alone)


def check_hashes(lock: Lock, origin: str, *, allow_md5: bool) -> None:
    """Raise LockError for packages without a sha256. With `allow_md5` an md5 is enough."""
    weak = [p.name for p in lock.packages if p.sha256 is None and (p.md5 is None or not allow_md5)]
    if weak:
        named = ", ".join(weak[:3]) + (", ..." if len(weak) > 3 else "")
        raise LockError(
            f"{origin} has no sha256 for {len(weak)} of {len(lock.packages)} packages ({named})",
            hint="accept md5 with --allow-md5"
            if all(p.md5 for p in lock.packages if p.name in weak)
            else "lock again with hashes",
        )


def virtual_packages(context: RequestContext) -> tuple[Mapping[str, str], ...]:
    """Return the virtual packages for the target's driver, GPUs, glibc, kernel and CPU."""
    return question(context)[0].virtual


def check(lock: Lock, context: RequestContext) -> None:
    """Raise LockError for a lock that needs a missing virtual package, or a CUDA that the target does not support."""
    context = dataclasses.replace(context, request=foreign_locks.request_of(lock))
    built, _ = question(context)
    foreign_locks.check_target(lock, built.virtual, built.bounds)
