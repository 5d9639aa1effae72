"""Find the possible plans for one group of host classes, and the fewest of them. Classes that no build can tell apart are one kind.

A build serves a class if `resolve` has no objection. A plan serves the classes that all its builds and its
cuDNN serve. So only these intersections are candidates, and each class alone. For each candidate, the rules
of `resolve` find the newest builds that are compatible on all its targets.
"""

from __future__ import annotations

import dataclasses
from bisect import bisect_right
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import cached_property
from typing import Any, Protocol, TypeVar, cast

from packaging.specifiers import SpecifierSet

from ..model import (
    AvailableWheels,
    Build,
    HostClass,
    Profiles,
    Request,
    RequestContext,
    Target,
)
from ..model.values import Value
from ..resolve.available import cudnn_objections, serving_releases
from ..resolve.choice import candidates, choose_compatible, sort_builds
from ..resolve.objections import fits
from ..resolve.question import Question
from ..system.versions import is_exact, major, version
from .classes import count_hosts, joint_target
from .cover import MOST_QUESTIONS, ObjectTo, PackageCover, PlanCandidate, bits, cover_with_packages, join

MOST_LOST = 1
"""The feature releases that a class may lose to share a plan, if nothing else is asked for."""


Method = TypeVar("Method", bound=Callable[..., Any])


def memoize(method: Method) -> Method:
    """Let a Fitting compute an answer once for all targets that are alike."""

    def known(self: PlatformBuilds, *asked: Any) -> Any:
        kinds = (self.make_key(one) if isinstance(one, Target) else one for one in asked)
        key = (method.__name__, *kinds)
        if key not in self.answers:
            self.answers[key] = method(self, *asked)
        return self.answers[key]

    return cast("Method", known)


