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

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from ..model import NamedPackage, PackageRelease
from .assign_releases import Assignments, Options
from .chosen_and_refused_sets import Chosen, Refused
from .compatible_build_sets import CandidateBuilds, candidates_of
from .question import Question
from .release_fit import ReleaseFit
from .shared_search_results import SearchMemory, SharedLists
from .versions import version


@dataclass
class JointSearch:
    """A question with the packages that are named beside the frameworks.

    `refused` are sets that a solver could not complete.
    """

    question: Question
    packages: Sequence[NamedPackage]
    refused: Sequence[Refused] = ()
    memory: SearchMemory = field(default_factory=SearchMemory, repr=False)
    _joining: dict[str, Options] = field(default_factory=dict, repr=False)
    _shared: SharedLists = field(default_factory=SharedLists, repr=False)
    _known_assignments: dict[tuple[object, ...], Assignments] = field(default_factory=dict, repr=False)

    @cached_property
    def candidates(self) -> tuple[CandidateBuilds, ...]:
        """All sets of builds that fit the target, in the order of `resolve`."""
        if self.memory.candidates is None:
            self.memory.candidates = candidates_of(self.question)
        return self.memory.candidates

    @cached_property
    def fit(self) -> ReleaseFit:
        """The releases that fit each candidate, and the objections to others."""
        return ReleaseFit(self.question, self.packages, self.refused, self.candidates, self.memory)

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
            refused = tuple(self.fit.refused_together(candidate))
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
            options[name] = self._fitting(self.fit.by_name[name], releases, candidate)
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
        fit = self.fit
        fitting = [r for r in releases if fit.objection(package, r, candidate) is None]
        return self._shared.share(package.name, fitting)

    @cached_property
    def _bound(self) -> Sequence[NamedPackage]:
        """The packages of which the releases that fit depend on the builds."""
        names = self.fit.bound_to_builds | self._refused_names
        return [p for p in self.packages if p.name in names]

    @cached_property
    def _refused_names(self) -> frozenset[str]:
        return frozenset(n for r in self.refused for n in r.versions)

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
        place = candidate.place if self.fit.by_name[name].paged else None
        key = (id(releases), candidate.python, place)
        if key not in self._shared.without_compiled:
            wheels = [r for r in releases if not self.fit.compiles(name, r, candidate)]
            self._shared.without_compiled[key] = self._shared.share(name, wheels)
        return self._shared.without_compiled[key]

    def _assigned_once(
        self, candidate: CandidateBuilds, options: Mapping[str, Sequence[PackageRelease]]
    ) -> Mapping[str, PackageRelease] | None:
        """Return the best releases among options. Equal options of other builds have the same result."""
        key = (
            candidate.python,
            tuple(self.fit.refused_together(candidate)),
            tuple(map(id, options.values())),
        )
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
            known[key] = min(self.fit.age(name, r) for r in releases)
        return known[key]

    def _assignments(self, candidate: CandidateBuilds) -> Assignments:
        refused = tuple(self.fit.refused_together(candidate))
        key = (candidate.python, refused)
        if key not in self._known_assignments:
            self._known_assignments[key] = Assignments(
                needs=lambda name, release: self.fit.needs(name, release, candidate.python), age=self.fit.age,
                refused=[dict(versions) for versions in refused],
                pairs=self.memory.pairs.setdefault(candidate.python, {}),
            )  # fmt: skip
        return self._known_assignments[key]

    def _chosen(
        self, candidate: CandidateBuilds, releases: Mapping[str, PackageRelease], *, built: bool
    ) -> Chosen:
        behind = {n: self.fit.age(n, r) for n, r in releases.items()}
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
