"""`gpuenv bundle`: collect everything that machines without a network need in one folder."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .. import bundle as stage
from ..bundle import is_whole, locks_of
from ..bundle.packages import LockForBundle
from ..bundle.writer import BundleWriter
from ..config import options as where, project as inproject, rows
from ..config.env import note_project
from ..config.grants import read_user_grants
from ..config.options import NOT_SHARED, Choices, apply_single_target, declare_targets
from ..config.project import locate_project_file
from ..config.sources import read_sources
from ..config.target import read_target
from ..environment import place
from ..errors import UsageError
from ..lock.accept import read_lock, virtual_packages
from ..lock.context import get_locking, judge_request
from ..lock.fleet import PlanTask, plan_locks, solve_lock
from ..lock.project import solve_or_read_lock
from ..lock.update import Upgrade
from ..model import (
    Bundle,
    Emit,
    Event,
    Fleet,
    Lock,
    Plan,
    Preview,
    UnservedHosts,
    as_plain,
    drop_event,
    find_lock_manager,
    make_lock_name,
)
from ..model.declare import argument, group, option


@dataclass(frozen=True, kw_only=True)
class BundleOptions:
    """The options of `bundle`."""

    folder: Path = argument(metavar="DIR", help="Folder of the bundle: a new one, or a bundle to continue.")
    lock: Path | None = option(None, help="Bundle this lock file, without solving again.")
    dry_run: bool = option(False, help="Show what would be done, without changes.")
    force: bool = option(False, help="Replace files that gpuenv did not write or that were edited.")
    allow_md5: bool = option(False, help="conda: accept packages that have only an MD5 hash.")
    targets: list[Path] = declare_targets()
    choices: Choices = group(Choices, without=NOT_SHARED)


def bundle(options: BundleOptions, emit: Emit = drop_event) -> Bundle | Plan | Fleet | Preview:
    """Create a bundle, continue an unfinished one, or update it. Return the plan if no build fits.

    For several targets the bundle has a lock for each of the fewest plans.
    """
    folder = where.make_absolute(options.folder)
    note_project(emit)
    if options.dry_run:
        from ..bundle.writer import preview

        locks = _find_locks(options, folder, stage.claim(folder), emit)
        return preview(folder, locks.locks, emit) if isinstance(locks, LocksForBundle) else locks
    stage.claim(folder)
    with place.lock_place(folder, emit):
        before = stage.claim(folder)
        stage.assert_writable(folder)
        if before and not options.force:
            stage.refuse_edited(folder, before)
        locks = _find_locks(options, folder, before, emit)
        if not isinstance(locks, LocksForBundle):
            return locks
        writer = BundleWriter(folder, before, locks.locks, emit, locks.unserved)
        with place.describe_when_interrupted(writer.remains):
            manifest = writer.write()
    shown = folder.relative_to(Path.cwd()) if folder.is_relative_to(Path.cwd()) else folder
    step = f"gpuenv create ENV --bundle {shown}  # on the target; {shown}/{stage.README} describes how to install gpuenv there"
    emit(Event(kind="next", stage="bundle", text=step))
    return manifest


def _find_locks(
    options: BundleOptions, folder: Path, before: Bundle | None, emit: Emit
) -> LocksForBundle | Plan | Fleet:
    """Return the lock of the one target, or those of several. Raises UsageError, LockError."""
    choices = apply_single_target(options.choices, options.targets)
    if choices is None:
        if options.lock:
            raise UsageError(
                "--lock is the lock of one target, and --target names several",
                hint="leave --lock out, or give one --target",
            )
        return find_locks(folder, before, options.targets, options.choices, emit)
    locked = find_lock(emit, folder, before, choices, options.lock, allow_md5=options.allow_md5)
    return locked if isinstance(locked, Plan) else LocksForBundle((locked,))


# Options that name neither a target nor a build.
_BESIDE = (
    "profiles", "cache_dir", "find_links", "offline", "manager", "no_build", "only_binary", "exclude_newer",
    "exclude_newer_except",
)  # fmt: skip


# Six parameters: where the bundle is and was, what the user asked for, and how to report.
def find_lock(
    emit: Emit,
    folder: Path,
    before: Bundle | None,
    choices: Choices,
    lock_file: Path | None,
    *,
    allow_md5: bool,
) -> LockForBundle | Plan:
    """Return the lock for a bundle, or the plan without builds if no build fits.

    The lock is that of `lock_file` if it is named. An interrupted bundle with the same options continues with
    its lock. Raises LockError, UsageError.
    """
    options_digest = digest_options(choices, str(lock_file))
    begun = before if is_begun(folder, before, options_digest) else None
    if lock_file is None and begun is None and _bare(choices):
        lock_file = _here(choices)
    read_user_grants(choices)
    choices = choices if lock_file else inproject.apply_project(choices)
    path = folder / begun.lock if begun else lock_file
    if path is None:
        return _fresh(emit, choices, options_digest, allow_md5=allow_md5)
    words = "continuing with the lock of this unfinished bundle" if begun else f"the lock {path}"
    emit(Event(kind="note", stage="bundle", text=words))
    of_lock = dataclasses.replace(choices, manager=find_lock_manager(path, choices.manager))
    platform = read_target(choices.target).platform if choices.target else None
    lock = read_lock(path, of_lock, platform)
    get_locking(of_lock).check_hashes(lock, str(path), allow_md5=allow_md5)
    data = rows.load_all(choices)
    return LockForBundle(
        lock=lock,
        sources=read_sources(choices),
        profiles=data,
        choices=choices,
        options_digest=options_digest,
    )


def _fresh(emit: Emit, choices: Choices, options_digest: str, *, allow_md5: bool) -> LockForBundle | Plan:
    """Return the project's own lock, or a new one."""
    get_locking(choices).require()
    context = judge_request(choices, emit)
    plan, lock = solve_or_read_lock(context, choices, emit, allow_md5=allow_md5)
    if lock is None:
        return plan
    return LockForBundle(
        lock=dataclasses.replace(lock, plan=plan), sources=context.sources, profiles=context.profiles,
        choices=choices, options_digest=options_digest, virtual=virtual_packages(context),
    )  # fmt: skip


def digest_options(choices: Choices, more: object) -> str:
    """Return a digest of the options of a bundle, and of its lock file or hosts."""
    plain = inproject.as_plain_options(dataclasses.replace(choices, cache_dir=None, offline=False))
    text = json.dumps([plain, more], default=str, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def is_begun(folder: Path, before: Bundle | None, options_digest: str) -> bool:
    """Return whether an interrupted bundle has the same options and complete locks."""
    if before is None or before.complete or before.asked != options_digest:
        return False
    files = {f.path: f for f in before.files}
    return all(name in files and is_whole(folder, files[name]) for name in locks_of(before))


def _bare(choices: Choices) -> bool:
    """Return whether no option names a target or a build."""
    return choices == dataclasses.replace(Choices(), **{name: getattr(choices, name) for name in _BESIDE})


def _here(choices: Choices) -> Path | None:
    """Return the lock in the current folder if there is no project file."""
    path = Path.cwd() / make_lock_name(choices.manager)
    return path if path.exists() and locate_project_file() is None else None


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
