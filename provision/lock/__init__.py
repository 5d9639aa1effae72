"""From a request to a lock, near to the one that exists: uv answers, and the measured rows judge its answer."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection

from ..config.options import Choices
from ..config.sources import apply_limit, limit_sources
from ..errors import UsageError
from ..model import Emit, Lock, Plan, RequestContext, normalize_name


def solve_near(
    context: RequestContext,
    choices: Choices,
    emit: Emit,
    lock: Lock | None = None,
    *,
    upgrade: bool = False,
    names: Collection[str] = (),
) -> tuple[Plan, Lock | None]:
    """Return the plan of a request and its lock, or no lock if no build fits.

    Versions of an existing lock stay where possible. `upgrade` moves those of `names`, or all without names. The limit on
    uploads applies. Raises LockError, ResolveError, and UsageError for a named package that the lock does not have.
    """
    moving = frozenset(map(normalize_name, names))
    move_all = upgrade and not names
    limit = apply_limit(choices, lock, renewed=move_all)
    sources = limit_sources(context.sources, limit, choices.exclude_newer_except)
    context = dataclasses.replace(context, sources=sources)
    near = lock if lock and not move_all and lock.plan.platform == context.target.platform else None
    if near and (unknown := [n for n in moving if n not in {p.name for p in near.packages}]):
        raise UsageError(f"--upgrade {unknown[0]}: the lock does not contain it")
    if context.request.manager == "conda":
        from . import channels  # starts the import of the conda engine

        plan, new_lock = channels.search(context, emit, near, moving)
    else:
        from .search import search  # most runs of `create` have a lock already

        plan, new_lock = search(context, emit, near, moving)
    return plan, dataclasses.replace(new_lock, exclude_newer=limit) if new_lock else None
