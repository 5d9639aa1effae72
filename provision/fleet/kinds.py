"""Find the possible plans for one group of host classes, and the fewest of them. Classes that no build can tell apart are one kind.

A build serves a class if `resolve` has no objection. A plan serves the classes that all its builds and its
cuDNN serve. So only these intersections are candidates, and each class alone. For each candidate, the rules
of `resolve` find the newest builds that are compatible on all its targets.
"""

from __future__ import annotations

import dataclasses
from bisect import bisect_right
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

from packaging.version import Version

from ..model import (
    AvailableWheels,
    Build,
    CudaMajor,
    CudaRelease,
    HostClass,
    Profiles,
    Request,
    RequestContext,
    Target,
)
from ..resolve.choice import candidates, fit, in_order
from ..resolve.objections import fits
from ..resolve.question import Question, is_exact, major, version
from ..resolve.supply import cudnn_objections, serving_releases
from .classes import joint_target
from .cover import MOST_QUESTIONS, ObjectTo, PackageCover, PlanCandidate, bits, cover_with_packages

_MOST_AGES = 100_000


@dataclass(frozen=True)
class Fitting:
    """The builds that fit each target of one platform, computed once for targets that are alike."""

    request: Request
    profiles: Profiles
    supply: AvailableWheels
    _questions: dict[Hashable, Question] = field(default_factory=dict, repr=False, compare=False)
    _serving: dict[Hashable, frozenset[int]] = field(default_factory=dict, repr=False, compare=False)
    _ages: dict[str, dict[str, int]] = field(default_factory=dict, repr=False, compare=False)
    _builds: dict[str, list[list[Build]]] = field(default_factory=dict, repr=False, compare=False)

    def question(self, target: Target) -> Question:
        """Return the question for a target, created once for all that are alike."""
        key = self.alike(target)
        if key not in self._questions:
            first = next(iter(self._questions.values()), None)
            whole = Question(self.request, target, self.profiles, self.supply)
            self._questions[key] = first.changed(target=target) if first else whole
        return self._questions[key]

    def together(self, targets: Iterable[Target]) -> Question:
        """Return the joint question for all targets."""
        each = list({self.alike(t): self.question(t) for t in targets}.values())
        return each[0].on_all(each[1:]) if len(each) > 1 else each[0]

    def alike(self, target: Target) -> Hashable:
        """Return a key of what builds depend on. Drivers between the same two floors are alike."""
        driver = target.driver
        place = (bisect_right(self._floors, version(driver)), major(driver)) if driver else None
        return (
            target.platform, target.driver_os, target.glibc, target.driver_cuda, target.forward_compat, place,
            tuple(g.capability for g in target.gpus),
        )  # fmt: skip

    @cached_property
    def floors(self) -> tuple[str, ...]:
        """The minimum driver versions of builds, oldest first."""
        p = self.profiles
        rows: tuple[CudaMajor | CudaRelease, ...] = (*p.majors, *p.cuda)
        drivers = {text for r in rows for text in (r.linux, r.windows)}
        drivers |= {g.first_driver for g in p.gpus} | {b.branch for b in p.branches}
        return tuple(sorted((f for f in drivers if f), key=version))

    @cached_property
    def _floors(self) -> list[Version]:
        return [version(f) for f in self.floors]

    def builds(self, platform: str) -> list[list[Build]]:
        """Return the candidates for each framework on a platform, in a fixed order."""
        if platform not in self._builds:
            question = self.question(Target(platform=platform))
            self._builds[platform] = [candidates(question, wanted) for wanted in self.request.frameworks]
        return self._builds[platform]

    def serving(self, target: Target, index: int) -> frozenset[int]:
        """Return the positions of the builds of framework number `index` that fit a target."""
        key = (self.alike(target), index)
        if key not in self._serving:
            question, wanted = self.question(target), self.request.frameworks[index]
            rows = enumerate(self.builds(target.platform)[index])
            self._serving[key] = frozenset(i for i, b in rows if fits(question, wanted, b))
        return self._serving[key]

    def newest(self, targets: Sequence[Target]) -> tuple[int, ...] | None:
        """Return the ages of the newest builds that serve all targets together, or None."""
        question = self.together(targets)
        clean = []
        for index in range(len(self.request.frameworks)):
            rows = self.builds(targets[0].platform)[index]
            serve = frozenset.intersection(*(self.serving(t, index) for t in targets))
            fitting = [rows[i] for i in sorted(serve)]
            if question.others and self.request.device == "cuda":
                fitting = [b for b in fitting if not (b.cuda and cudnn_objections(question, b))]
            clean.append(in_order(question, fitting))
        chosen, python = fit(question, [], clean)
        if not chosen or not python:
            return None
        return tuple(n for index, b in enumerate(chosen) for n in self._age(b, index))

    def age_of(self, versions: Mapping[str, str], platform: str) -> int:
        """Return the age of a plan with these versions of the frameworks, at least."""
        ranks = [self._ranks(platform, i) for i in range(len(self.request.frameworks))]
        named = zip(self.request.frameworks, ranks, strict=True)
        return encode_ages(n for w, rank in named for n in (0, rank.get(versions.get(w.name, ""), 0)))

    def _age(self, build: Build, index: int) -> tuple[int, int]:
        """Return whether a CPU environment gets a CUDA build, and the number of newer versions."""
        for_cuda = self.request.device == "cpu" and build.cuda is not None
        return int(for_cuda), self._ranks(build.platform, index)[build.version]

    def _ranks(self, platform: str, index: int) -> dict[str, int]:
        """Return the number of newer versions of each version of a framework."""
        name = self.request.frameworks[index].name
        if name not in self._ages:
            versions = {b.version for b in self.builds(platform)[index]}
            newest = sorted(versions, key=version, reverse=True)
            self._ages[name] = {v: i for i, v in enumerate(newest)}
        return self._ages[name]


