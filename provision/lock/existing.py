"""The locks that a fleet has already: what a new one would take back, and what a change of the hosts breaks."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path

from .. import fleet
from ..config import rows
from ..config.options import Choices
from ..config.target import complete_driver
from ..errors import LockError, UsageError
from ..model import (
    VENV_CLASS_LOCKS,
    VENV_LOCK,
    Fleet,
    FleetHost,
    FleetLock,
    FleetLocks,
    FleetPlan,
    HostClass,
    Lock,
    Target,
    UnservedHosts,
    name_few,
)
from ..resolve.question import version
from ..wheels import pylock
from .accept import check_lock

_OF_THE_LOCKS = ("target", "driver_os", "gpu", "gpus", "platform")


def read_fleet_locks(folder: Path) -> list[tuple[Path, Lock]]:
    """Return the locks of fleets in a folder, the one that was written last first. Other files are left out."""
    found = []
    for path in sorted(folder.glob(VENV_CLASS_LOCKS), key=lambda p: (-p.stat().st_mtime_ns, p.name)):
        try:
            lock = pylock.read(path)
        except LockError:
            continue  # another tool's or damaged: not a lock of this fleet
        if lock.classes:
            found.append((path, lock))
    return found


def without_plan(folder: Path, files: Sequence[Path]) -> Iterator[str]:
    """Yield a warning for each lock of a fleet that no current plan uses."""
    names = {file.name for file in files}
    for path, lock in sorted(read_fleet_locks(folder), key=lambda found: found[0]):
        if path.name not in names:
            hosts = name_few([h for one in lock.classes for h in one.hosts])
            yield f"{path.name} is a lock that belongs to no current plan (hosts {hosts}). Remove it, or include its hosts"


def refuse_downgrades(folder: Path, new: Iterable[Lock], named: Collection[str]) -> None:
    """Raise LockError if a host's framework or named package would be older than in the lock that it has."""
    had: dict[str, Lock] = {}
    for _, lock in reversed(read_fleet_locks(folder)):
        had |= {host: lock for one in lock.classes for host in one.hosts}
    back: dict[str, list[str]] = {}
    for lock in new:
        versions = _versions(lock, named)
        for host in (h for one in lock.classes for h in one.hosts if h in had):
            for name, old in _versions(had[host], named).items():
                if (now := versions.get(name)) and version(now) < version(old):
                    back.setdefault(f"{name} {old} to {now}", []).append(host)
    if back:
        parts = [f"{change} on {len(hosts):,} ({name_few(hosts)})" for change, hosts in back.items()]
        raise LockError(
            f"hosts would go back: {'; '.join(parts)}. No lock was written",
            hint="--plans best or --plans N gives hosts that hold others back a plan of their own; --allow-downgrade permits it",
        )


def _versions(lock: Lock, named: Collection[str]) -> dict[str, str]:
    """Return the versions of the frameworks and of the named packages of a lock."""
    packages = {p.name: p.version for p in lock.packages if p.name in named and p.version}
    return packages | {b.framework: b.version for b in lock.plan.builds}


def check_locks(folder: Path, targets: Sequence[Path], choices: Choices) -> FleetLocks:
    """Return which locks of a folder still work with another driver or glibc, and the hosts that need a new one.

    A host with several locks has the one that was written last. Raises UsageError.
    """
    for name in _OF_THE_LOCKS:
        if targets or getattr(choices, name):
            raise UsageError(
                f"--{name.replace('_', '-')}: --locks takes it from the locks", hint="leave it out"
            )
    locks = read_fleet_locks(folder)
    if (path := folder / VENV_LOCK).exists():
        lock = pylock.read(path)
        alone = FleetHost(name=path.name, target=lock.target, device=lock.plan.device)
        locks.append((path, dataclasses.replace(lock, classes=fleet.group([alone]))))
    if not locks:
        raise UsageError(
            f"--locks {folder}: the folder has no pylock.toml of gpuenv",
            hint="write them with gpuenv lock. Locks of conda are not checked",
        )
    data, seen, ids = rows.load(choices), set[str](), set[str]()
    current: list[tuple[Path, Lock, list[HostClass]]] = []
    for path, lock in locks:
        kinds = []
        for one in lock.classes:
            hosts = tuple(h for h in one.hosts if h not in seen)
            name = f"{one.id}-{len(ids)}" if one.id in ids else one.id
            target = complete_driver(_changed(one.target, choices), data)
            kinds += [HostClass(id=name, target=target, device=one.device, hosts=hosts)] if hosts else []
            ids.add(name)
            seen.update(hosts)
        current.append((path, lock, kinds))
    plans: list[FleetPlan] = []
    files: list[FleetLock] = []
    unserved: list[UnservedHosts] = []
    current.sort(key=lambda row: -_count(row[2]))
    for path, lock, kinds in current:
        working = []
        for kind in kinds:
            try:
                check_lock(lock, choices, kind.target, None)
            except LockError as error:
                reason = f"{path.name}: {error.message.replace('this machine', 'these hosts')}"
                hint = "lock for them again: gpuenv lock --target"
                unserved.append(
                    UnservedHosts(hosts=len(kind.hosts), classes=(kind.id,), reason=reason, hint=hint)
                )
            else:
                working.append(kind)
        if working:
            files.append(FleetLock(file=str(path), plan=len(plans), lock=lock))
            plans.append(
                FleetPlan(plan=lock.plan, classes=tuple(k.id for k in working), hosts=_count(working))
            )
    classes = [kind for _, _, kinds in current for kind in kinds]
    found = Fleet(classes=tuple(classes), plans=tuple(plans), unserved=tuple(unserved), at_least=len(plans))
    return FleetLocks(fleet=found, locks=tuple(files))


def _count(classes: Iterable[HostClass]) -> int:
    return sum(len(c.hosts) for c in classes)


def _changed(target: Target, choices: Choices) -> Target:
    """Return the target with the driver and the glibc of the options, where it has one."""
    if choices.driver and target.driver:
        target = dataclasses.replace(target, driver=choices.driver, driver_cuda=None, driver_branch=None)
    if choices.glibc and target.glibc:
        target = dataclasses.replace(target, glibc=choices.glibc)
    return target
