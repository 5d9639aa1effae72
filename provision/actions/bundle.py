"""`gpuenv bundle`: collect everything that machines without a network need in one folder."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import shlex
from pathlib import Path

from ..bundle import README, assert_writable, is_whole, list_locks, read_existing, refuse_edited
from ..bundle.packages import BundledLock
from ..bundle.writer import BundleWriter, preview
from ..config import rows
from ..config.env import locate_project_file, note_project
from ..config.grants import read_user_grants
from ..config.options import (
    NOT_SHARED,
    Choices,
    apply_single_target,
    declare_plans,
    declare_targets,
    make_absolute,
)
from ..config.project import apply_project, as_plain_options
from ..config.sources import read_sources
from ..config.target import read_target
from ..environment import place
from ..errors import UsageError
from ..lock.accept import read_lock
from ..lock.fleet import plan_locks
from ..lock.formats import check_choices, find_lock_manager, get_format
from ..lock.project import read_or_solve_lock
from ..lock.request import make_request
from ..model import (
    Bundle,
    Emit,
    Event,
    Fleet,
    Plan,
    Preview,
    UnservedHosts,
    as_plain,
    drop_event,
    make_lock_name,
)
from ..model.declare import argument, dry_run_option, force_option, group, option
from ..model.values import Value


class BundleOptions(Value):
    """The options of `bundle`."""

    folder: Path = argument(metavar="DIR", help="Folder of the bundle: a new one, or a bundle to continue.")
    lock: Path | None = option(None, help="Bundle this lock file, without solving again.")
    dry_run: bool = dry_run_option()
    force: bool = force_option()
    allow_md5: bool = option(False, help="conda: accept packages that have only an MD5 hash.")
    targets: list[Path] = declare_targets()
    plans: str | None = declare_plans()
    choices: Choices = group(Choices, without=NOT_SHARED)


def bundle(options: BundleOptions, emit: Emit = drop_event) -> Bundle | Plan | Fleet | Preview:
    """Create a bundle, continue an unfinished one, or update it. Return the plan if no build fits.

    For several targets the bundle has a lock for each of the fewest plans.
    """
    folder = make_absolute(options.folder)
    choices = apply_single_target(options.choices, options.targets, options.plans)
    if choices is None and options.lock:
        raise UsageError(
            "--lock is the lock of one target, and --target names several",
            hint="leave --lock out, or give one --target",
        )
    note_project(emit)
    before = read_existing(folder)
    with contextlib.nullcontext() if options.dry_run else place.lock_place(folder, emit):
        if not options.dry_run:
            before = read_existing(folder)
            assert_writable(folder)
            if before and not options.force:
                refuse_edited(folder, before)
        unserved: tuple[UnservedHosts, ...] = ()
        if choices is None:
            locks, fleet = _lock_fleet(folder, before, options, emit)
            if not locks:
                return fleet
            unserved = fleet.unserved
        else:
            locked = _lock_one(folder, before, choices, options, emit)
            if isinstance(locked, Plan):
                return locked
            locks = [locked]
        if other := [p for one in locks if not (p := one.plan.platform).startswith("linux")]:
            raise UsageError(
                f"a bundle is installed by gpuenv, which runs on Linux, but the lock is for {other[0]}",
                hint="lock for Linux: --platform linux-x86_64",
            )
        if options.dry_run:
            return preview(folder, locks)
        writer = BundleWriter(folder, before, locks, emit, unserved)
        manifest = writer.write()
    shown = folder.relative_to(Path.cwd()) if folder.is_relative_to(Path.cwd()) else folder
    step = f"gpuenv create ENV --bundle {shlex.quote(str(shown))}  # on the target; {shown}/{README} describes how to install gpuenv there"
    emit(Event("next", "bundle", step))
    return manifest


# Options that name neither a target nor a build.
_BESIDE = (
    "profiles", "cache_dir", "find_links", "offline", "manager", "no_build", "only_binary", "exclude_newer",
    "exclude_newer_except",
)  # fmt: skip


def _lock_one(
    folder: Path, before: Bundle | None, choices: Choices, options: BundleOptions, emit: Emit
) -> BundledLock | Plan:
    """Return the lock for a bundle of one target, or the plan without builds if no build fits.

    The lock is that of --lock, or of this folder where nothing else is asked for. An interrupted bundle whose lock was
    solved continues with it. Raises LockError, UsageError.
    """
    lock_file = options.lock
    plain = dataclasses.replace(Choices(), **{name: getattr(choices, name) for name in _BESIDE})
    if lock_file is None and choices == plain and locate_project_file() is None:
        here = Path.cwd() / make_lock_name(choices.manager)
        lock_file = here if here.exists() else None
    options_digest = _digest_options(choices, str(lock_file))
    # A lock that is a file is read again: it may have changed.
    begun = before if lock_file is None and _can_continue(folder, before, options_digest) else None
    read_user_grants(choices)
    if not lock_file:
        choices = apply_project(choices)
    check_choices(choices)
    path = folder / begun.lock if begun else lock_file
    if path is None:
        get_format(choices.manager).require()
        context = make_request(choices, emit)
        plan, solved = read_or_solve_lock(context, choices, emit, allow_md5=options.allow_md5)
        if solved is None:
            return plan
        return BundledLock(
            folder, dataclasses.replace(solved, plan=plan), context.sources, context.profiles,
            choices, options_digest, emit,
        )  # fmt: skip
    words = "continuing with the lock of this unfinished bundle" if begun else f"the lock {path}"
    emit(Event("note", "bundle", words))
    of_lock = dataclasses.replace(choices, manager=find_lock_manager(path, choices.manager))
    platform = read_target(choices.target).platform if choices.target else None
    lock = read_lock(path, of_lock, platform)
    get_format(of_lock.manager).check_hashes(lock, str(path), allow_md5=options.allow_md5)
    return BundledLock(folder, lock, read_sources(choices), rows.load(choices), choices, options_digest, emit)


def _digest_options(choices: Choices, more: object) -> str:
    """Return a digest of the options of a bundle, and of its lock file or hosts."""
    plain = as_plain_options(dataclasses.replace(choices, cache_dir=None, offline=False))
    text = json.dumps([plain, more], default=str, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _can_continue(folder: Path, before: Bundle | None, options_digest: str) -> bool:
    """Return whether an interrupted bundle has the same options and complete locks."""
    if before is None or before.complete or before.asked != options_digest:
        return False
    files = {f.path: f for f in before.files}
    return all(name in files and is_whole(folder, files[name]) for name in list_locks(before))


def _lock_fleet(
    folder: Path, before: Bundle | None, options: BundleOptions, emit: Emit
) -> tuple[list[BundledLock], Fleet]:
    """Return the locks of the fewest plans, and the fleet. An interrupted bundle for the same hosts keeps its locks.

    Raises UsageError, LockError, ResolveError.
    """
    fleet, locker, tasks = plan_locks(
        options.targets, options.choices, emit, upgrade=False, plans=options.plans
    )
    if not tasks:
        return [], fleet
    hosts = [as_plain(one) for one in (*fleet.classes, *fleet.unserved)]
    own = locker.choices
    options_digest = _digest_options(own, hosts)
    names = {locker.path(classes).name for _, classes in tasks}
    begun = (
        before is not None
        and _can_continue(folder, before, options_digest)
        and names == {*list_locks(before)}
    )
    if begun:
        emit(Event("note", "bundle", "continuing with the locks of this unfinished bundle"))
    locks = []
    for context, classes in tasks:
        file = locker.path(classes).name
        lock = (
            read_lock(folder / file, own, context.target.platform) if begun else locker.lock(context, classes)
        )
        elsewhere = dataclasses.replace(own, planned=context.target)
        locks.append(
            BundledLock(
                folder, lock, context.sources, context.profiles, elsewhere, options_digest, emit, file
            )
        )  # fmt: skip
    for host in fleet.unserved:
        text = f"no plan for {host.host or ', '.join(host.classes)}: {host.reason}"
        emit(Event("warning", "bundle", text))
    return locks, fleet
