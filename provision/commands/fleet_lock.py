"""`gpuenv lock` for several targets: write one lock for each plan of the fleet."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..config import project as inproject
from ..config.options import Choices
from ..config.project import find_project_folder
from ..errors import LockError
from ..lock.update import Upgrade, solve_like
from ..model import (
    VENV_CLASS_LOCKS,
    Emit,
    Event,
    Fleet,
    FleetLock,
    FleetLocks,
    HostClass,
    Lock,
    Plan,
    RequestContext,
    make_lock_name,
)
from ..system.files import refuse_to_replace
from ..wheels import pylock
from .fewest_plans_of_targets import plan_targets
from .host_classes_not_served_together import FleetPackages, SolvedPlan
from .lock_acceptance import read_old_lock, virtual_packages
from .missing_library_warnings import MissingLibraries
from .read_request import get_locking

_SHOWN = 3
"""Hosts or classes that a message names."""


def lock_targets(
    targets: Sequence[Path], choices: Choices, emit: Emit, upgrade: Upgrade, *, force: bool
) -> FleetLocks:
    """Write `pylock.CLASS.toml` for each plan, named after the class with the most hosts.

    Raises UsageError, LockError, ResolveError.
    """
    fleet, tasks = plan_locks(targets, choices, emit, upgrade)
    for task in tasks:
        refuse_to_replace(task.path, force=force)
    locks = [_write_lock(task, emit) for task in tasks]
    for text in _without_plan([task.path for task in tasks]):
        emit(Event(kind="warning", stage="lock", text=text))
    if locks:
        step = f"gpuenv create --lock {locks[0].file}  # on the hosts that the file lists under [tool.gpuenv]"
        emit(Event(kind="next", stage="lock", text=step))
    return FleetLocks(fleet=_with_locked_plans(fleet, locks), locks=tuple(locks))


def _with_locked_plans(fleet: Fleet, locks: Sequence[FleetLock]) -> Fleet:
    """Return the fleet with the plans that were locked: an index that does not answer can change the builds."""
    plans = (
        plan if plan.plan.builds == one.lock.plan.builds else dataclasses.replace(plan, plan=one.lock.plan)
        for plan, one in zip(fleet.plans, locks, strict=True)
    )
    return dataclasses.replace(fleet, plans=tuple(plans))


@dataclass(frozen=True)
class PlanTask:
    """One plan of a fleet: its position, request and classes (most hosts first), and its lock if it is solved."""

    place: int
    context: RequestContext
    classes: tuple[HostClass, ...]
    solver: LockSolver
    solved: SolvedPlan | None

    @property
    def choices(self) -> Choices:
        """The options, with those of the project."""
        return self.solver.choices

    @property
    def path(self) -> Path:
        """The path of the lock in the project."""
        return self.solver.path(self.classes)


@dataclass(frozen=True)
class LockSolver:
    """Solves locks of a fleet, each near to the one that exists."""

    choices: Choices
    upgrade: Upgrade

    def path(self, classes: Sequence[HostClass]) -> Path:
        """Return the lock file of a plan, relative if the project is the current folder."""
        name, folder = make_lock_name(self.choices.manager, classes[0].id), find_project_folder()
        return Path(name) if folder == Path.cwd() else folder / name

    def solve(
        self, context: RequestContext, classes: Sequence[HostClass], emit: Emit
    ) -> tuple[Plan, Lock | None]:
        """Return the plan and the lock of some classes. Raises LockError, ResolveError."""
        path = self.path(classes)
        emit(
            Event(
                kind="start", stage="lock", text=f"lock file {path.name}, for {_few([c.id for c in classes])}"
            )
        )
        old_lock = read_old_lock(path, self.choices, context.target.platform, strict=False)
        return solve_like(context, self.choices, emit, old_lock, self.upgrade)


def plan_locks(
    targets: Sequence[Path], choices: Choices, emit: Emit, upgrade: Upgrade
) -> tuple[Fleet, list[PlanTask]]:
    """Return the fleet, and a task for each of the fewest plans. Raises UsageError, LockError, ResolveError."""
    get_locking(choices).require()
    solver = LockSolver(inproject.apply_project(choices), upgrade)
    packages = FleetPackages(solver.choices, emit, solver.solve)
    answer = plan_targets(targets, choices, emit, reading=False, packages=packages)
    if packages.refusals and not answer.fleet.plans:
        raise packages.refusals[0]
    by_id = {c.id: c for c in answer.fleet.classes}
    tasks = [
        PlanTask(place, context, tuple(by_id[i] for i in plan.classes), solver, packages.find(context))
        for place, (plan, context) in enumerate(zip(answer.fleet.plans, answer.requests, strict=True))
    ]
    return answer.fleet, tasks


def _without_plan(files: Sequence[Path]) -> Iterator[str]:
    """Yield a warning for each fleet lock that no current plan uses."""
    for path in sorted(find_project_folder().glob(VENV_CLASS_LOCKS)):
        if path.name in {file.name for file in files}:
            continue
        try:
            classes = pylock.read(path).classes
        except LockError:
            continue  # another tool's or damaged: not a lock of this fleet
        if classes:
            named = _few([host for one in classes for host in one.hosts])
            yield f"{path.name} is a lock that belongs to no current plan (hosts {named}). Remove it, or include its hosts"


def solve_lock(task: PlanTask, emit: Emit) -> Lock:
    """Return the lock of a plan with its hosts. Raises LockError."""
    if task.solved:
        new_lock: Lock | None = task.solved.lock
        for event in task.solved.events:
            emit(event)
    else:
        plan, new_lock = task.solver.solve(task.context, task.classes, emit)
        if new_lock is None:
            raise LockError(
                f"plan {task.place + 1}, for {', '.join(c.id for c in task.classes)}: no build is compatible with the requested packages",
                hint=plan.hint,
            )
    assert new_lock
    files = inproject.list_files(task.choices, task.context.demands)
    inputs = inproject.digest_inputs(task.choices, files)
    return dataclasses.replace(new_lock, inputs=inputs, classes=task.classes)


def _write_lock(task: PlanTask, emit: Emit) -> FleetLock:
    context, choices = task.context, task.choices
    new_lock = solve_lock(task, emit)
    get_locking(choices).write_lock(task.path, new_lock, virtual_packages(context, choices))
    elsewhere = dataclasses.replace(choices, planned=context.target)
    MissingLibraries(emit, new_lock, elsewhere, context.sources).warn()
    return FleetLock(file=str(task.path), plan=task.place, lock=new_lock)


def _few(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
