"""`gpuenv lock` for several targets: one lock for each plan of the fleet, with its hosts."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path

from ..errors import LockError
from ..fleet import FleetAnswer
from ..model import Emit, Event, FleetLock, FleetLocks, HostClass, Lock, RequestContext
from ..request import project_options as inproject
from ..request.options import Choices
from ..request.project_folder import find_project_folder
from ..system.output_file import refuse_to_replace
from ..wheels import pylock
from .lock_acceptance import virtual_packages
from .lock_preferences import Upgrade, read_old_lock, solve_like
from .missing_library_warnings import MissingLibraries
from .plan_fleet import plan_targets
from .read_request import get_locking

_SHOWN = 3
"""Hosts that a warning names."""


def lock_targets(
    targets: Sequence[Path], choices: Choices, emit: Emit, upgrade: Upgrade, *, force: bool
) -> FleetLocks:
    """Write `pylock.CLASS.toml` for each plan, named after the class with the most hosts. Raises UsageError, LockError,
    ResolveError."""
    get_locking(choices).require()
    found = plan_targets(targets, choices, emit, reading=False)
    choices = inproject.apply_project(choices)
    files = _files(found, choices)
    for path in files:
        refuse_to_replace(path, force=force)
    locks = [_locked(_Task(place, path, found, choices, upgrade), emit) for place, path in enumerate(files)]
    for text in _without_plan(files):
        emit(Event(kind="warning", stage="lock", text=text))
    if locks:
        step = f"gpuenv create --lock {locks[0].file}  # on the hosts that the file lists under [tool.gpuenv]"
        emit(Event(kind="next", stage="lock", text=step))
    return FleetLocks(fleet=found.fleet, locks=tuple(locks))


@dataclasses.dataclass(frozen=True)
class _Task:
    """One plan of a fleet, by its place, and the file that its lock goes to."""

    place: int
    path: Path
    found: FleetAnswer
    choices: Choices
    upgrade: Upgrade

    @property
    def asked(self) -> RequestContext:
        """The request that applies to all hosts of the plan."""
        return self.found.requests[self.place]

    @property
    def classes(self) -> tuple[HostClass, ...]:
        """The classes of the plan, most hosts first."""
        by_id = {c.id: c for c in self.found.fleet.classes}
        return tuple(by_id[i] for i in self.found.fleet.plans[self.place].classes)


def _files(found: FleetAnswer, choices: Choices) -> Sequence[Path]:
    """The lock file of each plan, relative where the project is this folder."""
    folder, way = find_project_folder(), get_locking(choices)
    names = [way.lock_name(plan.classes[0]) for plan in found.fleet.plans]
    return [Path(n) if folder == Path.cwd() else folder / n for n in names]


def _without_plan(files: Sequence[Path]) -> Iterator[str]:
    """What to say of locks of a fleet beside these files: their plans are no more, and their hosts have other ones."""
    for path in sorted(find_project_folder().glob("pylock.*.toml")):
        if path.name in {file.name for file in files}:
            continue
        try:
            classes = pylock.read(path).classes
        except LockError:
            continue  # another tool's, or damaged: it is not of this fleet
        if classes:
            hosts = [host for one in classes for host in one.hosts]
            more = f" and {len(hosts) - _SHOWN} more" if len(hosts) > _SHOWN else ""
            named = ", ".join(hosts[:_SHOWN]) + more
            yield f"{path.name} is a lock that belongs to no current plan (hosts {named}). Remove it, or include its hosts"


def _locked(task: _Task, emit: Emit) -> FleetLock:
    asked, choices = task.asked, task.choices
    emit(Event(kind="start", stage="lock", text=f"{task.path.name}, for plan {task.place + 1}"))
    held = read_old_lock(task.path, choices, asked.target.platform, strict=False)
    plan, made = solve_like(asked, choices, emit, held, task.upgrade)
    if made is None:
        raise LockError(
            f"plan {task.place + 1}, for {', '.join(c.id for c in task.classes)}: no build is compatible with the requested packages",
            hint=plan.hint,
        )
    made = _with_hosts(made, task, inproject.list_files(choices, asked.demands))
    get_locking(choices).write_lock(task.path, made, virtual_packages(asked, choices))
    elsewhere = dataclasses.replace(choices, planned=asked.target)
    MissingLibraries(emit, made, elsewhere, asked.sources).warn()
    return FleetLock(file=str(task.path), plan=task.place, lock=made)


def _with_hosts(lock: Lock, task: _Task, files: list[str]) -> Lock:
    return dataclasses.replace(
        lock, inputs=inproject.digest_inputs(task.choices, files), classes=task.classes
    )
