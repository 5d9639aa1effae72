"""Search the newest compatible set of framework builds and named packages. Pure: no I/O.

The objective is docs/explanation/choice.md. Each point decides only among sets that are equal in those before
it:

    1. every requirement, measured need and bound is met;
    2. no package is built from source with a compiler if a set of wheels exists;
    3. the package furthest behind its newest release is as little behind as possible, in days;
    4. the newest framework, the first named one first;
    5. the other packages as new as possible, then the order of builds of `resolve`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set as AbstractSet
from dataclasses import dataclass, field
from functools import cached_property

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from ..model import NamedPackage, PackageRelease, PrebuiltWheel
from .assign_releases import Assignments, Options
from .candidate_builds import CandidateBuilds, candidates_of
from .chosen_and_refused_sets import Chosen, Refused
from .companions import (
    comes_along,
    companion_names,
    companion_objection,
    companions_of_builds,
    required_names,
    requirement_of_builds,
)
from .prebuilt_fit import find_prebuilt, lacks_prebuilt
from .question import Question
from .release_requirements import select_requirements
from .satellite_fit import SatelliteRows, objection, without_kernels
from .shared_search_results import SearchMemory, SharedLists
from .versions import meets, version


# The module is longer than 300 lines: all methods share the caches of one search.
@dataclass
class JointSearch:
    """A question with the packages that are named beside the frameworks.

    `refused` are sets that a solver could not complete.
    """

    question: Question
    packages: Sequence[NamedPackage]
    refused: Sequence[Refused] = ()
    memory: SearchMemory = field(default_factory=SearchMemory, repr=False)
    _objections: dict[tuple[str, str, int], str | None] = field(default_factory=dict, repr=False)
    _newest: dict[tuple[str, str], PackageRelease | None] = field(default_factory=dict, repr=False)
    _newest_days: dict[str, int] = field(default_factory=dict, repr=False)
    _joining: dict[str, Options] = field(default_factory=dict, repr=False)
    _shared: SharedLists = field(default_factory=SharedLists, repr=False)
    _known_assignments: dict[tuple[object, ...], Assignments] = field(default_factory=dict, repr=False)

    @cached_property
    def rows(self) -> SatelliteRows:
        return SatelliteRows(self.question.profiles, self.question.target.platform)

    @cached_property
    def candidates(self) -> tuple[CandidateBuilds, ...]:
        """All sets of builds that fit the target, in the order of `resolve`."""
        if self.memory.candidates is None:
            self.memory.candidates = candidates_of(self.question)
        return self.memory.candidates

    @cached_property
    def pythons(self) -> frozenset[str]:
        """The Pythons that can be chosen."""
        return frozenset(c.python for c in self.candidates)

    def best(self, allowed: Mapping[str, Sequence[PackageRelease]] | None = None) -> Chosen | None:
        """Return the best set, or None. `allowed` limits the releases of some packages."""
        return self._best if allowed is None else self._best_within(allowed)

    @cached_property
    def _best(self) -> Chosen | None:
        return self._best_within(None)

    def _best_within(self, allowed: Mapping[str, Sequence[PackageRelease]] | None) -> Chosen | None:
        tries = [(self._least_key(c, options), c, options) for c, options in self._different(allowed)]
        best: Chosen | None = None
        for least, candidate, options in sorted(tries, key=lambda t: (t[0], t[1].place)):
            if best and best.key[: len(least)] < least:
                break  # these builds and all later ones allow only worse sets
            best_here = self._best_of(candidate, options)
            best = min(filter(None, (best, best_here)), key=lambda c: c.key, default=None)
        return best

    def best_with(self, candidate: CandidateBuilds) -> Chosen | None:
        """Return the best set with these builds and this Python, or None."""
        options = self._options(candidate, None)
        return self._best_of(candidate, options) if options is not None else None

    def _different(
        self, allowed: Mapping[str, Sequence[PackageRelease]] | None
    ) -> list[tuple[CandidateBuilds, Options]]:
        """Return the candidates with their options. Of candidates with the same options only the newest can be the
        best."""
        newest: dict[tuple[object, ...], tuple[tuple[object, ...], CandidateBuilds, Options]] = {}
        paged = any(p.paged for p in self.packages)
        for candidate in self.candidates:
            if (options := self._options(candidate, allowed)) is None:
                continue
            refused = tuple(self._refused_together(candidate))
            place = candidate.place if paged else None
            key = (candidate.python, refused, place, *map(id, options.values()))
            rank = (self._ranks(candidate), candidate.place)
            if key not in newest or rank < newest[key][0]:
                newest[key] = (rank, candidate, options)
        return [(candidate, options) for _, candidate, options in newest.values()]

    def _options(
        self, candidate: CandidateBuilds, allowed: Mapping[str, Sequence[PackageRelease]] | None
    ) -> Options | None:
        """Return the releases of each package that fit builds and a Python, or None if a package has none."""
        options = dict(self._options_of_python(candidate))
        for package in self._bound:
            options[package.name] = self._fitting(package, package.releases, candidate)
        for name, releases in (allowed or {}).items():
            options[name] = self._fitting(self.by_name[name], releases, candidate)
        return options if all(options.values()) else None

    def _options_of_python(self, candidate: CandidateBuilds) -> Options:
        """Return the releases of each package that fit a Python, for those that are independent of the builds."""
        if candidate.python not in self._joining:
            bound = {p.name for p in self._bound}
            self._joining[candidate.python] = {
                p.name: p.releases if p.name in bound else self._fitting(p, p.releases, candidate)
                for p in self.packages
            }
        return self._joining[candidate.python]

    def _fitting(
        self, package: NamedPackage, releases: Sequence[PackageRelease], candidate: CandidateBuilds
    ) -> Sequence[PackageRelease]:
        fitting = [r for r in releases if self.objection(package, r, candidate) is None]
        return self._shared.share(package.name, fitting)

    @cached_property
    def _bound(self) -> Sequence[NamedPackage]:
        """The packages of which the releases that fit depend on the builds."""
        names = self.bound_to_builds | self._refused_names
        return [p for p in self.packages if p.name in names]

    @cached_property
    def _refused_names(self) -> frozenset[str]:
        return frozenset(n for r in self.refused for n in r.versions)

    @cached_property
    def bound_to_builds(self) -> frozenset[str]:
        """The packages with releases that fit only some builds, as far as known."""
        frameworks = {w.name for w in self.question.request.frameworks}
        needing = {p.name for p in self.packages if any(self._binds(p, r, frameworks) for r in p.releases)}
        measured = {p.name for p in self.packages if p.paged or any(r.measured for r in p.releases)}
        required = required_names(b for c in self.candidates for b in c.builds)
        return frozenset({*self.rows.packages, *measured, *self._companion_names, *required, *needing})

    def _binds(self, package: NamedPackage, release: PackageRelease, frameworks: AbstractSet[str]) -> bool:
        """Return whether a release requires a version of a framework on a possible Python."""
        key, known = (package.name, release.version), self.memory.binding
        if key not in known:
            needs = [self.needs(package.name, release, python) for python in self.pythons]
            known[key] = any(any(need.get(f, ())) for need in needs for f in frameworks)
        return known[key]

    def _best_of(
        self, candidate: CandidateBuilds, options: Mapping[str, Sequence[PackageRelease]]
    ) -> Chosen | None:
        wheels = {n: self._without_compiled(n, rs, candidate) for n, rs in options.items()}
        for built, choices in ((False, wheels), (True, options)):
            if all(choices.values()) and (releases := self._assigned_once(candidate, choices)):
                return self._chosen(candidate, releases, built=built and wheels != options)
        return None

    def _without_compiled(
        self, name: str, releases: Sequence[PackageRelease], candidate: CandidateBuilds
    ) -> Sequence[PackageRelease]:
        """Return the releases that need not be compiled. Pages of wheels differ by the builds."""
        place = candidate.place if self.by_name[name].paged else None
        key = (id(releases), candidate.python, place)
        if key not in self._shared.without_compiled:
            wheels = [r for r in releases if not self.compiles(name, r, candidate)]
            self._shared.without_compiled[key] = self._shared.share(name, wheels)
        return self._shared.without_compiled[key]

    def _assigned_once(
        self, candidate: CandidateBuilds, options: Mapping[str, Sequence[PackageRelease]]
    ) -> Mapping[str, PackageRelease] | None:
        """Return the best releases among options. Equal options of other builds have the same result."""
        key = (candidate.python, tuple(self._refused_together(candidate)), tuple(map(id, options.values())))
        if key not in self._shared.assigned:
            self._shared.assigned[key] = self._assignments(candidate).best(options)
        return self._shared.assigned[key]

    def _least_key(
        self, candidate: CandidateBuilds, options: Mapping[str, Sequence[PackageRelease]]
    ) -> tuple[object, ...]:
        """Return the first parts of the key, which no set of these options can undercut."""
        ages = [self._least_age(n, rs) for n, rs in options.items()]
        return False, (max(ages),) if ages else (), self._ranks(candidate)

    def _least_age(self, name: str, releases: Sequence[PackageRelease]) -> int:
        known, key = self._shared.least_ages, id(releases)
        if key not in known:
            known[key] = min(self.age(name, r) for r in releases)
        return known[key]

    def _assignments(self, candidate: CandidateBuilds) -> Assignments:
        refused = tuple(self._refused_together(candidate))
        key = (candidate.python, refused)
        if key not in self._known_assignments:
            self._known_assignments[key] = Assignments(
                needs=lambda name, release: self.needs(name, release, candidate.python), age=self.age,
                refused=[dict(versions) for versions in refused],
                pairs=self.memory.pairs.setdefault(candidate.python, {}),
            )  # fmt: skip
        return self._known_assignments[key]

    def _refused_of(self, candidate: CandidateBuilds) -> Iterator[Refused]:
        """Yield the refusals of a solver that concern these builds."""
        return (r for r in self.refused if r.cuda not in candidate.cudas)

    def _refused_together(self, candidate: CandidateBuilds) -> Iterator[tuple[tuple[str, str], ...]]:
        """Yield the versions of several packages that a solver refused together with these frameworks."""
        for refused in self._refused_of(candidate):
            rest = {n: v for n, v in refused.versions.items() if candidate.versions.get(n) != v}
            if len(rest) > 1 and rest.keys() <= self.by_name.keys():
                yield tuple(rest.items())

    def objection(
        self, package: NamedPackage, release: PackageRelease, candidate: CandidateBuilds
    ) -> str | None:
        """Return why a release does not fit builds and a Python, or None if it fits."""
        if candidate.python not in release.pythons:
            return f"{package.name} {release.version} has no wheel for Python {candidate.python}"
        if not release.version:
            return None  # represents older releases that were not read
        key = (package.name, release.version, candidate.place)
        if key not in self._objections:
            self._objections[key] = self._objection(package, release, candidate)
        return self._objections[key]

    def _objection(
        self, package: NamedPackage, release: PackageRelease, candidate: CandidateBuilds
    ) -> str | None:
        key = (package.name, release.version, candidate.place)
        if key not in self.memory.unfit:
            self.memory.unfit[key] = self._unfit(package, release, candidate)
        if why := self.memory.unfit[key]:
            return why
        for refused in self._refused_of(candidate):
            rest = dict(refused.versions)
            if rest.pop(package.name, None) == release.version and rest.items() <= candidate.versions.items():
                return refused.because
        return None

    def _unfit(
        self, package: NamedPackage, release: PackageRelease, candidate: CandidateBuilds
    ) -> str | None:
        """Return the objection of metadata and measured rows to a release with builds, or None."""
        if not (release.sourced or release.wheels or self.prebuilt_for(release, candidate)):
            return lacks_prebuilt(release, candidate.builds, candidate.python)
        needs = self.needs(package.name, release, candidate.python)
        for framework, planned in candidate.versions.items():
            for bound in needs.get(framework, ()):
                if not meets(planned, bound):
                    return f"{package.name} {release.version} requires {framework}{bound}"
        if why := requirement_of_builds(package.name, release.version, candidate.builds):
            return why
        if comes_along(package.name, release.version, candidate.builds):
            return None
        if why := companion_objection(package.name, release.version, candidate.builds, self._companion_names):
            return why
        rows = self.rows.rows(package.name, release.version, release.measured)
        compiled_for = self._compiled_for.get((package.name, f"=={release.version}"))
        if compiled_for and not rows:
            return f"{package.name} {release.version} is compiled for {compiled_for}"
        ignored = self.without_kernels[package.name]
        return objection(self.question, rows, candidate.builds, ignore_gpus_of=ignored)

    @cached_property
    def _companion_names(self) -> frozenset[str]:
        return companion_names(self.question.profiles.builds)

    @cached_property
    def _compiled_for(self) -> Mapping[tuple[str, str], str]:
        return companions_of_builds(self.question.profiles.builds)

    @cached_property
    def without_kernels(self) -> Mapping[str, Sequence[Question]]:
        """The targets for whose GPUs a package has kernels in no release."""
        rows = self.rows.packages
        return {p.name: without_kernels(self.question, rows.get(p.name, {})) for p in self.packages}

    def requirements(
        self, package: NamedPackage, release: PackageRelease, python: str
    ) -> tuple[Requirement, ...]:
        """Return the requirements of a release on frameworks and other named packages, for a Python."""
        return select_requirements(release.requires, package.extras, python, self.question.target.platform)

    def needs(self, name: str, release: PackageRelease, python: str) -> Mapping[str, Sequence[str]]:
        """Return the bounds of a release on frameworks and other named packages, by name."""
        key = (name, release.version, python)
        if key not in self.memory.needs:
            bounds: dict[str, list[str]] = {}
            for need in self.requirements(self.by_name[name], release, python):
                bounds.setdefault(str(canonicalize_name(need.name)), []).append(str(need.specifier))
            self.memory.needs[key] = bounds
        return self.memory.needs[key]

    def compiles(self, name: str, release: PackageRelease, candidate: CandidateBuilds) -> bool:
        """Return whether a release must be compiled although other releases of the package have wheels."""
        if not release.compiles or candidate.python in release.wheels or name not in self._with_wheels:
            return False
        return self.prebuilt_for(release, candidate) is None

    @cached_property
    def _with_wheels(self) -> frozenset[str]:
        return frozenset(p.name for p in self.packages if p.paged or any(r.wheels for r in p.releases))

    def prebuilt_for(self, release: PackageRelease, candidate: CandidateBuilds) -> PrebuiltWheel | None:
        """Return the wheel of a page that is compiled for builds and a Python. A wheel of an index comes before it."""
        if candidate.python in release.wheels:
            return None
        return find_prebuilt(self.question, release, candidate.builds, candidate.python)

    def clash(self, releases: Mapping[str, PackageRelease], candidate: CandidateBuilds) -> Iterator[str]:
        """Yield the unmet requirements of releases on each other, and a solver's refusals of them."""
        for name, release in releases.items():
            for other, bounds in self.needs(name, release, candidate.python).items():
                for bound in bounds if other in releases else ():
                    if not meets(releases[other].version, bound):
                        yield f"{name} {release.version} requires {other}{bound}"
        taken = {n: r.version for n, r in releases.items()} | dict(candidate.versions)
        for refused in self._refused_of(candidate):
            if refused.versions.items() <= taken.items():
                yield refused.because

    @cached_property
    def by_name(self) -> Mapping[str, NamedPackage]:
        return {p.name: p for p in self.packages}

    # --- age of a set ---------------------------------------------------------------------

    def _chosen(
        self, candidate: CandidateBuilds, releases: Mapping[str, PackageRelease], *, built: bool
    ) -> Chosen:
        behind = {n: self.age(n, r) for n, r in releases.items()}
        ages = tuple(sorted(behind.values(), reverse=True))
        key = (built, ages[:1], self._ranks(candidate), ages, candidate.place)
        return Chosen(candidate, releases, behind, key)

    def _ranks(self, candidate: CandidateBuilds) -> tuple[int, ...]:
        return tuple(self._version_ranks[b.framework][b.version] for b in candidate.builds)

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

    def age(self, name: str, release: PackageRelease) -> int:
        """Return how many days a release is older than the newest one for a possible Python."""
        if name not in self._newest_days:
            releases = self.by_name[name].releases
            self._newest_days[name] = next(
                (r.day for r in releases if self.pythons.intersection(r.pythons)), 0
            )
        return self._newest_days[name] - release.day

    def newest(self, name: str, python: str) -> PackageRelease | None:
        """Return the newest release with files for a Python, or None."""
        key = (name, python)
        if key not in self._newest:
            self._newest[key] = next((r for r in self.by_name[name].releases if python in r.pythons), None)
        return self._newest[key]
