"""`gpuenv bundle`: collect everything that machines without a network need in one folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from .. import bundle as stage
from ..config import options as where
from ..config.env import note_project
from ..config.options import NOT_SHARED, Choices, apply_single_target, declare_targets
from ..environment import interrupted, place
from ..errors import UsageError
from ..model import Bundle, Emit, Event, Fleet, Plan, Preview, drop_event
from ..model.declare import argument, group, option
from . import bundle_lock, lock_fleet_for_bundle
from .bundle_writer import BundleWriter
from .lock_fleet_for_bundle import LocksForBundle


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
        from .bundle_preview import preview

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
        with interrupted.describe_by(writer.remains):
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
        return lock_fleet_for_bundle.find_locks(folder, before, options.targets, options.choices, emit)
    locked = bundle_lock.of(emit, folder, before, choices, options.lock, allow_md5=options.allow_md5)
    return locked if isinstance(locked, Plan) else LocksForBundle((locked,))