class PlatformBuilds(Value, kw_only=False):
    """The builds that fit each target of one platform."""

    request: Request
    profiles: Profiles
    available: AvailableWheels
    platform: str
    answers: dict[Hashable, Any] = field(default_factory=dict, repr=False, compare=False)

    @cached_property
    def _base_question(self) -> Question:
        """The question for no machine in particular, whose look-ups in the profiles all others share."""
        return Question(self.request, Target(platform=self.platform), self.profiles, self.available)

    @memoize
    def question(self, target: Target) -> Question:
        """Return the question for a target, or for the first one that is like it."""
        return self._base_question.replace(target=target)

    def joint_question(self, targets: Iterable[Target]) -> Question:
        """Return the joint question for all targets."""
        each = list({self.make_key(t): self.question(t) for t in targets}.values())
        return each[0].replace(others=tuple(each[1:])) if len(each) > 1 else each[0]

    def make_key(self, target: Target) -> Hashable:
        """Return a key of what builds depend on. Drivers between the same two floors are alike, and boards but for bad ones."""
        driver = target.driver
        place = (bisect_right(self.floors, version(driver), key=version), major(driver)) if driver else None
        names = " ".join(g.name or "" for g in target.gpus)
        return (
            tuple(b for b in self._bad_boards if b in names),
            target.platform, target.driver_os, target.glibc, target.driver_cuda, target.forward_compat, place,
            tuple(g.capability for g in target.gpus),
        )  # fmt: skip

    @cached_property
    def floors(self) -> tuple[str, ...]:
        """The minimum driver versions of builds, oldest first."""
        p = self.profiles
        drivers = p.list_driver_floors(windows=False) | p.list_driver_floors(windows=True)
        drivers |= {g.first_driver for g in p.gpus if g.first_driver} | {b.branch for b in p.branches}
        drivers |= {s.version for bad in p.known_bad if bad.driver for s in SpecifierSet(bad.driver)}
        return tuple(sorted(drivers, key=version))

    @cached_property
    def _bad_boards(self) -> tuple[str, ...]:
        """The parts of names of boards on which a release is bad."""
        return tuple(sorted({bad.board for bad in self.profiles.known_bad if bad.board}))

    @cached_property
    def builds(self) -> list[list[Build]]:
        """The candidates for each framework, in a fixed order."""
        return [candidates(self._base_question, wanted) for wanted in self.request.frameworks]

    @memoize
    def list_serving(self, target: Target, index: int) -> frozenset[int]:
        """Return the positions of the builds of framework number `index` that fit a target."""
        question, wanted = self.question(target), self.request.frameworks[index]
        rows = enumerate(self.builds[index])
        return frozenset(i for i, b in rows if fits(question, wanted, b))

    def newest(self, targets: Sequence[Target]) -> tuple[int, ...] | None:
        """Return the ages of the newest builds that serve all targets together, or None."""
        question = self.joint_question(targets)
        clean = []
        for index, rows in enumerate(self.builds):
            serve = frozenset.intersection(*(self.list_serving(t, index) for t in targets))
            fitting = [rows[i] for i in sorted(serve)]
            if question.others and self.request.device == "cuda":
                fitting = [b for b in fitting if not (b.cuda and cudnn_objections(question, b))]
            clean.append(sort_builds(question, fitting))
        chosen, python = choose_compatible(question, [], clean)
        if not chosen or not python:
            return None
        return tuple(n for index, b in enumerate(chosen) for n in self._age(b, index))

    @memoize
    def newest_alone(self, target: Target) -> tuple[int, ...] | None:
        """Return the ages of the newest builds for one target."""
        return self.newest([target])

    def can_share(self, targets: Sequence[Target], lost: int | None) -> bool:
        """Return whether one plan serves all targets, and none loses more feature releases than `lost`."""
        if (ages := self.newest(targets)) is None:
            return False
        return all(
            (own := self.newest_alone(t)) is not None and self.is_recent(ages, own, lost) for t in targets
        )

    def is_recent(self, ages: Sequence[int], own: Sequence[int], lost: int | None) -> bool:
        """Return whether a plan is at most `lost` feature releases behind another: with 0 it is as new."""
        if not lost:
            return lost is None or tuple(ages) <= tuple(own)
        return all(
            releases[ages[2 * i + 1]] - releases[own[2 * i + 1]] <= lost and ages[2 * i] <= own[2 * i]
            for i, releases in enumerate(self._feature_releases)
        )

    def versions(self, ages: Sequence[int]) -> dict[str, str]:
        """Return the version of each framework in a plan of these ages."""
        named = zip(self.request.frameworks, self._ranks, ages[1::2], strict=True)
        return {wanted.name: list(ranks)[age] for wanted, ranks, age in named}

    def get_ages(self, versions: Mapping[str, str]) -> tuple[int, ...]:
        """Return the ages of a plan with these versions of the frameworks, at least."""
        named = zip(self.request.frameworks, self._ranks, strict=True)
        return tuple(n for w, rank in named for n in (0, rank.get(versions.get(w.name, ""), 0)))

    def _age(self, build: Build, index: int) -> tuple[int, int]:
        """Return whether a CPU environment gets a CUDA build, and the number of newer versions."""
        for_cuda = self.request.device == "cpu" and build.cuda is not None
        return int(for_cuda), self._ranks[index][build.version]

    @cached_property
    def _ranks(self) -> list[dict[str, int]]:
        """The number of newer versions of each version of each framework."""
        versions = ({b.version for b in builds} for builds in self.builds)
        return [{v: i for i, v in enumerate(sorted(known, key=version, reverse=True))} for known in versions]

    @cached_property
    def _feature_releases(self) -> list[list[int]]:
        """The number of newer feature releases for each number of newer versions of each framework."""
        numbers = []
        for ranks in self._ranks:
            found = [feature_release(v) for v in ranks]
            places = {release: i for i, release in enumerate(dict.fromkeys(found))}
            numbers.append([places[release] for release in found])
        return numbers


def candidate_plans(fitting: PlatformBuilds, targets: Sequence[Target]) -> list[PlanCandidate]:
    """Return the possible plans for these targets, each with its newest builds.

    They are every set of classes, as bits, that one plan could serve by its builds and cuDNN, and each class alone.
    """
    family = {(1 << len(targets)) - 1}
    for index in range(len(fitting.request.frameworks)):
        masks = _group_by_build(fitting, targets, index)
        family = {mask & other for mask in family for other in masks} - {0}
    family |= {1 << i for i in range(len(targets))}
    newest = ((mask, fitting.newest([targets[i] for i in bits(mask)])) for mask in family)
    return [PlanCandidate(mask, ages) for mask, ages in newest if ages is not None]


