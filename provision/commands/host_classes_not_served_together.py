"""Find the host classes of a fleet that no set of the named packages, or no lock, serves together."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from ..errors import LockError, ResolveError
from ..fleet import Ask
from ..fleet.host_classes import joint_target
from ..model import (
    Emit,
    Event,
    HostClass,
    Lock,
    Plan,
    Request,
    RequestContext,
    Target,
    drop_event,
)
from .facts_from_refused_solves import find_reason, is_named
from .functions_for_managers import resolve_plan
from .joint_choice import JointChoice
from .packages_named_beside_frameworks import read_named_packages

_SHOWN = 3
"""Named packages that a reason lists."""
_Key = tuple[Request, tuple[Target, ...]]
SolveFor = Callable[[RequestContext, Sequence[HostClass], Emit], tuple[Plan, Lock | None]]
"""Solves the lock of some classes."""
SearchFor = Callable[[RequestContext], "str | None"]
"""Returns why no set of releases serves the targets of a request, or None."""


@dataclass(frozen=True)
class SolvedPlan:
    """A plan with its lock, and the events of its solve."""

    plan: Plan
    lock: Lock
    events: tuple[Event, ...]


@dataclass
class FleetPackages:
    """Questions on the named packages. Without a `solver` only releases are read, as `resolve` does. `searcher`
    replaces the search on the index.

    Classes that alone have no set of releases share plans with each other only: there the solver chooses, as for one
    target.
    """

    allow_old: bool
    emit: Emit
    solver: SolveFor | None = None
    searcher: SearchFor | None = None
    refusals: list[LockError | ResolveError] = field(default_factory=list)
    _solved: dict[_Key, SolvedPlan] = field(default_factory=dict)
    _reasons: dict[_Key, str | None] = field(default_factory=dict)
    _newest: dict[_Key, Mapping[str, str]] = field(default_factory=dict)

    @property
    def sorts(self) -> Sequence[Ask]:
        """The questions that are asked of a set of classes, the cheapest first."""
        return (self.search, self.solve) if self.solver else (self.search,)

    def search(self, context: RequestContext, _classes: Sequence[HostClass]) -> str | None:
        """Return why no set of releases serves all targets, or None. Targets of which none has a set alone are not
        kept apart."""
        if not _names_packages(context) or len(context.targets) < 2:
            return None
        reason = self._reason(context.targets, context)
        alone = reason and any(self._reason((t,), context) is None for t in context.targets)
        return reason if alone else None

    def newest(self, context: RequestContext) -> Mapping[str, str] | None:
        """Return the versions of the frameworks in the newest set of releases, or None without a set."""
        if not _names_packages(context):
            return None
        self._reason(context.targets, context)
        return self._newest.get(_key(context))

    def solve(self, context: RequestContext, classes: Sequence[HostClass]) -> str | None:
        """Return why no lock with the packages serves all classes, or None. Raises LockError for a silent index."""
        if self.solver is None or not _names_packages(context):
            return None
        events: list[Event] = []

        def keep(event: Event) -> None:
            """Show progress at once, and the rest where the lock is used."""
            (self.emit if event.kind in ("start", "progress") else events.append)(event)

        try:
            plan, lock = self.solver(context, classes, keep)
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
        self._solved[_key(context)] = SolvedPlan(plan, lock, tuple(events))
        return None

    def find(self, context: RequestContext) -> SolvedPlan | None:
        """Return the lock that answered a question, or None."""
        return self._solved.get(_key(context))

    def plan(self, context: RequestContext) -> Plan:
        """Return the plan with the packages: that of its lock where it was solved."""
        if known := self.find(context):
            return known.plan
        if not _names_packages(context):
            return resolve_plan(context)
        try:
            return resolve_plan(JointChoice(self.emit, allow_old=self.allow_old).applied(context))
        except LockError as error:  # each set has a release that is too old
            plan = resolve_plan(context)
            return dataclasses.replace(plan, notes=(*plan.notes, error.message))

    def _reason(self, targets: tuple[Target, ...], context: RequestContext) -> str | None:
        one = _for_targets(context, targets)
        key = _key(one)
        if key not in self._reasons:
            self._reasons[key] = (self.searcher or self._search_index)(one)
        return self._reasons[key]

    def _search_index(self, context: RequestContext) -> str | None:
        joint = JointChoice(drop_event, allow_old=self.allow_old)
        try:
            changed = joint.applied(context)
        except LockError as error:  # each set has a release that is too old
            return error.message
        if changed.joint:
            builds = resolve_plan(changed).builds
            self._newest[_key(context)] = {b.framework: b.version for b in builds}
        return joint.why_none


def _describe(error: LockError, context: RequestContext) -> str:
    """Return the solver's first reason. Where it names none of the named packages, they come first."""
    reason, names = find_reason(error), [n.name for n in read_named_packages(context)]
    known = any(is_named(name, reason) for name in names)
    return reason if known or not names else f"{', '.join(names[:_SHOWN])}: {reason}"


def _key(context: RequestContext) -> _Key:
    return context.request, context.targets


def _names_packages(context: RequestContext) -> bool:
    return bool(context.request.packages or context.demands.needs)


def _for_targets(context: RequestContext, targets: tuple[Target, ...]) -> RequestContext:
    """Return the request on some of its targets."""
    return dataclasses.replace(context, target=joint_target(targets), targets=targets)
