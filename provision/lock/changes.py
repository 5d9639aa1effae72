"""In what two locks differ, and what `--dry-run` says of it: packages with their sizes, and the disk."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import LockError
from ..model import Emit, Event, Lock, LockedPackage, format_bytes
from ..system.files import measure_free_space

if TYPE_CHECKING:
    from ..model import PackageChange, Preview


def list_changes(old: Lock | None, new: Lock) -> tuple[PackageChange, ...]:
    """Return the packages in which two locks differ, sorted by name."""
    from ..model import PackageChange

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
    from ..model import Preview

    changes = list_changes(old, new)
    return Preview(
        command=command, path=str(env), writes=tuple(map(str, writes)), packages=changes,
        download_bytes=sum(p.size or 0 for p in changes), free_bytes=measure_free_space(env),
    )  # fmt: skip


def emit_preview(emit: Emit, env: Path, old: Lock | None, lock: Lock) -> None:
    """Emit what `create` would install from a lock: each package with its size and index, or that nothing changes.

    `old` is the lock of the environment that would change, or None for a new one.
    """
    names = {c.name for c in list_changes(old, lock)}
    if old and not names:
        emit(Event("log", "build", f"would change nothing: {env} has these packages"))
        return
    packages = [p for p in lock.packages if p.name in names]
    total = sum(p.size or 0 for p in packages)
    verb = "change" if old else "rebuild" if env.exists() else "make"
    count = f"{len(names)} package{'' if len(names) == 1 else 's'}{' to change' if old else ''}"
    text = f"would {verb} {env}: {count}; up to {format_bytes(total)} to download, {format_bytes(measure_free_space(env))} free"
    emit(Event("log", "build", text))
    for package in packages:
        words = [
            f"{package.name} {package.version}",
            format_bytes(package.size) if package.size else "size unknown",
        ]
        words.append(f"from {package.index or package.url}")
        emit(Event("log", "build", f"  {', '.join(words)}"))
    for name in sorted(names - {p.name for p in packages}):
        emit(Event("log", "build", f"  {name}: removed"))


def _version(package: LockedPackage | None) -> str | None:
    return None if package is None else package.version or "(version in the package's source folder)"


def list_differences(lock: Lock, fresh: Lock) -> list[str]:
    """Return the packages in which two locks differ: "numpy: 1.26.4 -> 2.1.0"."""
    changes = list_changes(lock, fresh)
    return [f"{c.name}: {c.before or 'not locked'} -> {c.after or 'not needed'}" for c in changes]


def describe_changes(old: Lock, new: Lock) -> list[str]:
    """Return the changes of an environment: "numpy 1.26.4 -> 2.1.0", "+einops 0.8.1", "-scipy 1.17.0"."""
    return [
        f"{c.name} {c.before} -> {c.after}" if c.before and c.after else
        f"+{c.name} {c.after}" if c.after else f"-{c.name} {c.before}"
        for c in list_changes(old, new)
    ]  # fmt: skip


def refuse_differences(path: Path, lock: Lock, fresh: Lock, hint: str) -> None:
    """Raise LockError if the packages of a lock file differ from those of a new lock."""
    if drift := list_differences(lock, fresh):
        why = f"{len(drift)} package{'' if len(drift) == 1 else 's'} would change"
        raise LockError(f"{path} is out of date: {why}", log="\n".join(drift), hint=hint)
