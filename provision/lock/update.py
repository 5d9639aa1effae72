"""Solves a lock near to the one that exists."""

from __future__ import annotations

import dataclasses

from ..config.options import Choices, get_cache_dir
from ..config.sources import apply_limit, limit_sources
from ..errors import UsageError
from ..model import Emit, Lock, Plan, RequestContext
from ..model.values import dataclass


@dataclass(frozen=True)
class Upgrade:
    """The packages of an existing lock that may change: all, or those named."""

    all: bool = False
    names: tuple[str, ...] = ()


def solve_near(
    context: RequestContext,
    choices: Choices,
    emit: Emit,
    lock: Lock | None = None,
    upgrade: Upgrade = Upgrade(),  # noqa: B008  # frozen
) -> tuple[Plan, Lock | None]:
    """Return the plan of a request and its lock, or no lock if no build fits.

    Versions of an existing lock stay where possible. The limit on uploads applies. Raises LockError, ResolveError, and
    UsageError for a named package that the lock does not have.
    """
    limit = apply_limit(choices, lock, renewed=upgrade.all)
    sources = limit_sources(context.sources, limit, choices.exclude_newer_except)
    context = dataclasses.replace(context, sources=sources)
    near = lock if lock and not upgrade.all and lock.plan.platform == context.target.platform else None
    if near and (unknown := [n for n in upgrade.names if n not in {p.name for p in near.packages}]):
        raise UsageError(f"--upgrade {unknown[0]}: the lock does not contain it")
    moving = frozenset(upgrade.names)
    if context.request.manager == "conda":
        from . import channels  # starts the import of the conda engine

        plan, new_lock = channels.search(context, emit, near, moving)
    else:
        from .search import search  # most runs of `create` have a lock already

        plan, new_lock = search(context, emit, cache=get_cache_dir(choices), near=near, moving=moving)
    return plan, dataclasses.replace(new_lock, exclude_newer=limit) if new_lock else None
