"""The newest set of framework builds and named packages that go together. Pure: no I/O.

The objective (docs/choice.md), each point only among sets that are equal in those before it:
1. every requirement, measured need and bound holds;
2. no package is built from source with a compiler where a set of wheels exists;
3. the package that is furthest behind its newest release is as little behind as possible, in days;
4. the newest framework, the first named first;
5. the other packages as new as possible, then the order of builds of `resolve`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from ..index.platforms import CPYTHON, markers_of
from ..model import Build, NamedPackage, Release
from .choice import against, candidates
from .objections import fits, unbounded_versions
from .question import Question
from .satellite_fit import SatelliteRows, objection, serves_gpus
from .versions import allows, major, meets, version

OLD = 2 * 365
"""Days behind its newest release from which a release is not taken without being asked for."""
_MOST_COMBINATIONS = 500
_MOST_STEPS = 20_000


@dataclass(frozen=True, eq=False)
class Candidate:
    """Builds that fit the target and each other, one per framework, and a Python that all of them have. `place` is
    its place in the order of `resolve`."""

    builds: tuple[Build, ...]
    python: str
    place: int

    @cached_property
    def versions(self) -> Mapping[str, str]:
        return {b.framework: b.version for b in self.builds}

    @cached_property
    def cudas(self) -> frozenset[str]:
        """The CUDA majors of the builds."""
        return frozenset(major(b.cuda) for b in self.builds if b.cuda)


@dataclass(frozen=True)
class Chosen:
    """A set: builds, a Python, and a release of each named package. `behind` are days behind the newest release."""

    candidate: Candidate
    releases: Mapping[str, Release]
    behind: Mapping[str, int]
    key: tuple[object, ...]

    @property
    def most_behind(self) -> int:
        return max(self.behind.values(), default=0)


@dataclass(frozen=True)
class Refused:
    """Versions of named packages and of frameworks that do not go together, by what a solver said; with `cuda` only
    where no build has that CUDA major."""

    versions: Mapping[str, str]
    because: str
    cuda: str | None = None


@dataclass
class JointSearch:
    """A question with the packages that are named beside the frameworks. `refused` are sets that a solver could not
    complete."""

    asked: Question
    packages: Sequence[NamedPackage]
    refused: Sequence[Refused] = ()
    _fitting: dict[tuple[object, ...], str | None] = field(default_factory=dict, repr=False)
    _newest: dict[tuple[str, str], Release | None] = field(default_factory=dict, repr=False)
    _newest_days: dict[str, int] = field(default_factory=dict, repr=False)
    _references: dict[str, Release | None] = field(default_factory=dict, repr=False)

    @cached_property
    def rows(self) -> SatelliteRows:
        return SatelliteRows(self.asked.profiles, self.asked.target.platform)

    @cached_property
    def candidates(self) -> tuple[Candidate, ...]:
        """All that fit the target, in the order of `resolve`."""
        chains = [
            [b for b in candidates(self.asked, w) if fits(self.asked, w, b)]
            for w in self.asked.request.frameworks
        ]
        found: list[Candidate] = []
        for builds in _combinations(self.asked, (), chains):
            shared = [
                p for p in self.asked.pythons(builds[0]) if all(p in self.asked.pythons(b) for b in builds)
            ]
            found += [Candidate(builds, python, len(found) + i) for i, python in enumerate(shared)]
            if len(found) >= _MOST_COMBINATIONS:
                break
        return tuple(found)

    @cached_property
    def pythons(self) -> frozenset[str]:
        """The Pythons that may be chosen."""
        return frozenset(c.python for c in self.candidates)

    def best(self, allowed: Mapping[str, Sequence[Release]] | None = None) -> Chosen | None:
        """The best set, None where there is none. `allowed` are the releases of some packages that may be taken."""
        found = (self.best_with(c, allowed) for c in self.candidates)
        return min((c for c in found if c), key=lambda c: c.key, default=None)

    def best_with(
        self, candidate: Candidate, allowed: Mapping[str, Sequence[Release]] | None = None
    ) -> Chosen | None:
        """The best set with these builds and this Python."""
        options = {}
        for package in self.packages:
            mine = (allowed or {}).get(package.name, package.releases)
            options[package.name] = [r for r in mine if self.objection(package, r, candidate) is None]
            if not options[package.name]:
                return None
        wheels = {n: [r for r in rs if not self._compiles(n, r, candidate)] for n, rs in options.items()}
        for built, given in ((False, wheels), (True, options)):
            if all(given.values()) and (releases := self._assigned(candidate, given)):
                return self._chosen(candidate, releases, built=built and wheels != options)
        return None

    def objection(self, package: NamedPackage, release: Release, candidate: Candidate) -> str | None:
        """Why a release cannot join builds and a Python, None where it can."""
        if candidate.python not in release.pythons:
            return f"{package.name} {release.version} has no wheel for Python {candidate.python}"
        key = (package.name, release.version, candidate.place)
        if key not in self._fitting:
            self._fitting[key] = self._objection(package, release, candidate)
        return self._fitting[key]

    def _objection(self, package: NamedPackage, release: Release, candidate: Candidate) -> str | None:
        for refused in self.refused:
            if refused.cuda in candidate.cudas:
                continue
            rest = dict(refused.versions)
            if rest.pop(package.name, None) == release.version and rest.items() <= candidate.versions.items():
                return refused.because
        for need in self.requirements(package, release, candidate.python):
            build = next((b for b in candidate.builds if b.framework == canonicalize_name(need.name)), None)
            if build and not meets(build.version, str(need.specifier)):
                return f"{package.name} {release.version} requires {need.name}{need.specifier}"
        if self._comes_along(package.name, release, candidate):
            return None
        if why := self._other_companion(package.name, release, candidate):
            return why
        rows = self.rows.rows(package.name, release.version)
        return objection(self.asked, rows, candidate.builds, serve_gpus=self._some_serve_gpus(package.name))

    def _comes_along(self, name: str, release: Release, candidate: Candidate) -> bool:
        """Whether a build names this very release as its companion: it comes from the same index."""
        texts = [c for b in candidate.builds for c in b.companions]
        mine = [n for n in map(_requirement, texts) if canonicalize_name(n.name) == name]
        return any(meets(release.version, str(n.specifier)) for n in mine)

    def _other_companion(self, name: str, release: Release, candidate: Candidate) -> str | None:
        for build in candidate.builds:
            for text in build.companions:
                if canonicalize_name(_requirement(text).name) == name:
                    return f"{build.framework} {build.version} goes with {text}, not with {release.version}"
            if build.local and name in self._companion_names:
                return f"{build.framework} {build.version}+{build.local} has no {name} of its kind"
        return None

    @cached_property
    def _companion_names(self) -> frozenset[str]:
        texts = {c for b in self.asked.profiles.builds for c in b.companions}
        return frozenset(canonicalize_name(_requirement(t).name) for t in texts)

    def _some_serve_gpus(self, name: str) -> bool:
        versions = self.rows.packages.get(name, {})
        return any(serves_gpus(self.asked, row) for rows in versions.values() for row in rows)

    def requirements(self, package: NamedPackage, release: Release, python: str) -> tuple[Requirement, ...]:
        """What a release requires of frameworks and of other named packages, with a Python."""
        return _requirements(release.requires, package.extras, python, self.asked.target.platform)

    def _compiles(self, name: str, release: Release, candidate: Candidate) -> bool:
        """Whether a release must be compiled, although other releases of the package have wheels."""
        return release.compiles and candidate.python not in release.wheels and name in self._with_wheels

    @cached_property
    def _with_wheels(self) -> frozenset[str]:
        return frozenset(p.name for p in self.packages if any(r.wheels for r in p.releases))

    @cached_property
    def binding(self) -> frozenset[str]:
        """The packages that bind a framework or another package, or are bound by one, as far as is known."""
        frameworks = {w.name for w in self.asked.request.frameworks}
        found: set[str] = set()
        for package in self.packages:
            if package.name in self.rows.packages or package.name in self._companion_names:
                found.add(package.name)
            texts = {t for r in package.releases for t in r.requires}
            for name in {str(canonicalize_name(_requirement(t).name)) for t in texts}:
                if name in frameworks or name in self.by_name:
                    found |= {package.name, name} & set(self.by_name)
        return frozenset(found)

    # --- a release of each package, with given builds --------------------------------------------

    def _assigned(
        self, candidate: Candidate, options: Mapping[str, Sequence[Release]]
    ) -> dict[str, Release] | None:
        """A release of each package so that all go with each other and the one furthest behind is as little behind as
        possible."""
        newest = {name: releases[0] for name, releases in options.items()}
        if not self._clashes(newest, candidate):
            return newest
        ages = sorted({self.age(n, r) for n, rs in options.items() for r in rs})
        low, high, best = 0, len(ages) - 1, None
        while low <= high:  # the fewest days with which some assignment holds
            middle = (low + high) // 2
            within = {n: [r for r in rs if self.age(n, r) <= ages[middle]]
                      for n, rs in options.items()}  # fmt: skip
            found = self._searched(within, candidate) if all(within.values()) else None
            best, low, high = (found, low, middle - 1) if found else (best, middle + 1, high)
        return best

    def _searched(
        self, options: Mapping[str, Sequence[Release]], candidate: Candidate
    ) -> dict[str, Release] | None:
        """The first assignment that holds, the newest release of each package first, in the order in which they are
        named; None where there is none, or where finding it takes too many steps."""
        names, steps = list(options), 0
        taken: dict[str, Release] = {}
        tried = {name: iter(options[name]) for name in names}
        while len(taken) < len(names):
            name = names[len(taken)]
            steps += 1
            if steps > _MOST_STEPS:
                return None
            for release in tried[name]:
                if not self._clashes({**taken, name: release}, candidate, only=name):
                    taken[name] = release
                    break
            else:
                tried[name] = iter(options[name])
                if not taken:
                    return None
                del taken[names[len(taken) - 1]]
        return taken

    def _clashes(
        self, releases: Mapping[str, Release], candidate: Candidate, only: str | None = None
    ) -> bool:
        return any(self.clash(releases, candidate, only))

    def clash(
        self, releases: Mapping[str, Release], candidate: Candidate, only: str | None = None
    ) -> Iterator[str]:
        """What releases require of each other and do not get, and what a solver refused of them; with `only`, as far
        as that package is part of it."""
        for name, release in releases.items():
            for need in self.requirements(self.by_name[name], release, candidate.python):
                other = str(canonicalize_name(need.name))
                if other not in releases or (only is not None and only not in (name, other)):
                    continue
                if not meets(releases[other].version, str(need.specifier)):
                    yield f"{name} {release.version} requires {need.name}{need.specifier}"
        taken = {n: r.version for n, r in releases.items()} | dict(candidate.versions)
        for refused in self.refused:
            if refused.versions.items() <= taken.items() and (only is None or only in refused.versions):
                yield refused.because

    @cached_property
    def by_name(self) -> Mapping[str, NamedPackage]:
        return {p.name: p for p in self.packages}

    # --- how new a set is ------------------------------------------------------------------------

    def _chosen(self, candidate: Candidate, releases: Mapping[str, Release], *, built: bool) -> Chosen:
        behind = {n: self.age(n, r) for n, r in releases.items()}
        ranks = tuple(self._version_ranks[b.framework][b.version] for b in candidate.builds)
        ages = tuple(sorted(behind.values(), reverse=True))
        key = (built, ages[:1], ranks, ages, candidate.place)
        return Chosen(candidate, releases, behind, key)

    @cached_property
    def _version_ranks(self) -> Mapping[str, Mapping[str, int]]:
        versions: dict[str, set[str]] = {}
        for c in self.candidates:
            for build in c.builds:
                versions.setdefault(build.framework, set()).add(build.version)
        return {
            f: {v: i for i, v in enumerate(sorted(vs, key=version, reverse=True))}
            for f, vs in versions.items()
        }

    def age(self, name: str, release: Release) -> int:
        """Days by which a release is behind the newest one that has files for a Python that may be chosen."""
        if name not in self._newest_days:
            releases = self.by_name[name].releases
            self._newest_days[name] = next(
                (r.day for r in releases if self.pythons.intersection(r.pythons)), 0
            )
        return self._newest_days[name] - release.day

    def newest(self, name: str, python: str) -> Release | None:
        """The newest release with files for a Python."""
        key = (name, python)
        if key not in self._newest:
            self._newest[key] = next((r for r in self.by_name[name].releases if python in r.pythons), None)
        return self._newest[key]

    def reference(self, name: str) -> Release | None:
        """The newest release that goes with some version of the frameworks within the bounds of the user and the
        project, whatever the driver and the GPUs are."""
        if name not in self._references:
            self._references[name] = self._reference(self.by_name[name])
        return self._references[name]

    def _reference(self, package: NamedPackage) -> Release | None:
        request = self.asked.request
        pythons = {request.python} if request.python else None
        for release in package.releases:
            served = [
                p for p in release.pythons
                if (pythons is None or p in pythons)
                and (not request.requires_python or allows(request.requires_python, p))
            ]  # fmt: skip
            if any(self._goes_with_some(package, release, p) for p in served):
                return release
        return None

    def _goes_with_some(self, package: NamedPackage, release: Release, python: str) -> bool:
        for need in self.requirements(package, release, python):
            versions = self._within_bounds.get(str(canonicalize_name(need.name)))
            if versions is not None and not any(meets(v, str(need.specifier)) for v in versions):
                return False
        return True

    @cached_property
    def _within_bounds(self) -> Mapping[str, frozenset[str]]:
        return {w.name: unbounded_versions(self.asked, w) for w in self.asked.request.frameworks}

    def too_old(self, chosen: Chosen) -> Iterator[tuple[Release, Release]]:
        """The releases of a set that are more than two years behind, each with the newest one that the bounds allow."""
        for name, release in chosen.releases.items():
            reference = self.reference(name)
            if reference and self.by_name[name].dated and reference.day - release.day > OLD:
                yield release, reference


def _combinations(
    asked: Question, taken: tuple[Build, ...], chains: Sequence[Sequence[Build]]
) -> Iterator[tuple[Build, ...]]:
    """One build of each chain, those that go together, in the order of the chains."""
    if not chains:
        if taken:
            yield taken
        return
    for build in chains[0]:
        if not against(asked, list(taken), build):
            yield from _combinations(asked, (*taken, build), chains[1:])


@cache
def _requirement(text: str) -> Requirement:
    return Requirement(text)


@cache
def _requirements(
    texts: tuple[str, ...], extras: tuple[str, ...], python: str, platform: str
) -> tuple[Requirement, ...]:
    values = {"python_version": python, "python_full_version": f"{python}.0"}
    environment = markers_of(platform) | CPYTHON | values
    return tuple(
        need for need in map(_requirement, texts)
        if need.marker is None or any(need.marker.evaluate(environment | {"extra": e}) for e in ("", *extras))
    )  # fmt: skip
