"""`gpuenv lock` for several targets: write one lock for each plan of the fleet."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path

from ..errors import LockError
from ..fleet import FleetAnswer
from ..model import (
    VENV_CLASS_LOCKS,
    Emit,
    Event,
    FleetLock,
    FleetLocks,
    HostClass,
    Lock,
    RequestContext,
    make_lock_name,
)
from ..request import project_options as inproject
from ..request.options import Choices
from ..request.project_folder import find_project_folder
from ..system.output_file import refuse_to_replace
from ..wheels import pylock
from .lock_acceptance import virtual_packages
from .lock_preferences import Upgrade, read_old_lock, solve_like
from .missing_library_warnings import MissingLibraries
from .plan_several_targets import plan_targets
from .read_request import get_locking

_SHOWN = 3
"""Hosts that a warning names."""


def lock_targets(
    targets: Sequence[Path], choices: Choices, emit: Emit, upgrade: Upgrade, *, force: bool
) -> FleetLocks:
    """Write `pylock.CLASS.toml` for each plan, named after the class with the most hosts.

    Raises UsageError, LockError, ResolveError.
    """
    get_locking(choices).require()
    answer = plan_targets(targets, choices, emit, reading=False)
    choices = inproject.apply_project(choices)
    files = _files(answer, choices)
    for path in files:
        refuse_to_replace(path, force=force)
    locks = [_write_lock(task, emit) for task in make_tasks(answer, choices, upgrade)]
    for text in _without_plan(files):
        emit(Event(kind="warning", stage="lock", text=text))
    if locks:
        step = f"gpuenv create --lock {locks[0].file}  # on the hosts that the file lists under [tool.gpuenv]"
        emit(Event(kind="next", stage="lock", text=step))
    return FleetLocks(fleet=answer.fleet, locks=tuple(locks))


@dataclasses.dataclass(frozen=True)
class PlanTask:
    """One plan of a fleet, by its position, and the path of its lock in the project."""

    place: int
    path: Path
    answer: FleetAnswer
    choices: Choices
    upgrade: Upgrade

    @property
    def context(self) -> RequestContext:
        """The request that applies to all hosts of the plan."""
        return self.answer.requests[self.place]

    @property
    def classes(self) -> tuple[HostClass, ...]:
        """The classes of the plan, the one with the most hosts first."""
        by_id = {c.id: c for c in self.answer.fleet.classes}
        return tuple(by_id[i] for i in self.answer.fleet.plans[self.place].classes)


def make_tasks(answer: FleetAnswer, choices: Choices, upgrade: Upgrade) -> list[PlanTask]:
    """Return a task for each plan of a fleet."""
    files = enumerate(_files(answer, choices))
    return [PlanTask(place, path, answer, choices, upgrade) for place, path in files]


def _files(answer: FleetAnswer, choices: Choices) -> Sequence[Path]:
    """Return the lock file of each plan, relative if the project is the current folder."""
    folder = find_project_folder()
    names = [make_lock_name(choices.manager, plan.classes[0]) for plan in answer.fleet.plans]
    return [Path(n) if folder == Path.cwd() else folder / n for n in names]


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
            hosts = [host for one in classes for host in one.hosts]
            more = f" and {len(hosts) - _SHOWN} more" if len(hosts) > _SHOWN else ""
            named = ", ".join(hosts[:_SHOWN]) + more
            yield f"{path.name} is a lock that belongs to no current plan (hosts {named}). Remove it, or include its hosts"


def solve_lock(task: PlanTask, emit: Emit) -> Lock:
    """Return the lock of a plan with its hosts, near to the existing one. Raises LockError."""
    context, choices = task.context, task.choices
    emit(Event(kind="start", stage="lock", text=f"lock file {task.path.name}, for plan {task.place + 1}"))
    old_lock = read_old_lock(task.path, choices, context.target.platform, strict=False)
    plan, new_lock = solve_like(context, choices, emit, old_lock, task.upgrade)
    if new_lock is None:
        raise LockError(
            f"plan {task.place + 1}, for {', '.join(c.id for c in task.classes)}: no build is compatible with the requested packages",
            hint=plan.hint,
        )
    files = inproject.list_files(choices, context.demands)
    return dataclasses.replace(new_lock, inputs=inproject.digest_inputs(choices, files), classes=task.classes)


def _write_lock(task: PlanTask, emit: Emit) -> FleetLock:
    context, choices = task.context, task.choices
    new_lock = solve_lock(task, emit)
    get_locking(choices).write_lock(task.path, new_lock, virtual_packages(context, choices))
    elsewhere = dataclasses.replace(choices, planned=context.target)
    MissingLibraries(emit, new_lock, elsewhere, context.sources).warn()
    return FleetLock(file=str(task.path), plan=task.place, lock=new_lock)
