"""Insert the extras (`name[cuda12]`) that packages need for their CUDA libraries, and compare them with the lock."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from ..model import Lock, Plan, Profiles, RequestContext, Satellite, requirement_name
from ..model.values import Value
from ..system.versions import exact, major, meets
from .satellites import SatelliteRows, series


class NamedExtras(Value):
    """A requested package: all requirements and constraints on it, merged."""

    name: str
    extras: frozenset[str]
    bounds: str


def named_in(requirements: Iterable[str], constraints: Iterable[str] = ()) -> tuple[NamedExtras, ...]:
    """Merge the requirements on each package. Those with a URL are left out, because their release is
    unknown."""
    needs = [need for need in map(Requirement, requirements) if not need.url]
    names = dict.fromkeys(canonicalize_name(need.name) for need in needs)
    everything = [*needs, *(need for need in map(Requirement, constraints) if not need.url)]
    return tuple(_named(name, everything) for name in names)


def _named(name: str, needs: Iterable[Requirement]) -> NamedExtras:
    of_package = [need for need in needs if canonicalize_name(need.name) == name]
    bounds = ",".join(sorted({str(s) for need in of_package for s in need.specifier}))
    return NamedExtras(
        name=name, extras=frozenset(e for need in of_package for e in need.extras), bounds=bounds
    )


def missing_extras(named: NamedExtras, rows: SatelliteRows, cuda_major: str | None) -> tuple[str, ...]:
    """Return the extras that the newest release within the bounds needs and nothing requests.

    Return none if that release is for another CUDA than the plan's, because its libraries would be too.
    """
    newest = next((row for row in rows.newest_first(named.name) if _admits(named.bounds, row)), None)
    if newest is None or cuda_major is None or major(newest.cuda or "") != cuda_major:
        return ()
    return tuple(e for e in newest.extras if e not in named.extras)


def _admits(bounds: str, row: Satellite) -> bool:
    """Return whether bounds allow a release of a row's series. A row is the newest release of its series."""
    if meets(row.version, bounds):
        return True
    pinned = exact(bounds)
    return pinned is not None and series(pinned) == series(row.version)


def disagreements(
    packages: Iterable[NamedExtras], locked: Mapping[str, str], rows: SatelliteRows, cuda_major: str | None
) -> Iterator[str]:
    """Yield sentences on extras of a lock that differ from those the locked release needs."""
    for named in packages:
        release = locked.get(named.name)
        row = next(
            (r for r in rows.newest_first(named.name) if release and series(release) == series(r.version)),
            None,
        )
        if release is None or row is None or major(row.cuda or "") != cuda_major:
            continue
        known = {extra for other in rows.newest_first(named.name) for extra in other.extras}
        if lacking := [e for e in row.extras if e not in named.extras]:
            yield (
                f"{named.name} {release} needs CUDA libraries of its extras: "
                f"{named.name}[{','.join(lacking)}]"
            )
        elif absent := sorted((named.extras & known) - set(row.extras)):
            yield (
                f"{named.name} {release} has no extras {','.join(absent)} for its CUDA libraries; a later release has them"
            )


def add_extras(plan: Plan, context: RequestContext) -> Plan:
    """Return the plan with the missing extras of its packages and of the project's packages, and one note on
    them."""
    if not plan.builds or not _installs_wheels(plan):
        return plan
    rows = SatelliteRows(context.profiles, plan.platform)
    needs = [n for n in context.demands.needs if n.name and not (n.local or n.vcs or n.editable)]
    overridden = {n.package for n in needs if n.override}
    constraints = [*(n.text for n in needs if n.constraint), *context.request.pins]
    wanted = [n.text for n in needs if not n.constraint]
    named = named_in((*plan.packages, *wanted), constraints)
    missing = {n.name: missing_extras(n, rows, plan.cuda_major) for n in named if n.name not in overridden}
    missing = {name: extras for name, extras in missing.items() if extras}
    if not missing:
        return plan
    packages = [_with(text, missing) for text in plan.packages]
    have = {requirement_name(text) for text in packages}
    packages += [
        _bare(text, missing)
        for text in wanted
        if (name := requirement_name(text)) in missing and name not in have
    ]
    added = ", ".join(f"{name}[{','.join(extras)}]" for name, extras in missing.items())
    note = f"{added}: adding these extras, because they install required CUDA libraries"
    return dataclasses.replace(plan, packages=tuple(dict.fromkeys(packages)), notes=(*plan.notes, note))


def disagreements_of(lock: Lock, known: Profiles) -> list[str]:
    """Return sentences on the extras of a lock's plan that are not those that its releases need."""
    if not _installs_wheels(lock.plan):
        return []
    locked = {p.name: p.version for p in lock.packages}
    rows = SatelliteRows(known, lock.plan.platform)
    return list(disagreements(named_in(lock.plan.packages), locked, rows, lock.plan.cuda_major))


def _installs_wheels(plan: Plan) -> bool:
    """Return whether CUDA libraries are installed as wheels. CPU builds have none, and conda packages require
    their own."""
    return plan.device == "cuda" and plan.manager == "venv"


def _with(text: str, missing: dict[str, tuple[str, ...]]) -> str:
    need = Requirement(text)
    extras = missing.get(canonicalize_name(need.name), ())
    if need.url or not extras:
        return text
    need.extras |= set(extras)
    return str(need)


def _bare(text: str, missing: dict[str, tuple[str, ...]]) -> str:
    """Return the extras of a requirement as a line without bounds and hashes. Those stay in their own line."""
    need = Requirement(text)
    marker = f"; {need.marker}" if need.marker else ""
    return f"{need.name}[{','.join(missing[canonicalize_name(need.name)])}]{marker}"
