"""The lock on a place: one gpuenv works on it, whatever the others' cache folder or user.

The lock is a file beside the place, since that folder is what all of them share. The kernel frees it when the
process ends, however it ends. It is removed at the end; a file that a killed run left locks nothing. Where nothing
may be written beside the place, the environment's own folder is locked. filelock's lock truncates the file and needs
the right to write to it, which is wrong for a file of another user; its soft lock serves where the file system has
no locks.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from ..errors import BuildError

_NO_LOCKS = (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK, errno.EBADF)
_FORBIDDEN = (errno.EACCES, errno.EPERM, errno.EROFS)
_TRIES = 100  # runs that make and remove the file at the same time are far fewer
_HINT = "wait for it to end, then run the command again"


class BusyError(Exception):
    """Another process has the lock."""


def lock_file(place: Path) -> Path:
    """The lock's file, beside the place."""
    return place.with_name(f".{place.name}.gpuenv-lock")


@contextlib.contextmanager
def locked(place: Path) -> Iterator[None]:
    """Lock a place (absolute, without links). Raises BuildError where it is locked, OSError where it cannot be."""
    try:
        with contextlib.ExitStack() as held:
            held.enter_context(_parents(place.parent))
            refused = _lock_beside(place, held)
            if not _lock_itself(place, held) and refused:
                raise refused
            yield
    except BusyError as error:
        raise BuildError(f"another gpuenv is at work on {place}", hint=_HINT) from error


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


def _lock_beside(place: Path, held: contextlib.ExitStack) -> OSError | None:
    """Lock the file beside the place; return the error where it may not be made. Raises BusyError and OSError."""
    path, tries = lock_file(place), 0
    while True:
        try:
            descriptor = _open(path)
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
        with contextlib.ExitStack() as opened:
            opened.callback(os.close, descriptor)
            try:
                _lock(descriptor)
            except OSError as error:
                if error.errno not in _NO_LOCKS:
                    raise
                _lock_softly(path, held)
                return None
            if not _is_still(descriptor, path):
                continue  # its run removed it in between: another one may have made and locked a new file
            held.push(opened.pop_all())
            held.callback(_remove, path)
            return None


def _lock_itself(place: Path, held: contextlib.ExitStack) -> bool:
    """Lock the folder in the place, for those who may write in it and not beside it; False where there is none, or
    the file system has no such locks. Raises BusyError."""
    try:
        descriptor = os.open(place, os.O_RDONLY | os.O_DIRECTORY)
        held.callback(os.close, descriptor)
        _lock(descriptor)
    except OSError:
        return False
    return True


def _open(path: Path) -> int:
    """Open the lock's file, and make it where it is missing. Raises OSError, and BuildError where something else
    has its name."""
    flags = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        descriptor = os.open(path, flags | os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
    except FileExistsError:
        return _open_existing(path, flags)
    os.fchmod(descriptor, 0o644)  # whatever the umask: it is empty, and other users lock it too
    return descriptor


def _open_existing(path: Path, flags: int) -> int:
    try:
        try:
            descriptor = os.open(path, flags | os.O_RDWR)
        except PermissionError:  # another user's: reading is enough to lock it, except on NFS
            descriptor = os.open(path, flags | os.O_RDONLY)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise _unlockable(path, error.strerror or str(error)) from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise _unlockable(path, "it is not a file")
    return descriptor


def _unlockable(path: Path, why: str) -> BuildError:
    return BuildError(f"{path} cannot be locked: {why}", hint="remove it when no gpuenv is at work there")


def _lock(descriptor: int) -> None:
    """Lock an open file. Raises BusyError and OSError."""
    import fcntl  # here, because Windows has none

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise BusyError from error


def _lock_softly(path: Path, held: contextlib.ExitStack) -> None:
    """Lock by the existence of a file, where the file system has no locks. Raises BusyError and OSError."""
    from filelock import SoftFileLock, Timeout

    try:
        held.enter_context(SoftFileLock(path.with_name(f"{path.name}.soft"), timeout=0))
    except Timeout as error:
        raise BusyError from error
    held.callback(_remove, path)


def _is_still(descriptor: int, path: Path) -> bool:
    """Whether a name is still that of an open file."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.lstat())
    except FileNotFoundError:
        return False


def _remove(path: Path) -> None:
    """Remove the lock's file, as long as it is locked. Another user's stays in a folder such as /tmp."""
    with contextlib.suppress(OSError):
        path.unlink()
