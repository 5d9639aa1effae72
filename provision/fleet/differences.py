"""Explain why two plans are not one, and which change of hosts would merge them."""

from __future__ import annotations

import dataclasses
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from itertools import chain

from ..model import HostClass, PlanDifference, Target
from ..model.values import dataclass
from ..resolve.objections import objections
from ..resolve.question import version
from .classes import joint_target
from .kinds import Fitting, Packages, PlannedGroup, joint_request

_MOST_REASONS = 2


@dataclass(frozen=True)
class Side:
    """A plan by its position, with its classes (most hosts first) and its builds as (framework, version, CUDA,
    index)."""

    position: int
    classes: tuple[HostClass, ...]
    builds: tuple[tuple[str, str, str | None, str], ...]

    @property
    def targets(self) -> list[Target]:
        """The targets of the classes."""
        return [c.target for c in self.classes]


def explain(group: PlannedGroup, one: Side, other: Side) -> PlanDifference:
    """Return the two classes of plans that are not one, the objections, and what would merge the plans."""
    fitting = group.fitting
    first, second = _counter_example(group, one, other)
    reasons = [
        f"{host_class.id} ({_hosts(host_class.hosts)}) cannot use plan {side.position + 1}: {'; '.join(texts)}"
        for host_class, side in ((first, other), (second, one))
        if (texts := _objections(fitting, host_class, side))
    ]
    if (ages := fitting.newest([first.target, second.target])) is not None:
        shared = fitting.versions(ages, first.target.platform).items()
        reasons.append(f"one plan for both has {' and '.join(f'{name} {v}' for name, v in shared)}")
    text = "; ".join(reasons) or f"no build supports both {first.id} and {second.id}"
    return PlanDifference(
        plans=(one.position, other.position), classes=(first.id, second.id), reason=text,
        would_merge=would_merge(fitting, (*one.classes, *other.classes), group.shares),
    )  # fmt: skip


def _counter_example(group: PlannedGroup, one: Side, other: Side) -> tuple[HostClass, HostClass]:
    """Return two classes without a joint plan, or two that reject each other's plan."""
    pairs = sorted(
        ((a, b) for a in one.classes for b in other.classes), key=lambda p: -len(p[0].hosts) - len(p[1].hosts)
    )
    fitting = group.fitting
    for a, b in pairs:
        if not group.shares([a.target, b.target]):
            return a, b
    return max(
        pairs, key=lambda p: bool(_objections(fitting, p[0], other)) + bool(_objections(fitting, p[1], one))
    )


def _objections(fitting: Fitting, host_class: HostClass, side: Side) -> list[str]:
    """Return objections to a plan's builds on a class: "torch 2.11.0: CUDA 13 needs driver ..."."""
    lines = []
    question = fitting.question(host_class.target).changed(
        target=host_class.target
    )  # with the class's driver, for the message
    for at, wanted in enumerate(fitting.request.frameworks):
        for build in fitting.builds(host_class.target.platform)[at]:
            if (build.framework, build.version, build.cuda) == side.builds[at][:3] and side.builds[at][3] in (
                build.index,
                "find-links",
            ):
                texts = list(dict.fromkeys(r.text for r in objections(question, wanted, build)))[
                    :_MOST_REASONS
                ]
                lines += [f"{build.framework} {build.version}: {'; '.join(texts)}"] if texts else []
    return lines


Serves = Callable[[Sequence[Target]], bool]
"""Whether one plan serves all of some targets."""


def would_merge(
    fitting: Fitting, classes: Sequence[HostClass], serves: Serves, gain: str = "one plan fewer is needed"
) -> str | None:
    """Return the smallest change of drivers, otherwise of glibc, after which one plan serves the classes, or None."""
    for changed, text in chain(_drivers(fitting, classes, serves), _glibcs(classes)):
        if serves(changed):
            return f"{text}, {gain}"
    return None


def would_merge_packages(group: PlannedGroup, mask: int, packages: Packages | None) -> str | None:
    """Return the change of hosts that makes one plan of kinds whose packages conflict, or None."""
    classes = group.kinds.classes(mask)
    if packages is None or packages.solve(group.request(mask), classes) is None:
        return None  # a solver found the conflict, and its reasons name no property of hosts

    def serves(targets: Sequence[Target]) -> bool:
        changed = joint_request(group.base, targets, ())
        return group.shares(targets) and packages.solve(changed, classes) is None

    return would_merge(group.fitting, classes, serves)


def _drivers(
    fitting: Fitting, classes: Sequence[HostClass], serves: Serves
) -> Iterator[tuple[list[Target], str]]:
    """Yield the minimum driver for the hosts with an older one, if one helps."""
    drivers = [version(c.target.driver) for c in classes if c.target.driver]
    floors = [f for f in fitting.floors if drivers and version(f) > min(drivers)]
    free = [dataclasses.replace(c.target, driver=None, driver_cuda=None) for c in classes]
    if not floors or not serves(free):  # no driver helps
        return

    def is_older(one: HostClass, floor: str) -> bool:
        return bool(one.target.driver) and version(one.target.driver or "") < version(floor)

    def raised(floor: str) -> list[Target]:
        return [
            dataclasses.replace(c.target, driver=floor, driver_cuda=None) if is_older(c, floor) else c.target
            for c in classes
        ]

    # What one driver serves a newer one serves too, unless it drops a GPU.
    place = bisect_left(floors, True, key=lambda floor: serves(raised(floor)))
    for floor in floors[place : place + 1]:
        older = [c for c in classes if is_older(c, floor)]
        yield raised(floor), f"driver {_oldest(older, 'driver')} on {_count(older)}: with driver {floor}"


def _glibcs(classes: Sequence[HostClass]) -> Iterator[tuple[list[Target], str]]:
    """Yield each glibc of the classes for the hosts with an older one."""
    known = {c.target.glibc for c in classes if c.target.glibc}
    for glibc in sorted(known, key=version):
        older = [c for c in classes if c.target.glibc and version(c.target.glibc) < version(glibc)]
        if not older:
            continue
        raised = [dataclasses.replace(c.target, glibc=glibc) if c in older else c.target for c in classes]
        yield (
            raised,
            f"glibc {_oldest(older, 'glibc')} on {_count(older)}: with glibc {glibc}",
        )


def _oldest(classes: Sequence[HostClass], name: str) -> str:
    oldest = getattr(joint_target(c.target for c in classes), name)
    several = len({getattr(c.target, name) for c in classes}) > 1
    return f"{oldest} and newer" if several else str(oldest)


def _count(classes: Sequence[HostClass]) -> str:
    return _hosts([h for c in classes for h in c.hosts])


def _hosts(names: Sequence[str]) -> str:
    return f"{len(names):,} hosts" if len(names) != 1 else "1 host"
