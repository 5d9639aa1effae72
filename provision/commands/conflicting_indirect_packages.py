"""Find indirect packages of a lock that conflict with the plan's builds."""

from __future__ import annotations

from collections.abc import Iterator

from ..model import Build, Lock, Plan, RequestContext
from ..resolve.locked_cuda_conflicts import LockedSet, OtherCuda
from ..resolve.question import ask_on_all
from ..resolve.satellite_fit import SatelliteRows
from ..wheels.cache_and_disk import own_cache
from ..wheels.measured_rows_cache import MeasuredRows
from .packages_named_beside_frameworks import read_named_packages


def find_transitive_packages(context: RequestContext, plan: Plan, lock: Lock) -> Iterator[OtherCuda]:
    """Yield the indirect packages that conflict with the plan's builds."""
    named = frozenset(n.name for n in read_named_packages(context))
    builds = _builds(context, plan) if named else ()
    if builds:
        rows = SatelliteRows(context.profiles, context.target.platform)
        kept = MeasuredRows(own_cache(context.sources))
        locked = LockedSet(
            ask_on_all(context), rows, builds, lock, named, lambda sha: kept.of([sha], plan.platform)
        )
        yield from locked.strangers()


def _builds(context: RequestContext, plan: Plan) -> tuple[Build, ...]:
    """Return the profile rows of the plan's builds."""
    planned = {(b.framework, b.version, b.cuda, b.index) for b in plan.builds}
    return tuple(
        b for b in context.profiles.builds
        if b.platform == plan.platform and (b.framework, b.version, b.cuda, b.index) in planned
    )  # fmt: skip
