"""The plans that could be made for classes of one platform and device: which classes each serves, and how new it is.

A build serves a class where no objection speaks against it there. What a plan serves is the intersection of what its
builds and its cuDNN serve, so only these intersections are candidates, and one for each class alone. For each of them
the newest builds that go together on all its targets are looked for, by the rules of `resolve`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from packaging.version import Version

from ..model import AvailableWheels, Build, CudaMajor, CudaRelease, Profiles, Request, Target
from ..resolve.available_wheels import cudnn_objections, serving_releases
from ..resolve.build_choice import candidates, fit, in_order
from ..resolve.objections import fits
from ..resolve.question import Question
from ..resolve.versions import is_exact, major, version
from .minimum_cover import Candidate, bits


@dataclass(frozen=True)
class Fitting:
    """Which builds fit which targets of one platform, judged once for targets that no build tells apart."""

    request: Request
    profiles: Profiles
    supply: AvailableWheels
    _questions: dict[Hashable, Question] = field(default_factory=dict, repr=False, compare=False)
    _serving: dict[Hashable, frozenset[int]] = field(default_factory=dict, repr=False, compare=False)
    _ages: dict[str, dict[str, int]] = field(default_factory=dict, repr=False, compare=False)
    _builds: dict[str, list[list[Build]]] = field(default_factory=dict, repr=False, compare=False)

    def question(self, target: Target) -> Question:
        """The question on a target, made once for all that are alike."""
        key = self.alike(target)
        if key not in self._questions:
            first = next(iter(self._questions.values()), None)
            whole = Question(self.request, target, self.profiles, self.supply)
            self._questions[key] = first.changed(target=target) if first else whole
        return self._questions[key]

    def together(self, targets: Iterable[Target]) -> Question:
        """The question on all targets at once."""
        each = list({self.alike(t): self.question(t) for t in targets}.values())
        return each[0].on_all(each[1:]) if len(each) > 1 else each[0]

    def alike(self, target: Target) -> Hashable:
        """What builds depend on: drivers between the same two floors of one branch are alike."""
        driver = target.driver
        place = (bisect_right(self._floors, version(driver)), major(driver)) if driver else None
        return (
            target.platform, target.driver_os, target.glibc, target.driver_cuda, target.forward_compat, place,
            tuple(g.capability for g in target.gpus),
        )  # fmt: skip

    @cached_property
    def floors(self) -> tuple[str, ...]:
        """The driver versions from which on more builds fit, oldest first."""
        p = self.profiles
        rows: tuple[CudaMajor | CudaRelease, ...] = (*p.majors, *p.cuda)
        found = {text for r in rows for text in (r.linux, r.windows)}
        found |= {g.first_driver for g in p.gpus} | {b.branch for b in p.branches}
        return tuple(sorted((f for f in found if f), key=version))

    @cached_property
    def _floors(self) -> list[Version]:
        return [version(f) for f in self.floors]

    def builds(self, platform: str) -> list[list[Build]]:
        """The candidates for each framework on a platform, in a fixed order."""
        if platform not in self._builds:
            asked = self.question(Target(platform=platform))
            self._builds[platform] = [candidates(asked, wanted) for wanted in self.request.frameworks]
        return self._builds[platform]

    def serving(self, target: Target, at: int) -> frozenset[int]:
        """The places of the builds of framework number `at` that fit a target."""
        key = (self.alike(target), at)
        if key not in self._serving:
            asked, wanted = self.question(target), self.request.frameworks[at]
            rows = enumerate(self.builds(target.platform)[at])
            self._serving[key] = frozenset(i for i, b in rows if fits(asked, wanted, b))
        return self._serving[key]

    def newest(self, targets: Sequence[Target]) -> tuple[int, ...] | None:
        """The ages of the newest builds that serve all targets together, None where no builds do."""
        asked = self.together(targets)
        clean = []
        for at in range(len(self.request.frameworks)):
            rows = self.builds(targets[0].platform)[at]
            serve = frozenset.intersection(*(self.serving(t, at) for t in targets))
            fitting = [rows[i] for i in sorted(serve)]
            if asked.others and self.request.device == "cuda":
                fitting = [b for b in fitting if not (b.cuda and cudnn_objections(asked, b))]
            clean.append(in_order(asked, fitting))
        chosen, python = fit(asked, [], clean)
        if not chosen or not python:
            return None
        return tuple(n for at, b in enumerate(chosen) for n in self._age(b, at))

    def _age(self, build: Build, at: int) -> tuple[int, int]:
        """How many newer versions there are, after the preference of CPU environments for CPU builds."""
        if build.framework not in self._ages:
            versions = {b.version for b in self.builds(build.platform)[at]}
            newest = sorted(versions, key=version, reverse=True)
            self._ages[build.framework] = {v: i for i, v in enumerate(newest)}
        for_cuda = self.request.device == "cpu" and build.cuda is not None
        return int(for_cuda), self._ages[build.framework][build.version]


def candidate_plans(fitting: Fitting, targets: Sequence[Target]) -> list[Candidate]:
    """The plans that could be made for these targets, each with the newest builds for what it serves."""
    found = {}
    for mask in _family(fitting, targets):
        if (ages := fitting.newest([targets[i] for i in bits(mask)])) is not None:
            found[mask] = ages
    order = {ages: i for i, ages in enumerate(sorted(set(found.values())))}
    return [Candidate(mask, order[ages]) for mask, ages in found.items()]


def _family(fitting: Fitting, targets: Sequence[Target]) -> set[int]:
    """Every set of classes that one plan could serve by its builds and its cuDNN, as bits."""
    family = {(1 << len(targets)) - 1}
    for at in range(len(fitting.request.frameworks)):
        own = _of_builds(fitting, targets, at)
        family = {mask & other for mask in family for other in own} - {0}
    return family | {1 << i for i in range(len(targets))}


def _of_builds(fitting: Fitting, targets: Sequence[Target], at: int) -> set[int]:
    """The classes that each build of one framework serves; with each cuDNN, where the build leaves it open."""
    rows = fitting.builds(targets[0].platform)[at]
    masks = [0] * len(rows)
    for place, target in enumerate(targets):
        for row in fitting.serving(target, at):
            masks[row] |= 1 << place
    found: set[int] = set()
    releases: dict[Hashable, set[int]] = {}
    for build, mask in zip(rows, masks, strict=True):
        loose = build.cuda and build.cudnn and not is_exact(build.cudnn) and fitting.request.device == "cuda"
        if not loose:
            found.add(mask)
        elif mask:
            key = (build.cudnn, build.cuda, build.framework, build.requires)
            if key not in releases:
                releases[key] = _of_releases(fitting, targets, build)
            found |= {mask & other for other in releases[key]}
    return found - {0}


def _of_releases(fitting: Fitting, targets: Sequence[Target], build: Build) -> set[int]:
    """The classes that each cuDNN release serves which a build allows."""
    masks: dict[str, int] = {}
    for place, target in enumerate(targets):
        for release in serving_releases(fitting.question(target), build):
            masks[release] = masks.get(release, 0) | 1 << place
    return set(masks.values())
