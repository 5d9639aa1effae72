"""Find indirect packages of a lock that conflict with its builds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..model import Build, LockedPackage, PlannedBuild, RequestContext
from ..resolve.locked_cuda_conflicts import LockedSet, OtherCuda
from ..resolve.question import ask_on_all
from ..resolve.satellite_fit import SatelliteRows
from ..wheels.cache_and_disk import own_cache
from ..wheels.measured_rows_cache import MeasuredRows
from .packages_named_beside_frameworks import read_named_packages


def find_transitive_packages(
    context: RequestContext,
    planned: Sequence[PlannedBuild],
    packages: Sequence[LockedPackage],
    required_by: Mapping[str, Sequence[str]],
) -> tuple[OtherCuda, ...]:
    """Return the indirect packages that conflict with the planned builds. `required_by` is that of the lock."""
    named = frozenset(n.name for n in read_named_packages(context))
    builds = _find_rows(context, planned) if named else ()
    if not builds:
        return ()
    platform = context.target.platform
    rows = SatelliteRows(context.profiles, platform)
    kept = MeasuredRows(own_cache(context.sources))
    locked = LockedSet(
        ask_on_all(context), rows, builds, packages, required_by, named, lambda sha: kept.of([sha], platform)
    )
    return tuple(locked.strangers())


def _find_rows(context: RequestContext, planned: Sequence[PlannedBuild]) -> tuple[Build, ...]:
    """Return the profile rows of planned builds."""
    keys = {(b.framework, b.version, b.cuda, b.index) for b in planned}
    return tuple(
        b for b in context.profiles.builds
        if b.platform == context.target.platform and (b.framework, b.version, b.cuda, b.index) in keys
    )  # fmt: skip