def drop_dominated(candidates: Sequence[PlanCandidate]) -> list[PlanCandidate]:
    """Return the candidates of which no other one is as new and serves more. They alone are chosen from."""
    return [
        one for one in dict.fromkeys(candidates)
        if not any(o != one and o.age <= one.age and o.mask & one.mask == one.mask for o in candidates)
    ]  # fmt: skip


def feature_release(release: str) -> tuple[int, ...]:
    """Return the feature release of a version: (2, 14) of "2.14.1"."""
    return version(release).release[:2]


def _group_by_build(fitting: PlatformBuilds, targets: Sequence[Target], index: int) -> set[int]:
    """Return the classes that each build of one framework serves, with each cuDNN it allows."""
    rows = fitting.builds[index]
    masks = [0] * len(rows)
    for place, target in enumerate(targets):
        for row in fitting.list_serving(target, index):
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
                releases[key] = _group_by_cudnn(fitting, targets, build)
            serving |= {mask & other for other in releases[key]}
    return serving - {0}


def _group_by_cudnn(fitting: PlatformBuilds, targets: Sequence[Target], build: Build) -> set[int]:
    """Return the classes that each cuDNN release allowed by a build serves."""
    masks: dict[str, int] = {}
    for place, target in enumerate(targets):
        for release in serving_releases(fitting.question(target), build):
            masks[release] = masks.get(release, 0) | 1 << place
    return set(masks.values())


class Packages(Protocol):
    """What the named packages say of a request for several targets. Each returns an objection or None."""

    def explain_refusal(self, context: RequestContext, classes: Sequence[HostClass]) -> str | None:
        """Return why no lock with the packages serves all classes, or None."""

    def newest(self, context: RequestContext) -> Mapping[str, str]:
        """Return the versions of frameworks, then of named packages, in the lock of a request, or none without one."""

    def find_downgrade(self, alone: RequestContext, context: RequestContext, most: int) -> str | None:
        """Return a named package that the lock of many hosts has in an older feature release than that of some, or None.

        Up to `most` releases older are allowed.
        """


class HostGroup(Value, kw_only=False):
    """Host classes of one platform and device, and their request. The request's target is not used."""

    context: RequestContext
    classes: tuple[HostClass, ...]


class PlannedGroup(Value, kw_only=False):
    """The classes of a group by kind, in the order of their first class, and the possible plans. Plans are sets of kinds, as bits.

    `lost` are the feature releases that a kind may lose to share a plan, or None for any number.
    """

    base: RequestContext
    fitting: PlatformBuilds
    members: tuple[tuple[HostClass, ...], ...]
    candidates: Sequence[PlanCandidate]
    packages: Packages | None
    lost: int | None
    _versions: dict[int, Mapping[str, str]] = field(default_factory=dict, repr=False, compare=False)

    @property
    def targets(self) -> list[Target]:
        """A target of each kind."""
        return [classes[0].target for classes in self.members]

    @property
    def weights(self) -> list[int]:
        """The number of hosts of each kind."""
        return [count_hosts(classes) for classes in self.members]

    def classes(self, mask: int) -> tuple[HostClass, ...]:
        """Return the classes of some kinds, most hosts first."""
        members = [c for place in bits(mask) for c in self.members[place]]
        return tuple(sorted(members, key=lambda c: -len(c.hosts)))

    def list_uncovered(self, masks: Iterable[int]) -> list[int]:
        """Return the kinds that are in none of the sets."""
        served = join(masks)
        return [p for p in range(len(self.members)) if not served >> p & 1]

    def request(self, mask: int) -> RequestContext:
        """Return the joint request of some kinds."""
        return joint_request(self.base, [self.targets[p] for p in bits(mask)], self.classes(mask))

    def can_share(self, targets: Sequence[Target]) -> bool:
        """Return whether one plan serves all targets by its builds, and none loses more than allowed."""
        return self.fitting.can_share(targets, self.lost)

    def hosts(self, mask: int) -> int:
        """Return the number of hosts of some kinds."""
        return sum(self.weights[p] for p in bits(mask))

    def versions(self, mask: int) -> Mapping[str, str]:
        """Return the versions of the frameworks, then of the named packages, in the plan of some kinds."""
        if mask not in self._versions:
            targets = [self.targets[p] for p in bits(mask)]
            ages = self.fitting.newest(targets) or ()
            solved = self.packages and len(self.members) <= MOST_QUESTIONS
            locked = self.packages.newest(self.request(mask)) if self.packages and solved else None
            self._versions[mask] = locked or self.fitting.versions(ages)
        return self._versions[mask]

    def cover(self, lost: int | None, plans: int = 0) -> PackageCover:
        """Return the fewest plans in which no kind loses more than `lost`, or up to `plans` where more are newer."""
        candidates = drop_dominated(list(self._list_recent(lost)))
        return cover_with_packages(candidates, self.weights, self._list_objections(lost), plans=plans)

    def _list_recent(self, lost: int | None) -> Iterator[PlanCandidate]:
        """Yield the candidates, each for the kinds that lose no more than `lost`."""
        best: dict[int, tuple[int, ...]] = {}
        for mask, ages in self.candidates:
            for place in bits(mask):
                best[place] = min(ages, best.get(place, ages))
        for mask, ages in self.candidates:
            all_best = {best[p] for p in bits(mask)}
            near = {own for own in all_best if self.fitting.is_recent(ages, own, lost)}
            if left := sum(1 << p for p in bits(mask) if best[p] in near):
                yield PlanCandidate(left, ages)

    def _list_objections(self, lost: int | None) -> list[ObjectTo]:
        """Return the questions on named packages as questions on kinds."""
        packages = self.packages
        if packages is None:
            return []

        def explain_refusal(mask: int) -> str | None:
            return packages.explain_refusal(self.request(mask), self.classes(mask))

        def loses(mask: int) -> str | None:
            whole = self.request(mask)
            alone = (self.request(1 << p) for p in bits(mask)) if mask.bit_count() > 1 else ()
            return next(
                (why for one in alone if (why := packages.find_downgrade(one, whole, lost or 0))), None
            )

        many = len(self.members) > MOST_QUESTIONS  # each would be solved alone
        return [explain_refusal] if lost is None or many else [explain_refusal, loses]


