"""Find the host classes of a fleet that no lock with the named packages serves together."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ..config.options import Choices
from ..errors import LockError, ResolveError
from ..fleet import Ask
from ..lock.named import read_named_packages
from ..lock.update import solve_like
from ..lock.uv_errors import first_reason, is_named
from ..model import Emit, Event, HostClass, Lock, Plan, Request, RequestContext, Target
from ..resolve.planner import plan_request

_SHOWN = 3
"""Named packages that a reason lists."""
_Key = tuple[Request, tuple[Target, ...]]
SolveFor = Callable[[RequestContext, Sequence[HostClass], Emit], tuple[Plan, "Lock | None"]]
"""Solves the lock of some classes."""


@dataclass(frozen=True)
class SolvedPlan:
    """A plan with its lock, and the events of its solve."""

    plan: Plan
    lock: Lock
    events: tuple[Event, ...]


@dataclass
class FleetPackages:
    """The answers to questions on the named packages. Each question is solved once in a run.

    `solver` solves the lock of some classes, near to the one that exists. Without it, and without classes, a lock is new.
    """

    choices: Choices
    emit: Emit
    solver: SolveFor | None = None
    refusals: list[LockError | ResolveError] = field(default_factory=list)
    _solved: dict[_Key, SolvedPlan | str] = field(default_factory=dict)
    _fresh: dict[_Key, SolvedPlan | str] = field(default_factory=dict)

    @property
    def sorts(self) -> Sequence[Ask]:
        """The questions that are asked of a set of classes."""
        return (self.solve,)

    def newest(self, context: RequestContext) -> dict[str, str] | None:
        """Return the versions of the frameworks in the lock of a request, or None without one."""
        if not _names_packages(context) or self.solve(context, ()) is not None:
            return None
        return {b.framework: b.version for b in self.plan(context).builds}

    def solve(self, context: RequestContext, classes: Sequence[HostClass]) -> str | None:
        """Return why no lock with the packages serves all classes, or None. Raises LockError for a silent index."""
        if not _names_packages(context):
            return None
        answers = self._solved if classes or self.solver is None else self._fresh
        key = _key(context)
        if key not in answers:
            answers[key] = self._solve(context, classes)
        solved = answers[key]
        return solved if isinstance(solved, str) else None

    def _solve(self, context: RequestContext, classes: Sequence[HostClass]) -> SolvedPlan | str:
        events: list[Event] = []

        def keep(event: Event) -> None:
            """Show progress at once, and the rest where the lock is used."""
            (self.emit if event.kind in ("start", "progress") else events.append)(event)

        try:
            if self.solver and classes:
                plan, lock = self.solver(context, classes, keep)
            else:
                plan, lock = solve_like(context, self.choices, keep)
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

    def find(self, context: RequestContext) -> SolvedPlan | None:
        """Return the lock that answered a question, or None."""
        solved = self._solved.get(_key(context))
        return solved if isinstance(solved, SolvedPlan) else None

    def plan(self, context: RequestContext) -> Plan:
        """Return the plan with the packages: that of its lock where it was solved."""
        key, plan = _key(context), plan_request(context)
        if _names_packages(context) and key not in self._solved:
            self.solve(context, ())
        known = self._solved.get(key) or self._fresh.get(key)
        if isinstance(known, SolvedPlan):
            return known.plan
        return dataclasses.replace(plan, notes=(*plan.notes, known)) if known else plan


def _describe(error: LockError, context: RequestContext) -> str:
    """Return the solver's first reason. Where it names none of the named packages, they come first."""
    reason = first_reason(error.log or "")
    text = f"the solver finds no compatible set: {reason}" if reason else error.message
    names = [n.name for n in read_named_packages(context)]
    known = any(is_named(name, text) for name in names)
    return text if known or not names else f"{', '.join(names[:_SHOWN])}: {text}"


def _key(context: RequestContext) -> _Key:
    return context.request, context.targets


def _names_packages(context: RequestContext) -> bool:
    packages = context.request.packages or context.demands.needs
    return bool(packages) and not (context.sources.offline or context.sources.no_index)
