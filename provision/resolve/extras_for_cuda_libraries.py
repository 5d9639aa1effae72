"""Find the extras (`jax[cuda12]`) that a release needs for its CUDA libraries."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from ..model import Satellite
from .versions import is_exact, major, meets, specifiers, version


@dataclass(frozen=True, kw_only=True, slots=True)
class NamedExtras:
    """A requested package: all requirements and constraints on it, merged."""

    name: str
    extras: frozenset[str]
    bounds: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ExtraRows:
    """The rows that apply to a plan: those of its platform, and its CUDA major."""

    satellites: Sequence[Satellite]
    platform: str
    cuda_major: str | None

    def of(self, package: str) -> list[Satellite]:
        """Return the package's rows on the platform, newest first."""
        rows = [r for r in self.satellites if r.package == package and r.platform == self.platform]
        return sorted(rows, key=lambda r: version(r.version), reverse=True)


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


def missing_extras(named: NamedExtras, rows: ExtraRows) -> tuple[str, ...]:
    """Return the extras that the newest release within the bounds needs and nothing requests.

    Return none if that release is for another CUDA than the plan's, because its libraries would be too.
    """
    newest = next((row for row in rows.of(named.name) if _admits(named.bounds, row)), None)
    if newest is None or rows.cuda_major is None or major(newest.cuda or "") != rows.cuda_major:
        return ()
    return tuple(e for e in newest.extras if e not in named.extras)


def _admits(bounds: str, row: Satellite) -> bool:
    """Return whether bounds allow a release of a row's series. A row is the newest release of its series."""
    if meets(row.version, bounds):
        return True
    exact = [s.version for s in specifiers(bounds) if s.operator in ("==", "===")] if bounds else []
    return is_exact(bounds) and any(_series(v, row) for v in exact if "*" not in v)


def _series(release: str, row: Satellite) -> bool:
    """Return whether a release is of a row's series: its first two numbers are the same."""
    return version(release).release[:2] == version(row.version).release[:2]


def disagreements(
    packages: Iterable[NamedExtras], locked: Mapping[str, str], rows: ExtraRows
) -> Iterator[str]:
    """Yield sentences on extras of a lock that differ from those the locked release needs."""
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