def joint_request(
    base: RequestContext, targets: Sequence[Target], classes: Sequence[HostClass]
) -> RequestContext:
    """Return the request on all targets. Its joint target has the drivers of the classes, where there are any."""
    target = joint_target([c.target for c in classes] or targets)
    return dataclasses.replace(base, target=target, targets=tuple(targets))


def plan_group(part: HostGroup, packages: Packages | None, lost: int | None) -> PlannedGroup:
    """Return the possible plans of a group.

    If classes have no plan with the installed Pythons, any Python is tried as well.
    """
    planned = _plan_group(part, packages, lost)
    left = planned.list_uncovered(c.mask for c in planned.candidates)
    if left and part.context.pythons_known and not part.context.sources.offline:
        request = part.context.request
        anywhere = dataclasses.replace(part.context, request=dataclasses.replace(request, pythons=()))
        wider = _plan_group(HostGroup(anywhere, part.classes), packages, lost)
        if len(wider.list_uncovered(c.mask for c in wider.candidates)) < len(left):
            planned = wider
    return (
        dataclasses.replace(planned, candidates=_add_package_ages(planned, packages)) if packages else planned
    )


def _plan_group(part: HostGroup, packages: Packages | None, lost: int | None) -> PlannedGroup:
    base, classes = part.context, part.classes
    fitting = PlatformBuilds(base.request, base.profiles, base.available, classes[0].target.platform)
    alike: dict[Hashable, list[HostClass]] = {}
    for one in classes:
        alike.setdefault(fitting.make_key(one.target), []).append(one)
    targets = [kind[0].target for kind in alike.values()]
    members = tuple(map(tuple, alike.values()))
    return PlannedGroup(base, fitting, members, candidate_plans(fitting, targets), packages, lost)


def _add_package_ages(planned: PlannedGroup, packages: Packages) -> Sequence[PlanCandidate]:
    """Return the candidates with their ages beside the packages: no plan is newer than that of each of its kinds."""
    targets = planned.targets
    if not 1 < len(targets) <= MOST_QUESTIONS:
        return planned.candidates
    known = [packages.newest(joint_request(planned.base, [t], ())) for t in targets]
    ages = [planned.fitting.get_ages(versions) for versions in known]
    return [
        PlanCandidate(mask, max(c.age, age))
        for c in planned.candidates
        for age in sorted({ages[p] for p in bits(c.mask)})
        if (mask := sum(1 << p for p in bits(c.mask) if ages[p] <= age))
    ]
