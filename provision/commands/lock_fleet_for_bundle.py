"""Lock each plan of the fleet for a bundle for several targets."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..bundle import locks_of
from ..config.options import Choices
from ..lock.accept import read_lock, virtual_packages
from ..lock.fleet import PlanTask, plan_locks, solve_lock
from ..lock.update import Upgrade
from ..model import Bundle, Emit, Event, Fleet, Lock, UnservedHosts, as_plain
from .bundle_lock import LockForBundle, digest_options, is_begun


@dataclass(frozen=True)
class LocksForBundle:
    """The locks of a bundle, and the hosts that have none."""

    locks: tuple[LockForBundle, ...]
    unserved: tuple[UnservedHosts, ...] = ()


def find_locks(
    folder: Path, before: Bundle | None, targets: Sequence[Path], choices: Choices, emit: Emit
) -> LocksForBundle | Fleet:
    """Return the locks of the fewest plans, or the fleet where no host has a plan. An interrupted bundle for the same
    hosts keeps its locks. Raises UsageError, LockError, ResolveError."""
    fleet, tasks = plan_locks(targets, choices, emit, Upgrade())
    if not tasks:
        return fleet
    hosts = [as_plain(one) for one in (*fleet.classes, *fleet.unserved)]
    options_digest = digest_options(tasks[0].choices, hosts)
    if _is_begun(folder, before, options_digest, tasks):
        emit(Event(kind="note", stage="bundle", text="continuing with the locks of this unfinished bundle"))
        solved = [_read_begun(folder, task) for task in tasks]
    else:
        solved = [solve_lock(task, emit) for task in tasks]
    locks = [_for_bundle(task, lock, options_digest) for task, lock in zip(tasks, solved, strict=True)]
    for host in fleet.unserved:
        emit(Event(kind="warning", stage="bundle", text=_describe(host)))
    return LocksForBundle(tuple(locks), fleet.unserved)


def _is_begun(folder: Path, before: Bundle | None, options_digest: str, tasks: Sequence[PlanTask]) -> bool:
    """Return whether an interrupted bundle has a lock for each of these plans."""
    names = {task.path.name for task in tasks}
    return before is not None and is_begun(folder, before, options_digest) and names == set(locks_of(before))


def _read_begun(folder: Path, task: PlanTask) -> Lock:
    """Return the lock that an interrupted bundle has for a plan. Raises LockError."""
    return read_lock(folder / task.path.name, task.choices, task.context.target.platform)


def _for_bundle(task: PlanTask, lock: Lock, options_digest: str) -> LockForBundle:
    choices = dataclasses.replace(task.choices, planned=task.context.target)
    return LockForBundle(
        lock=lock, sources=task.context.sources, profiles=task.context.profiles, choices=choices, options_digest=options_digest,
        virtual=virtual_packages(task.context), file=task.path.name,
    )  # fmt: skip


def _describe(host: UnservedHosts) -> str:
    return f"no plan for {host.host or ', '.join(host.classes)}: {host.reason}"