def candidate_plans(fitting: Fitting, targets: Sequence[Target]) -> list[PlanCandidate]:
    """Return the possible plans for these targets, each with its newest builds."""
    candidates = {}
    for mask in _family(fitting, targets):
        if (ages := fitting.newest([targets[i] for i in bits(mask)])) is not None:
            candidates[mask] = ages
    return [PlanCandidate(mask, encode_ages(ages)) for mask, ages in candidates.items()]


def encode_ages(ages: Iterable[int]) -> int:
    """Return ages as one number in the same order: that of the first framework counts first."""
    number = 0
    for age in ages:
        number = number * _MOST_AGES + age
    return number


def _family(fitting: Fitting, targets: Sequence[Target]) -> set[int]:
    """Return every set of classes, as bits, that one plan could serve by its builds and cuDNN."""
    family = {(1 << len(targets)) - 1}
    for index in range(len(fitting.request.frameworks)):
        masks = _of_builds(fitting, targets, index)
        family = {mask & other for mask in family for other in masks} - {0}
    return family | {1 << i for i in range(len(targets))}


def _of_builds(fitting: Fitting, targets: Sequence[Target], index: int) -> set[int]:
    """Return the classes that each build of one framework serves, with each cuDNN it allows."""
    rows = fitting.builds(targets[0].platform)[index]
    masks = [0] * len(rows)
    for place, target in enumerate(targets):
        for row in fitting.serving(target, index):
            masks[row] |= 1 << place
    serving: set[int] = set()
    releases: dict[Hashable, set[int]] = {}
    for build, mask in zip(rows, masks, strict=True):
        loose = build.cuda and build.cudnn and not is_exact(build.cudnn) and fitting.request.device == "cuda"
        if not loose:
            serving.add(mask)
        elif mask:
            key = (build.cudnn, build.cuda, build.framework, build.requires)
            if key not in releases:
                releases[key] = _of_releases(fitting, targets, build)
            serving |= {mask & other for other in releases[key]}
    return serving - {0}


def _of_releases(fitting: Fitting, targets: Sequence[Target], build: Build) -> set[int]:
    """Return the classes that each cuDNN release allowed by a build serves."""
    masks: dict[str, int] = {}
    for place, target in enumerate(targets):
        for release in serving_releases(fitting.question(target), build):
            masks[release] = masks.get(release, 0) | 1 << place
    return set(masks.values())


Ask = Callable[[RequestContext, Sequence[HostClass]], "str | None"]


class Packages(Protocol):
    """What the named packages say of a request for several targets. Each returns an objection or None."""

    @property
    def sorts(self) -> Sequence[Ask]:
        """The sorts of questions, the cheapest first. A later one is not asked where an earlier one objects."""

    def solve(self, context: RequestContext, classes: Sequence[HostClass]) -> str | None:
        """Return why no lock with the packages serves all classes, or None."""

    def newest(self, context: RequestContext) -> Mapping[str, str] | None:
        """Return the versions of the frameworks in the lock of a request, or None without one."""


@dataclass(frozen=True)
class HostGroup:
    """Host classes of one platform and device, and their request. The request's target is not used."""

    request: RequestContext
    classes: tuple[HostClass, ...]


