"""The lock on a place: one gpuenv works on it, whatever the others' cache folder or user.

The lock is a file beside the place, since that folder is what all of them share. The kernel frees it when the
process ends, however it ends. It is removed at the end; a file that a killed run left locks nothing. Where nothing
may be written beside the place, the environment's own folder is locked. For other hosts the file says who holds it
(`host_claim.py`). filelock's lock truncates the file and needs
the right to write to it, which is wrong for a file of another user; its soft lock serves where the file system has
no locks.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ..errors import BuildError
from . import host_claim

_NO_LOCKS = (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK, errno.EBADF)
_FORBIDDEN = (errno.EACCES, errno.EPERM, errno.EROFS)
_FULL = (errno.ENOSPC, errno.EDQUOT)
_TRIES = 100  # runs that make and remove the file at the same time are far fewer
_HINT = "wait for it to end, then run the command again"


class BusyError(Exception):
    """Another process has the lock."""


def lock_file(place: Path) -> Path:
    """The lock's file, beside the place."""
    return place.with_name(f".{place.name}.gpuenv-lock")


@contextlib.contextmanager
def locked(place: Path) -> Iterator[list[str]]:
    """Lock a place (absolute, without links), and give what there is to say about it. Raises BuildError where it is
    locked, OSError where it cannot be."""
    notes: list[str] = []
    try:
        with contextlib.ExitStack() as held:
            held.enter_context(_parents(place.parent))
            refused = _lock_beside(place, held, notes)
            if not _lock_itself(place, held) and refused:
                raise refused
            yield notes
    except BusyError as error:
        raise BuildError(f"another gpuenv process is using {place}", hint=_HINT) from error
    except host_claim.ClaimedError as error:
        raise BuildError(
            f"another gpuenv process is using {place}: {error.claim.words}",
            hint=f"{_HINT}. If that host is no longer available, the lock expires after {host_claim.STALE:g} s without activity",
        ) from error


def assert_held(place: Path) -> None:
    """Raise BuildError where another host took the lock over, because this process was stopped for long."""
    if claim := host_claim.taken_from_me(lock_file(place)):
        raise BuildError(
            f"this process was paused, and another process took over the lock on {place}: {claim.words}",
            hint="run the command again",
        )


@contextlib.contextmanager
def _parents(folder: Path) -> Iterator[None]:
    """Make the folders that are missing; those that are still empty at the end are removed."""
    missing = [f for f in (folder, *folder.parents) if not f.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):  # not empty, or another run's
            for made in missing:
                made.rmdir()


def _lock_beside(place: Path, stack: contextlib.ExitStack, notes: list[str]) -> OSError | None:
    """Lock the file beside the place; return the error where it may not be made. Raises BusyError, ClaimedError and
    OSError."""
    path, tries = lock_file(place), 0
    while True:
        try:
            opened = _open(path)
        except FileNotFoundError:  # the run that had it removed it, perhaps with the folder
            tries += 1
            if tries > _TRIES:  # /proc and the like: the folder is there, and no file can be made in it
                return OSError(errno.EACCES, os.strerror(errno.EACCES), str(path))
            path.parent.mkdir(parents=True, exist_ok=True)
            continue
        except OSError as error:
            if error.errno in _FORBIDDEN:
                return error
            raise
        with contextlib.ExitStack() as own:
            own.callback(os.close, opened.descriptor)
            has_locks = _has_locked(opened.descriptor)
            if not _is_still(opened.descriptor, path):
                continue  # its run removed it in between: another one may have made and locked a new file
            void = _claim(opened, path, own, has_locks=has_locks)
            if not _is_still(opened.descriptor, path):
                continue
            if void:
                notes.append(
                    f"taking over the lock on {place}, inactive for {host_claim.STALE:g} s: {void.words}"
                )
            if not has_locks:
                _lock_softly(path, stack, void=void is not None)
            stack.push(own.pop_all())
            return None


def _has_locked(descriptor: int) -> bool:
    """Lock an open file; False where the file system has no locks. Raises BusyError and OSError."""
    try:
        _lock(descriptor)
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        return False
    return True


