"""Solve a lock that is as similar to the existing one as possible."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from ..errors import LockError, UsageError
from ..managers.protocol import Near, locking
from ..model import Emit, Event, Lock, Plan, RequestContext, VersionBound
from ..request import upload_limits
from ..request.shared_options import Choices
from ..system.output_file import is_stream
from ..wheels.pylock import is_source
from .lock_acceptance import read_lock
from .search_for_lock import solve_packages


@dataclasses.dataclass(frozen=True)
class Upgrade:
    """The packages of an existing lock that may change: all, or those named."""

    all: bool = False
    names: tuple[str, ...] = ()


def read_old_lock(path: Path, choices: Choices, platform: str, *, strict: bool) -> Lock | None:
    """Return the existing lock. With `strict` raise LockError if it cannot be read, otherwise return None."""
    if not strict and (not path.exists() or is_stream(path)):
        return None
    try:
        return read_lock(path, choices, platform)
    except LockError:
        if strict:
            raise
        return None


def solve_like(
    context: RequestContext, choices: Choices, emit: Emit, lock: Lock | None, upgrade: Upgrade
) -> tuple[Plan, Lock | None]:
    """Solve the request, and keep versions of the existing lock where possible. The limit on uploads applies."""
    limit = upload_limits.apply_limit(choices, lock, renewed=upgrade.all)
    context = dataclasses.replace(context, sources=upload_limits.limit_sources(context.sources, limit))
    plan, new_lock = _locked_near(context, choices, emit, lock, upgrade)
    return plan, dataclasses.replace(new_lock, exclude_newer=limit) if new_lock else None


def explain_kept(
    context: RequestContext, choices: Choices, new_lock: Lock, old_lock: Lock | None, upgrade: Upgrade
) -> Lock:
    """Return a lock with what holds back the named packages whose releases it kept."""
    from .held_back_releases import explain_kept_releases

    if old_lock is None or not _is_near(old_lock, context, upgrade):
        return new_lock
    sources = upload_limits.limit_sources(context.sources, new_lock.exclude_newer)
    return explain_kept_releases(dataclasses.replace(context, sources=sources), choices, new_lock)


def _is_near(lock: Lock, context: RequestContext, upgrade: Upgrade) -> bool:
    """Return whether a new lock keeps the versions of an existing one where possible."""
    return not upgrade.all and lock.plan.platform == context.target.platform


def _locked_near(
    context: RequestContext, choices: Choices, emit: Emit, lock: Lock | None, upgrade: Upgrade
) -> tuple[Plan, Lock | None]:
    if lock is None or not _is_near(lock, context, upgrade):
        return solve_packages(context, choices, emit)
    unknown = [n for n in upgrade.names if n not in {p.name for p in lock.packages}]
    if unknown:
        raise UsageError(f"--upgrade {unknown[0]}: the lock does not contain it")
    near = Near(lock=lock, moving=frozenset(upgrade.names))
    if locking(context.request.manager).PLANS_FIRST:
        built = [p.name for p in lock.packages if is_source(p)]
        try:
            plan, new_lock = solve_packages(_with_builds_of(near, context), choices, emit, near, built)
            if new_lock:
                return plan, new_lock
        except LockError as error:
            if error.unreachable or error.absent:
                raise
            emit(
                Event(
                    kind="note",
                    stage="lock",
                    text=f"solving without the locked versions of the frameworks: {error.message}",
                )
            )
    return solve_packages(context, choices, emit, near)


def _with_builds_of(near: Near, context: RequestContext) -> RequestContext:
    """Return the request with the frameworks and the Python of a lock, so that the same builds are planned."""
    assert near.lock
    plan, request = near.lock.plan, context.request
    same = tuple(
        VersionBound(name=b.framework, specifier=f"=={b.version}", origin="the existing lock")
        for b in plan.builds if b.framework not in near.moving
    )  # fmt: skip
    bounds, python = (*request.bounds, *same), request.python or plan.python
    return dataclasses.replace(context, request=dataclasses.replace(request, bounds=bounds, python=python))
