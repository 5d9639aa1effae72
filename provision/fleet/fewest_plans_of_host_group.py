"""Find the fewest plans for one group of host classes.

Classes that no build can tell apart are one kind.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from ..model import HostClass, RequestContext, Target
from .fewest_plans_with_packages import MOST_QUESTIONS, ObjectTo, PackageCover, cover_with_packages
from .host_classes import joint_target
from .minimum_cover import PlanCandidate, bits
from .plan_candidates import Fitting, candidate_plans
from .plan_differences import would_merge

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

    def would_merge(self, mask: int, packages: Packages | None) -> str | None:
        """Return the change of hosts that makes one plan of kinds whose packages conflict, or None."""
        classes = self.kinds.classes(mask)
        if packages is None or packages.solve(self.request(mask), classes) is None:
            return None  # a solver found the conflict, and its reasons name no property of hosts

        def serves(targets: Sequence[Target]) -> bool:
            changed = joint_request(self.base, targets, ())
            return self.fitting.newest(targets) is not None and packages.solve(changed, classes) is None

        return would_merge(self.fitting, classes, serves)


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