@dataclass(frozen=True)
class Kinds:
    """Classes of one group by kind, in the order of their first class. Plans are sets of kinds, as bits."""

    members: tuple[tuple[HostClass, ...], ...]

    @property
    def targets(self) -> list[Target]:
        """A target of each kind."""
        return [classes[0].target for classes in self.members]

    @property
    def weights(self) -> list[int]:
        """The number of hosts of each kind."""
        return [sum(len(c.hosts) for c in classes) for classes in self.members]

    def classes(self, mask: int) -> tuple[HostClass, ...]:
        """Return the classes of some kinds, most hosts first."""
        members = [c for place in bits(mask) for c in self.members[place]]
        return tuple(sorted(members, key=lambda c: -len(c.hosts)))


@dataclass(frozen=True)
class PlannedGroup:
    """The fewest plans of a group, as sets of its kinds."""

    base: RequestContext
    fitting: Fitting
    kinds: Kinds
    cover: PackageCover

    def request(self, mask: int) -> RequestContext:
        """Return the joint request of some kinds."""
        return joint_request(self.base, [self.kinds.targets[p] for p in bits(mask)], self.kinds.classes(mask))

    def unserved(self) -> list[int]:
        """Return the kinds that no plan serves."""
        planned = 0
        for mask in self.cover.groups:
            planned |= mask
        return [p for p in range(len(self.kinds.members)) if not planned >> p & 1]


def joint_request(
    base: RequestContext, targets: Sequence[Target], classes: Sequence[HostClass]
) -> RequestContext:
    """Return the request on all targets. Its joint target has the drivers of the classes, where there are any."""
    target = joint_target([c.target for c in classes] or targets)
    return dataclasses.replace(base, target=target, targets=tuple(targets))


def plan_group(part: HostGroup, packages: Packages | None) -> PlannedGroup:
    """Return the fewest plans of a group.

    If classes have no plan with the installed Pythons, any Python is tried as well.
    """
    fitted = _fit(part.request, part.classes)
    if fitted.left and part.request.pythons_known and not part.request.sources.offline:
        request = part.request.request
        anywhere = dataclasses.replace(part.request, request=dataclasses.replace(request, pythons=()))
        wider = _fit(anywhere, part.classes)
        fitted = wider if wider.left < fitted.left else fitted
    sorts = [_objections(fitted.base, fitted.kinds, ask) for ask in packages.sorts] if packages else []
    candidates = _with_ages(fitted, packages) if packages else fitted.candidates
    cover = cover_with_packages(candidates, fitted.kinds.weights, sorts)
    return PlannedGroup(fitted.base, fitted.fitting, fitted.kinds, cover)


@dataclass(frozen=True)
class _FittedGroup:
    """The kinds of a group with their possible plans. `left` counts the kinds without one."""

    base: RequestContext
    fitting: Fitting
    kinds: Kinds
    candidates: Sequence[PlanCandidate]

    @property
    def left(self) -> int:
        served = 0
        for candidate in self.candidates:
            served |= candidate.mask
        return len(self.kinds.members) - served.bit_count()


def _with_ages(fitted: _FittedGroup, packages: Packages) -> Sequence[PlanCandidate]:
    """Return the candidates with their ages beside the packages: no plan is newer than that of each of its kinds."""
    places = range(len(fitted.kinds.members))
    if not 1 < len(places) <= MOST_QUESTIONS:
        return fitted.candidates
    targets = fitted.kinds.targets
    known = [packages.newest(joint_request(fitted.base, [t], ())) for t in targets]
    ages = [fitted.fitting.age_of(v, t.platform) if v else 0 for v, t in zip(known, targets, strict=True)]
    return [
        PlanCandidate(c.mask, max(c.age, *(ages[p] for p in places if c.mask >> p & 1)))
        for c in fitted.candidates
    ]


def _fit(base: RequestContext, classes: Sequence[HostClass]) -> _FittedGroup:
    fitting = Fitting(base.request, base.profiles, base.supply)
    alike: dict[Hashable, list[HostClass]] = {}
    for one in classes:
        alike.setdefault(fitting.alike(one.target), []).append(one)
    kinds = Kinds(tuple(map(tuple, alike.values())))
    return _FittedGroup(base, fitting, kinds, candidate_plans(fitting, kinds.targets))


def _objections(base: RequestContext, kinds: Kinds, ask: Ask) -> ObjectTo:
    """Return a question on packages as one on kinds."""

    def object_to(mask: int) -> str | None:
        targets, classes = [kinds.targets[p] for p in bits(mask)], kinds.classes(mask)
        return ask(joint_request(base, targets, classes), classes)

    return object_to
