"""Find the fewest plans that serve the hosts of all `--target`, and solve the lock of each."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field, replace
from pathlib import Path

from .. import fleet
from ..config import rows
from ..config.env import locate_in_project
from ..config.hosts import FleetHosts, read_hosts
from ..config.options import Choices
from ..config.project import add_inputs, apply_project
from ..errors import LockError, ResolveError, UsageError
from ..fleet.classes import group_hosts
from ..fleet.kinds import HostGroup, feature_release
from ..index.places import add_configured_indexes
from ..index.simple_api import version_of
from ..model import (
    Device,
    Emit,
    Event,
    Fleet,
    HostClass,
    Lock,
    Plan,
    Request,
    RequestContext,
    Target,
    make_lock_name,
    name_few,
)
from ..model.values import Value
from ..resolve import plan_request
from ..wheels.releases import SourceArchives
from . import solve_near
from .accept import read_old_lock
from .attempt import check_index
from .formats import check_choices, get_format
from .named import read_named_packages
from .request import make_request
from .search_state import drop_pytorch
from .uv_errors import first_reason, is_named


def plan_targets(
    targets: Sequence[Path], choices: Choices, emit: Emit, *, no_code: bool, locker: FleetLocker,
    plans: str | None,
) -> fleet.FleetAnswer:  # fmt: skip
    """Return the fewest plans for the hosts of all targets, or those that --plans asks for.

    With `no_code` no source code runs. Raises UsageError, MachineError, DataError, LockError, ResolveError.
    """
    check_choices(choices)
    groups, left_out, notes = read_hosts(targets, choices, rows.load(choices))
    for group in groups:
        check_choices(group.choices)
        if not get_format(group.choices.manager).OF_WHEELS:
            raise UsageError(
                f"--manager {group.choices.manager}: several targets are supported only with --manager venv",
                hint="give one --target, or --manager venv",
            )
    classes = _classes(groups)
    parts = [part for group, members in classes for part in _parts(group, members, emit, no_code=no_code)]
    named = any(part.context.request.packages or part.context.requirements.lines for part in parts)
    asked = locker if named else None
    answer = fleet.plan_fleet(parts, locker.plan, left_out, asked, plans)
    if not no_code and (open_parts := _leave_out_closed(parts, answer, emit)):
        answer = fleet.plan_fleet(open_parts, locker.plan, left_out, asked, plans)
    if plans and plans.isdecimal() and len(answer.fleet.plans) > int(plans):
        raise ResolveError(
            f"--plans {plans}: the hosts need at least {answer.fleet.at_least} plans",
            hint="--plans fewest has the fewest plans, and says why they are not one",
        )
    if named:
        text = f"packages: {len(locker.solved)} sets of hosts solved"
        emit(Event("done", "resolve", text))
    configured = tuple(
        replace(p, plan=add_configured_indexes(p.plan, r.sources, r.requirements.lines))
        for p, r in zip(answer.fleet.plans, answer.requests, strict=True)
    )
    return replace(answer, fleet=replace(answer.fleet, plans=configured, notes=notes))


def _classes(groups: Sequence[FleetHosts]) -> list[tuple[Choices, tuple[HostClass, ...]]]:
    """Return the classes of each group of options. Their ids are unique in all groups."""
    grouped = [(group.choices, group_hosts(group.hosts)) for group in groups]
    if len(grouped) < 2:
        return grouped
    return [
        (choices, tuple(replace(c, id=f"{c.id}-{number}") for c in classes))
        for number, (choices, classes) in enumerate(grouped, 1)
    ]


def _parts(choices: Choices, classes: Sequence[HostClass], emit: Emit, *, no_code: bool) -> list[HostGroup]:
    """Group the classes by platform and device, each group with its request."""
    kinds: dict[tuple[str, Device], list[HostClass]] = {}
    for one in classes:
        kinds.setdefault((one.target.platform, one.device), []).append(one)
    parts = []
    for (_, device), members in kinds.items():
        group_choices = replace(choices, planned=members[0].target, target=None, device=device)
        context = make_request(group_choices, emit, no_code=no_code)
        parts.append(HostGroup(context, tuple(members)))
    return parts


def _leave_out_closed(
    parts: Sequence[HostGroup], answer: fleet.FleetAnswer, emit: Emit
) -> list[HostGroup] | None:
    """Return the groups without the builds of an index that a plan needs and that does not answer, or None.

    All plans change with it, and what they cost: each alone would only get other builds.
    """
    for one, context in zip(answer.fleet.plans, answer.requests, strict=True):
        try:
            check_index(context.sources, one.plan)
        except LockError as error:
            emit(Event("warning", "lock", f"{error.message}; continuing without this index"))
            return [replace(part, context=drop_pytorch(part.context)) for part in parts]
    return None


_Key = tuple[Request, tuple[Target, ...], bool]


class SolvedPlan(Value, kw_only=False):
    """A plan with its lock, and the events of its solve."""

    plan: Plan
    lock: Lock
    events: tuple[Event, ...]


@dataclasses.dataclass
class FleetLocker:
    """Solves the locks of a fleet, and explains where the named packages have none. Each question is solved once in a run.

    A lock of some classes is solved near to the one that exists, with all versions moving if `upgrade` is true. None is
    for `resolve`, which reads no lock.
    """

    choices: Choices
    emit: Emit
    upgrade: bool | None = None
    refusals: list[LockError | ResolveError] = field(default_factory=list)
    solved: dict[_Key, SolvedPlan | str] = field(default_factory=dict)

    def newest(self, context: RequestContext) -> dict[str, str]:
        """Return the versions of the frameworks and the named packages in a new lock, or none without one."""
        solved = self.answer(context)
        if not isinstance(solved, SolvedPlan):
            return {}
        named = {n.name for n in read_named_packages(context)}
        locked = {p.name: p.version for p in solved.lock.packages if p.name in named}
        return {b.framework: b.version for b in solved.plan.builds} | locked

    def find_downgrade(self, alone: RequestContext, context: RequestContext, most: int) -> str | None:
        """Return the named package of `alone` that the lock of many hosts has in an older feature release, or None.

        Up to `most` releases older are allowed. New locks are compared: an existing one keeps older releases.
        """
        own, shared = self.newest(alone), self.newest(context)
        for name in own:
            if name in shared and self._count_releases(name, shared[name], own[name], alone) > most:
                return f"{name} would be {shared[name]}, not {own[name]}"
        return None

    def _count_releases(self, name: str, release: str, newer: str, context: RequestContext) -> int:
        """Return the number of feature releases from a release to a newer one: 0 where it is as new."""
        first, last = feature_release(release), feature_release(newer)
        if first >= last:
            return 0
        known = {b.version for b in context.profiles.builds if b.framework == name}
        if not known:
            files = SourceArchives(context.sources).wheel_files(name)
            known = {str(v) for f in files if (v := version_of(f.name, name))}
        return len({r for v in (*known, newer) if first < (r := feature_release(v)) <= last})

    def explain_refusal(self, context: RequestContext, classes: Sequence[HostClass]) -> str | None:
        """Return why no lock with the packages serves all classes, or None. Raises LockError for a silent index."""
        answer = self.answer(context, classes)
        return answer if isinstance(answer, str) else None

    def answer(self, context: RequestContext, classes: Sequence[HostClass] = ()) -> SolvedPlan | str | None:
        """Return the plan with its lock, or why there is none. None means that nothing is named, or no index is asked."""
        packages = context.request.packages or context.requirements.lines
        if not packages or context.sources.offline or context.sources.no_index:
            return None
        key = self._key(context, classes)
        if key not in self.solved:
            self.solved[key] = self._solve(context, classes)
        return self.solved[key]

    def path(self, classes: Sequence[HostClass]) -> Path:
        """Return the lock file of a plan, relative if the project is the current folder."""
        return locate_in_project(make_lock_name(self.choices.manager, classes[0].id))

    def _key(self, context: RequestContext, classes: Sequence[HostClass]) -> _Key:
        """Return the key of a question: near to a lock that exists, or without one."""
        near = bool(classes and self.upgrade is not None and self.path(classes).exists())
        return context.request, context.targets, near

    def _solve(self, context: RequestContext, classes: Sequence[HostClass]) -> SolvedPlan | str:
        events: list[Event] = []

        def keep(event: Event) -> None:
            """Show progress at once, and the rest where the lock is used."""
            (self.emit if event.kind in ("start", "progress") else events.append)(event)

        try:
            near = self._read_near(context, classes, keep)
            plan, lock = solve_near(context, self.choices, keep, near, upgrade=bool(self.upgrade))
        except LockError as error:
            if error.unreachable:
                raise
            self.refusals.append(error)
            return _describe(error, context)
        except ResolveError as error:
            self.refusals.append(error)
            return error.message
        if lock is None:
            return f"no build is compatible with the packages: {plan.hint or 'see gpuenv resolve --explain'}"
        return SolvedPlan(plan, lock, tuple(events))

    def _read_near(self, context: RequestContext, classes: Sequence[HostClass], emit: Emit) -> Lock | None:
        """Return the lock that the classes have, or None."""
        if self.upgrade is None or not classes:
            return None
        path = self.path(classes)
        text = f"lock file {path.name}, for {name_few([h for c in classes for h in c.hosts])}"
        emit(Event("start", "lock", text))
        return read_old_lock(path, self.choices, context.target.platform, emit)

    def lock(self, context: RequestContext, classes: tuple[HostClass, ...]) -> Lock:
        """Return the lock of a plan with its hosts. Raises LockError, ResolveError."""
        solved = self.solved.get(self._key(context, classes))
        if isinstance(solved, SolvedPlan):
            for event in solved.events:
                self.emit(event)
            lock = solved.lock
        else:
            near = self._read_near(context, classes, self.emit)
            plan, new_lock = solve_near(context, self.choices, self.emit, near, upgrade=bool(self.upgrade))
            if new_lock is None:
                named = ", ".join(c.id for c in classes)
                raise LockError(
                    f"{named}: no build is compatible with the requested packages", hint=plan.hint
                )
            lock = new_lock
        return replace(add_inputs(lock, self.choices, context.requirements), classes=classes)

    def events(self, requests: Iterable[RequestContext]) -> Iterator[Event]:
        """Yield what the solves of some requests said, as for one target: releases that are years old, for example."""
        for context in requests:
            if isinstance(solved := self.answer(context), SolvedPlan):
                yield from solved.events

    def plan(self, context: RequestContext) -> Plan:
        """Return the plan with the packages: that of its lock where it was solved."""
        near = self.solved.get((context.request, context.targets, True))
        known = near or self.answer(context)
        if isinstance(known, SolvedPlan):
            return known.plan
        plan = plan_request(context)
        return replace(plan, notes=(*plan.notes, known)) if known else plan


def _describe(error: LockError, context: RequestContext) -> str:
    """Return the solver's first reason. Where it names none of the named packages, they come first."""
    reason = first_reason(error.log or "")
    text = f"the solver finds no compatible set: {reason}" if reason else error.message
    names = [n.name for n in read_named_packages(context)]
    known = any(is_named(name, text) for name in names)
    return text if known or not names else f"{name_few(names)}: {text}"


def plan_locks(
    targets: Sequence[Path], choices: Choices, emit: Emit, *, upgrade: bool, plans: str | None
) -> tuple[Fleet, FleetLocker, list[tuple[RequestContext, tuple[HostClass, ...]]]]:
    """Return the fleet, what locks its plans, and the request and classes of each, most hosts first.

    Raises UsageError, LockError, ResolveError.
    """
    locker = FleetLocker(apply_project(choices), emit, upgrade)
    answer = plan_targets(targets, choices, emit, no_code=False, locker=locker, plans=plans)
    if locker.refusals and not answer.fleet.plans:
        raise locker.refusals[0]
    by_id = {c.id: c for c in answer.fleet.classes}
    classes = (tuple(by_id[i] for i in plan.classes) for plan in answer.fleet.plans)
    return answer.fleet, locker, list(zip(answer.requests, classes, strict=True))
