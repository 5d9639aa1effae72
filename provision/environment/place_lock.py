"""Locks the folder of an environment against other gpuenv processes of any user.

The lock is a file beside the folder, because all processes share its parent. The kernel unlocks it when the process
ends. It is removed at the end, and a file of a killed run locks nothing. If the parent is not writable, the
environment's folder itself is locked. For other hosts the file names its process (`claim_across_hosts.py`).

filelock's lock truncates the file and needs write permission, which fails for a file of another user. Its soft lock
is used on file systems without locks.
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
from . import claim_across_hosts

_NO_LOCKS = (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK, errno.EBADF)
_FORBIDDEN = (errno.EACCES, errno.EPERM, errno.EROFS)
_FULL = (errno.ENOSPC, errno.EDQUOT)
_TRIES = 100  # many more than the runs that create and remove the file at the same time
_HINT = "wait for it to end, then run the command again"


class BusyError(Exception):
    """Another process has the lock."""


class InUseError(BuildError):
    """The error for the user: another process has the lock."""


def lock_file(place: Path) -> Path:
    """Return the path of the lock's file, beside the folder."""
    return place.with_name(f".{place.name}.gpuenv-lock")


@contextlib.contextmanager
def locked(place: Path) -> Iterator[list[str]]:
    """Lock a folder (absolute, without links) within the block, and yield notes for the user.

    Raises InUseError if another process has locked it, and OSError if it cannot be locked.
    """
    notes: list[str] = []
    try:
        with contextlib.ExitStack() as stack:
            stack.enter_context(_make_parents(place.parent))
            refused = _lock_beside(place, stack, notes)
            if not _lock_itself(place, stack) and refused:
                raise refused
            yield notes
    except BusyError as error:
        raise InUseError(f"another gpuenv process is using {place}", hint=_HINT) from error
    except claim_across_hosts.ClaimedError as error:
        raise InUseError(
            f"another gpuenv process is using {place}: {error.claim.words}",
            hint=f"{_HINT}. If that host is no longer available, the lock expires after {claim_across_hosts.STALE:g} s without activity",
        ) from error


def assert_held(place: Path) -> None:
    """Raise BuildError if another host took the lock over because this process was stopped for too long."""
    if claim := claim_across_hosts.read_takeover(lock_file(place)):
        raise BuildError(
            f"this process was paused, and another process took over the lock on {place}: {claim.words}",
            hint="run the command again",
        )


@contextlib.contextmanager
def _make_parents(folder: Path) -> Iterator[None]:
    """Create missing folders, and remove those that are still empty at the end."""
    missing = [f for f in (folder, *folder.parents) if not f.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):  # not empty, or another run's
            for created in missing:
                created.rmdir()


def _lock_beside(place: Path, stack: contextlib.ExitStack, notes: list[str]) -> OSError | None:
    """Lock the file beside the folder. Return the error if it may not be created.

    Raises BusyError, ClaimedError and OSError.
    """
    path, tries = lock_file(place), 0
    while True:
        try:
            opened = _open(path)
        except FileNotFoundError:  # its run removed it, perhaps with the folder
            tries += 1
            if tries > _TRIES:  # /proc and similar: the folder exists, and no file can be created in it
                return OSError(errno.EACCES, os.strerror(errno.EACCES), str(path))
            path.parent.mkdir(parents=True, exist_ok=True)
            continue
        except OSError as error:
            if error.errno in _FORBIDDEN:
                return error
            raise
        with contextlib.ExitStack() as on_exit:
            on_exit.callback(os.close, opened.descriptor)
            has_locks = _has_locked(opened.descriptor)
            if not _is_still(opened.descriptor, path):
                continue  # its run removed it meanwhile: another run may have created and locked a new file
            void = _claim(opened, path, on_exit, has_locks=has_locks)
            if not _is_still(opened.descriptor, path):
                continue
            if void:
                notes.append(
                    f"taking over the lock on {place}, inactive for {claim_across_hosts.STALE:g} s: {void.words}"
                )
            if not has_locks:
                _lock_softly(path, stack, void=void is not None)
            stack.push(on_exit.pop_all())
            return None


def _has_locked(descriptor: int) -> bool:
    """Lock an open file. Return False on a file system without locks. Raises BusyError and OSError."""
    try:
        _lock(descriptor)
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        return False
    return True


def _claim(
    opened: _Opened, path: Path, on_exit: contextlib.ExitStack, *, has_locks: bool
) -> claim_across_hosts.Claim | None:
    """Claim the folder for this host until the end. Return the claim that was void. Raises ClaimedError."""
    void = None
    if not opened.is_writable:
        on_exit.callback(_remove, path)
        return None  # another user's file, or a full disk that a removal is to free: this kernel's lock must be enough
    if opened.is_new:
        claim = claim_across_hosts.read(opened.descriptor)
        if claim and not claim.is_of_this_process:
            raise claim_across_hosts.ClaimedError(claim)
    else:
        try:
            void = claim_across_hosts.take(opened.descriptor, path, has_locks=has_locks)
        except OSError as error:
            if error.errno not in _FULL:
                raise
            on_exit.callback(_remove, path)
            return None
    on_exit.callback(_remove_own, path)
    on_exit.enter_context(claim_across_hosts.keep_alive(opened.descriptor))
    return void


def _lock_itself(place: Path, stack: contextlib.ExitStack) -> bool:
    """Lock the environment's folder, for users who can write only there. Raises BusyError.

    Returns False if it does not exist, or on a file system without such locks.
    """
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
    """Open or create the lock's file. Raises OSError, and BuildError if something else has its name."""
    flags = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        descriptor = os.open(path, flags | os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
    except FileExistsError:
        return _open_existing(path, flags)
    try:
        os.fchmod(descriptor, 0o644)  # independent of the umask, as other users lock it too
        claim_across_hosts.write(descriptor)
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
        except PermissionError:  # another user's: read permission is enough to lock it, except on NFS
            descriptor, writable = os.open(path, flags | os.O_RDONLY), False
    except FileNotFoundError:
        raise
    except OSError as error:
        raise _explain_unlockable(path, error.strerror or str(error)) from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise _explain_unlockable(path, "it is not a file")
    return _Opened(descriptor, is_writable=writable)


def _explain_unlockable(path: Path, why: str) -> BuildError:
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
    """Lock by the existence of a file, on a file system without locks. Older versions look for it.

    A file whose process has a `void` claim is removed first. Raises BusyError and OSError.
    """
    from filelock import SoftFileLock, Timeout

    soft = path.with_name(f"{path.name}.soft")
    if void:
        soft.unlink(missing_ok=True)
    try:
        stack.enter_context(SoftFileLock(soft, timeout=0))
    except Timeout as error:
        raise BusyError from error


def _is_still(descriptor: int, path: Path) -> bool:
    """Return whether a path still leads to an open file."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.lstat())
    except FileNotFoundError:
        return False


def _remove_own(path: Path) -> None:
    """Remove the lock's file, unless another host has taken it over."""
    if claim_across_hosts.read_takeover(path) is None:
        _remove(path)


def _remove(path: Path) -> None:
    """Remove the lock's file while it is locked. Another user's file stays in a folder such as /tmp."""
    with contextlib.suppress(OSError):
        path.unlink()
