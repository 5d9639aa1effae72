"""The locks that a fleet has already: what a new one would take back, and what a change of the hosts breaks."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path

from ..config import rows
from ..config.options import Choices
from ..config.target import complete
from ..errors import LockError, UsageError
from ..fleet.classes import count_hosts, group_hosts
from ..model import (
    LOCK_NAMES,
    VENV_CLASS_LOCKS,
    Fleet,
    FleetHost,
    FleetLock,
    FleetLocks,
    FleetPlan,
    HostClass,
    Lock,
    Target,
    UnservedHosts,
    find_lock_target,
    name_few,
)
from ..system.versions import version
from ..wheels import pylock
from .accept import check_lock
from .formats import find_lock_manager, get_format

_OF_THE_LOCKS = ("target", "driver_os", "gpu", "gpus", "platform")


def read_fleet_locks(folder: Path) -> list[tuple[Path, Lock]]:
    """Return the locks of fleets in a folder. Other files are left out."""
    found = []
    for path in sorted(folder.glob(VENV_CLASS_LOCKS)):
        try:
            lock = pylock.read(path)
        except LockError:
            continue  # another tool's or damaged: not a lock of this fleet
        if lock.classes:
            found.append((path, lock))
    return found


def warn_of_unused(folder: Path, files: Sequence[Path]) -> Iterator[str]:
    """Yield a warning for each lock of a fleet that no current plan uses."""
    names = {file.name for file in files}
    for path, lock in read_fleet_locks(folder):
        if path.name not in names:
            hosts = name_few([h for one in lock.classes for h in one.hosts])
            yield f"{path.name} is a lock that belongs to no current plan (hosts {hosts}). Remove it, or include its hosts"


def refuse_downgrades(folder: Path, new: Iterable[Lock], named: Collection[str]) -> None:
    """Raise LockError if a host's framework or named package would be older than in a lock that lists the host."""
    had: dict[str, list[tuple[str, dict[str, str]]]] = {}
    for path, lock in read_fleet_locks(folder):
        old = path.name, _versions(lock, named)
        for host in (h for one in lock.classes for h in one.hosts):
            had.setdefault(host, []).append(old)
    back: dict[str, list[str]] = {}
    for lock in new:
        versions = _versions(lock, named)
        for host in (h for one in lock.classes for h in one.hosts):
            for file, before in had.get(host, ()):
                for name in before.keys() & versions:
                    if version(versions[name]) < version(before[name]):
                        change = f"{name} {before[name]} ({file}) to {versions[name]}"
                        back.setdefault(change, []).append(host)
    if back:
        parts = [f"{change} on {len(hosts):,} ({name_few(hosts)})" for change, hosts in sorted(back.items())]
        raise LockError(
            f"hosts would go back: {'; '.join(parts)}. No lock was written",
            hint="--plans best or --plans N gives hosts that hold others back a plan of their own; --allow-downgrade permits it. "
            "Remove a lock that its hosts no longer have",
        )


def _versions(lock: Lock, named: Collection[str]) -> dict[str, str]:
    """Return the versions of the frameworks and of the named packages of a lock."""
    packages = {p.name: p.version for p in lock.packages if p.name in named and p.version}
    return packages | {b.framework: b.version for b in lock.plan.builds}


def check_locks(folder: Path, targets: Sequence[Path], choices: Choices) -> FleetLocks:
    """Return which locks of a folder still work with another driver or glibc, and the hosts that need a new one.

    A lock that lists no hosts counts as one. Raises UsageError, LockError.
    """
    for name in _OF_THE_LOCKS:
        if targets or getattr(choices, name):
            raise UsageError(
                f"--{name.replace('_', '-')}: --locks takes it from the locks", hint="leave it out"
            )
    locks, left_out = _read_all(folder, choices)
    data, seen, ids = rows.load(choices), dict[str, str](), set[str]()
    current: list[tuple[Path, Lock, list[HostClass]]] = []
    for path, lock in locks:
        kinds = []
        alone = FleetHost(name=f"machine of {path.name}", target=lock.target, device=lock.plan.device)
        for one in lock.classes or group_hosts([alone]):
            for host in one.hosts:
                if seen.setdefault(host, path.name) != path.name:
                    raise LockError(
                        f"{host} is in two locks, {seen[host]} and {path.name}",
                        hint="remove the lock that its hosts no longer have",
                    )
            name = f"{one.id}-{len(ids)}" if one.id in ids else one.id
            target = complete(_apply_options(one, choices), data)
            kinds.append(dataclasses.replace(one, id=name, target=target))
            ids.add(name)
        current.append((path, lock, kinds))
    plans: list[FleetPlan] = []
    files: list[FleetLock] = []
    unserved: list[UnservedHosts] = []
    current.sort(key=lambda row: -count_hosts(row[2]))
    for path, lock, kinds in current:
        working = []
        for kind in kinds:
            try:
                check_lock(lock, choices, kind.target, None)
            except LockError as error:
                reason = f"{path.name}: {error.message.replace('this machine', 'these hosts')}"
                hint = (
                    "lock for them again, with the files of `gpuenv detect --json`: gpuenv lock --target"
                    if lock.classes
                    else error.hint
                )
                unserved.append(
                    UnservedHosts(hosts=len(kind.hosts), classes=(kind.id,), reason=reason, hint=hint)
                )
            else:
                working.append(kind)
        if working:
            files.append(FleetLock(file=str(path), plan=len(plans), lock=lock))
            plans.append(
                FleetPlan(plan=lock.plan, classes=tuple(k.id for k in working), hosts=count_hosts(working))
            )
    found = Fleet(
        classes=tuple(kind for _, _, kinds in current for kind in kinds), plans=tuple(plans),
        unserved=tuple(unserved), at_least=len(plans),
        notes=(*left_out, *_note_usable(files, choices)),
    )  # fmt: skip
    return FleetLocks(fleet=found, locks=tuple(files))


def _note_usable(files: Sequence[FleetLock], choices: Choices) -> Iterator[str]:
    """Yield which locks still work, and which of them no driver concerns."""
    if files:
        yield f"still usable: {name_few([Path(f.file).name for f in files])}"
    cpu = [Path(f.file).name for f in files if f.lock.plan.device == "cpu"]
    if cpu and choices.driver:
        yield f"needs no driver, because it is for the CPU: {name_few(cpu)}"


def _read_all(folder: Path, choices: Choices) -> tuple[list[tuple[Path, Lock]], list[str]]:
    """Return the locks of a folder, and a note for each file that is none. Raises LockError for a folder without one."""
    found: list[tuple[Path, Lock]] = []
    left_out = []
    for path in sorted(folder.glob("*")):
        if path.name not in LOCK_NAMES.values() and not find_lock_target(path.name):
            continue
        try:
            locks = get_format(find_lock_manager(path, "venv")).read_locks(path, choices)
        except LockError as error:
            left_out.append(f"not checked: {error.message}")
            continue
        found += [(path, lock) for lock in locks]
    if not found:
        raise UsageError(
            f"--locks {folder}: the folder has no lock of gpuenv ({', '.join(LOCK_NAMES.values())})",
            hint="write them with gpuenv lock",
        )
    return found, left_out


def _apply_options(one: HostClass, choices: Choices) -> Target:
    """Return the target of hosts with the driver and the glibc of the options."""
    target = one.target
    if choices.driver and one.device == "cuda":
        target = dataclasses.replace(target, driver=choices.driver, driver_cuda=None, driver_branch=None)
    if choices.glibc and target.platform.startswith("linux"):
        target = dataclasses.replace(target, glibc=choices.glibc)
    return target
