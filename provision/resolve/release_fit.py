"""Decide whether a release of a named package fits builds and a Python, and state why not.

The facts are the release's metadata, measured rows, and refusals of a solver. Pure: no I/O.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set as AbstractSet
from dataclasses import dataclass, field
from functools import cached_property

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from ..model import NamedPackage, PackageRelease, PrebuiltWheel
from .chosen_and_refused_sets import Refused
from .companion_objections import (
    comes_along,
    companion_names,
    companion_objection,
    companions_of_builds,
    required_names,
    requirement_of_builds,
)
from .compatible_build_sets import CandidateBuilds
from .prebuilt_fit import find_prebuilt, lacks_prebuilt
from .question import Question
from .satellite_fit import SatelliteRows, objection, without_kernels
from .select_release_requirements import select_requirements
from .shared_search_results import SearchMemory
from .versions import meets


@dataclass
class ReleaseFit:
    """The releases of named packages, compared with the candidate builds of one question.

    `candidates` are all sets of builds that fit the target. `refused` are sets that a solver could not complete.
    `memory` keeps the results on single releases for later searches.
    """

    question: Question
    packages: Sequence[NamedPackage]
    refused: Sequence[Refused]
    candidates: Sequence[CandidateBuilds]
    memory: SearchMemory = field(repr=False)
    _objections: dict[tuple[str, str, int], str | None] = field(default_factory=dict, repr=False)
    _newest: dict[tuple[str, str], PackageRelease | None] = field(default_factory=dict, repr=False)
    _newest_days: dict[str, int] = field(default_factory=dict, repr=False)

    @cached_property
    def rows(self) -> SatelliteRows:
        """The measured rows of the target's platform."""
        return SatelliteRows(self.question.profiles, self.question.target.platform)

    @cached_property
    def by_name(self) -> Mapping[str, NamedPackage]:
        return {p.name: p for p in self.packages}

    @cached_property
    def pythons(self) -> frozenset[str]:
        """The Pythons that can be chosen."""
        return frozenset(c.python for c in self.candidates)

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
        for refused in self.refused_with(candidate):
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
        if why := self.of_another_build(release, candidate):
            return why
        ignored = self.without_kernels[package.name]
        return objection(self.question, rows, candidate.builds, ignore_gpus_of=ignored)

    @cached_property
    def _companion_names(self) -> frozenset[str]:
        return companion_names(self.question.profiles.builds)

    def of_another_build(self, release: PackageRelease, candidate: CandidateBuilds) -> str | None:
        """Return for which framework release a companion is compiled that does not fit these builds, or None.

        A measured companion can fit builds that name no companion.
        """
        name, text = release.package, release.version
        compiled_for = self._compiled_for.get((name, f"=={text}"))
        if compiled_for is None or compiled_for in {f"{f} {v}" for f, v in candidate.versions.items()}:
            return None
        measured = bool(self.rows.rows(name, text, release.measured))
        if measured and companion_objection(name, text, candidate.builds, frozenset()) is None:
            return None
        return f"{name} {text} is compiled for {compiled_for}"

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
        for refused in self.refused_with(candidate):
            if refused.versions.items() <= taken.items():
                yield refused.because

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

    def refused_with(self, candidate: CandidateBuilds) -> Iterator[Refused]:
        """Yield the refusals of a solver that concern these builds."""
        return (r for r in self.refused if r.cuda not in candidate.cudas)

    def refused_together(self, candidate: CandidateBuilds) -> Iterator[tuple[tuple[str, str], ...]]:
        """Yield the versions of several packages that a solver refused together with these frameworks."""
        for refused in self.refused_with(candidate):
            rest = {n: v for n, v in refused.versions.items() if candidate.versions.get(n) != v}
            if len(rest) > 1 and rest.keys() <= self.by_name.keys():
                yield tuple(rest.items())

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
