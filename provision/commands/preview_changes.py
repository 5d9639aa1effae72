"""Describe what `--dry-run` would change: packages with their sizes, and the disk."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from ..environment import draft_and_replace_folder
from ..model import Emit, Event, Lock, LockedPackage, PackageChange, Plan, Preview
from ..request import load_profiles
from ..request.shared_options import Choices
from ..wheels import pylock
from ..wheels.cache_and_disk import size


def read_lock_inside(env: Path) -> Lock | None:
    """Return the lock inside an environment, or None if gpuenv did not make it."""
    return (
        pylock.read_in(env / draft_and_replace_folder.MARK)
        if draft_and_replace_folder.made_by_gpuenv(env)
        else None
    )


def list_changes(old: Lock | None, new: Lock) -> tuple[PackageChange, ...]:
    """Return the packages in which two locks differ, sorted by name."""
    before = {p.name: p for p in old.packages} if old else {}
    after = {p.name: p for p in new.packages}
    return tuple(
        PackageChange(
            name=name, before=_version(before.get(name)), after=_version(after.get(name)),
            size=after[name].size if name in after else None,
        )
        for name in sorted({*before, *after})
        if _version(before.get(name)) != _version(after.get(name))
    )  # fmt: skip


def preview_lock(
    command: str, env: Path, old: Lock | None, new: Lock, writes: Sequence[Path] = ()
) -> Preview:
    """Return the changes that replace one lock of an environment by another."""
    changes = list_changes(old, new)
    return Preview(
        command=command, path=str(env), writes=tuple(map(str, writes)), packages=changes,
        download_bytes=sum(p.size or 0 for p in changes), free_bytes=measure_free_space(env),
    )  # fmt: skip


def foresee(emit: Emit, env: Path, plan: Plan, lock: Lock | None, choices: Choices) -> None:
    """Emit where `create` would build a plan, and the known download size."""
    if not plan.builds:
        return
    old = read_lock_inside(env)
    words = f"would {'change' if old else 'make'} {env}"
    if lock:
        count = len(list_changes(old, lock)) if old else len(lock.packages)
        words += f": {count} package{'' if count == 1 else 's'}{' to change' if old else ''}"
        total, of = sum(p.size or 0 for p in lock.packages), "up to "
    else:
        total, of = _wheels(plan, choices), "the wheels of the frameworks alone: "
    known = f"; {of}{size(total)} to download, {size(measure_free_space(env))} free" if total else ""
    emit(Event(kind="log", stage="build", text=words + known))


def _wheels(plan: Plan, choices: Choices) -> int:
    """Return the size in bytes of the planned builds' own wheels, as far as the profiles have it."""
    planned = {(b.framework, b.version, b.cuda, b.index, plan.platform) for b in plan.builds}
    known = {
        (b.framework, b.version, b.cuda, b.index, b.platform): int(b.bytes)
        for b in load_profiles.load_all(choices).builds if b.bytes
    }  # fmt: skip
    return sum(known.get(one, 0) for one in planned)


def measure_free_space(path: Path) -> int:
    """Return the free bytes of the disk of a path. The path need not exist."""
    while not path.exists():
        path = path.parent
    return shutil.disk_usage(path).free


def _version(package: LockedPackage | None) -> str | None:
    return None if package is None else package.version or "(version in the package's source folder)"
