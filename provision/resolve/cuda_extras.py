"""Extras without which a release lacks CUDA libraries: added to what is asked for, and compared with what was locked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from ..model import Satellite
from .versions import is_exact, major, meets, specifiers, version


@dataclass(frozen=True, kw_only=True, slots=True)
class Named:
    """A package that is asked for by name: every requirement on it, constraints too, as one."""

    name: str
    extras: frozenset[str]
    bounds: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Rows:
    """The rows that count for a plan: those of its platform, and the CUDA major that it brings."""

    satellites: Sequence[Satellite]
    platform: str
    cuda_major: str | None

    def of(self, package: str) -> list[Satellite]:
        """The package's rows on the platform, newest first."""
        own = [r for r in self.satellites if r.package == package and r.platform == self.platform]
        return sorted(own, key=lambda r: version(r.version), reverse=True)


def named_in(requirements: Iterable[str], constraints: Iterable[str] = ()) -> tuple[Named, ...]:
    """Put the requirements on each package together. Those with an address are left out: their release is unknown."""
    asked = [need for need in map(Requirement, requirements) if not need.url]
    names = dict.fromkeys(canonicalize_name(need.name) for need in asked)
    everything = [*asked, *(need for need in map(Requirement, constraints) if not need.url)]
    return tuple(_named(name, everything) for name in names)


def _named(name: str, needs: Iterable[Requirement]) -> Named:
    own = [need for need in needs if canonicalize_name(need.name) == name]
    bounds = ",".join(sorted({str(s) for need in own for s in need.specifier}))
    return Named(name=name, extras=frozenset(e for need in own for e in need.extras), bounds=bounds)


def missing_extras(named: Named, rows: Rows) -> tuple[str, ...]:
    """Return the extras that the newest release within the bounds needs and nobody named.

    None where that release is for another CUDA than the plan's: its libraries would be, too.
    """
    newest = next((row for row in rows.of(named.name) if _admits(named.bounds, row)), None)
    if newest is None or rows.cuda_major is None or major(newest.cuda or "") != rows.cuda_major:
        return ()
    return tuple(e for e in newest.extras if e not in named.extras)


def _admits(bounds: str, row: Satellite) -> bool:
    """Whether bounds allow a release of a row's series; a row is the newest one of its series."""
    if meets(row.version, bounds):
        return True
    exact = [s.version for s in specifiers(bounds) if s.operator in ("==", "===")] if bounds else []
    return is_exact(bounds) and any(_series(v, row) for v in exact if "*" not in v)


def _series(release: str, row: Satellite) -> bool:
    """Whether a release is of the series that a row stands for: its first two numbers are the same."""
    return version(release).release[:2] == version(row.version).release[:2]


def disagreements(packages: Iterable[Named], locked: Mapping[str, str], rows: Rows) -> Iterator[str]:
    """Say where the extras of a lock are not those that the locked release needs."""
    for named in packages:
        release = locked.get(named.name)
        row = next((r for r in rows.of(named.name) if release and _series(release, r)), None)
        if release is None or row is None or major(row.cuda or "") != rows.cuda_major:
            continue
        known = {extra for other in rows.of(named.name) for extra in other.extras}
        if lacking := [e for e in row.extras if e not in named.extras]:
            yield (
                f"{named.name} {release} needs CUDA libraries of its extras: "
                f"{named.name}[{','.join(lacking)}]"
            )
        elif absent := sorted((named.extras & known) - set(row.extras)):
            yield (
                f"{named.name} {release} has no extras {','.join(absent)} for its CUDA libraries; a later release has them"
            )