def _claim(
    opened: _Opened, path: Path, own: contextlib.ExitStack, *, has_locks: bool
) -> host_claim.Claim | None:
    """Claim the place before other hosts, until the end. Return the claim that was void. Raises ClaimedError."""
    void = None
    if not opened.is_writable:
        own.callback(_remove, path)
        return None  # another user's file, or a full disk, which a removal is to free: this kernel's lock has to do
    if opened.is_new:
        found = host_claim.read(opened.descriptor)
        if found and not found.is_mine:
            raise host_claim.ClaimedError(found)
    else:
        try:
            void = host_claim.take(opened.descriptor, path, has_locks=has_locks)
        except OSError as error:
            if error.errno not in _FULL:
                raise
            own.callback(_remove, path)
            return None
    own.callback(_remove_own, path)
    own.enter_context(host_claim.kept_alive(opened.descriptor))
    return void


def _lock_itself(place: Path, stack: contextlib.ExitStack) -> bool:
    """Lock the folder in the place, for those who may write in it and not beside it; False where there is none, or
    the file system has no such locks. Raises BusyError."""
    try:
        descriptor = os.open(place, os.O_RDONLY | os.O_DIRECTORY)
        stack.callback(os.close, descriptor)
        _lock(descriptor)
    except OSError:
        return False
    return True


@dataclass(frozen=True)
class _Opened:
    """The lock's file: whether this process made it, and whether it may write into it."""

    descriptor: int
    is_new: bool = False
    is_writable: bool = True


def _open(path: Path) -> _Opened:
    """Open the lock's file, and make it where it is missing. Raises OSError, and BuildError where something else
    has its name."""
    flags = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        descriptor = os.open(path, flags | os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
    except FileExistsError:
        return _open_existing(path, flags)
    try:
        os.fchmod(descriptor, 0o644)  # whatever the umask: other users lock it too
        host_claim.write(descriptor)
    except OSError as error:
        if error.errno in _FULL:
            return _Opened(descriptor, is_new=True, is_writable=False)
        os.close(descriptor)
        path.unlink(missing_ok=True)
        raise
    return _Opened(descriptor, is_new=True)


def _open_existing(path: Path, flags: int) -> _Opened:
    writable = True
    try:
        try:
            descriptor = os.open(path, flags | os.O_RDWR)
        except PermissionError:  # another user's: reading is enough to lock it, except on NFS
            descriptor, writable = os.open(path, flags | os.O_RDONLY), False
    except FileNotFoundError:
        raise
    except OSError as error:
        raise _unlockable(path, error.strerror or str(error)) from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise _unlockable(path, "it is not a file")
    return _Opened(descriptor, is_writable=writable)


def _unlockable(path: Path, why: str) -> BuildError:
    return BuildError(
        f"{path} cannot be locked: {why}", hint="if no gpuenv process is using the folder, remove this file"
    )


def _lock(descriptor: int) -> None:
    """Lock an open file. Raises BusyError and OSError."""
    import fcntl  # here, because Windows has none

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise BusyError from error


def _lock_softly(path: Path, stack: contextlib.ExitStack, *, void: bool) -> None:
    """Lock by the existence of a file, where the file system has no locks: older versions look for it. One whose
    holder's claim is `void` goes first. Raises BusyError and OSError."""
    from filelock import SoftFileLock, Timeout

    soft = path.with_name(f"{path.name}.soft")
    if void:
        soft.unlink(missing_ok=True)
    try:
        stack.enter_context(SoftFileLock(soft, timeout=0))
    except Timeout as error:
        raise BusyError from error


def _is_still(descriptor: int, path: Path) -> bool:
    """Whether a name is still that of an open file."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.lstat())
    except FileNotFoundError:
        return False


def _remove_own(path: Path) -> None:
    """Remove the lock's file, unless another host has taken it over."""
    if host_claim.taken_from_me(path) is None:
        _remove(path)


def _remove(path: Path) -> None:
    """Remove the lock's file, as long as it is locked. Another user's stays in a folder such as /tmp."""
    with contextlib.suppress(OSError):
        path.unlink()
