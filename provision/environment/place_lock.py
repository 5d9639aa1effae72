"""Locks the folder of an environment against other gpuenv processes of any user.

The lock is a file beside the folder, because all processes share its parent. The kernel unlocks it when the process
ends. It is removed at the end, and a file of a killed run locks nothing. If the parent is not writable, the
environment's folder itself is locked. For other hosts, and on file systems without locks, the file names its process.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import platform
import stat
import tempfile
import threading
import time
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import NamedTuple

from ..errors import BuildError
from ..model import Emit, Event, drop_event
from ..system import untrusted
from ..system.files import FULL

_NO_LOCKS = (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK, errno.EBADF)
_FORBIDDEN = (errno.EACCES, errno.EPERM, errno.EROFS)
_TRIES = 100  # many more than the runs that create and remove the file at the same time
_HINT = "wait for it to end, then run the command again"


class BusyError(Exception):
    """Another process has the lock. `claim` names it if it may be of another host."""

    def __init__(self, claim: Claim | None = None) -> None:
        super().__init__(claim)
        self.claim = claim


class InUseError(BuildError):
    """The error for the user: another process has the lock."""


def lock_file(place: Path) -> Path:
    """Return the path of the lock's file, beside the folder."""
    return place.with_name(f".{place.name}.gpuenv-lock")


@contextlib.contextmanager
def locked(place: Path, emit: Emit = drop_event) -> Iterator[None]:
    """Lock a folder (absolute, without links) within the block.

    Raises InUseError if another process has locked it, and OSError if it cannot be locked.
    """
    try:
        with contextlib.ExitStack() as stack:
            stack.enter_context(_make_parents(place.parent))
            refused = _lock_sibling(place, stack, emit)
            if not _lock_folder(place, stack) and refused:
                raise refused
            yield
    except BusyError as error:
        words, hint = f"another gpuenv process is using {place}", _HINT
        if error.claim:
            words += f": {error.claim.words}"
            hint += (
                f". If that host is no longer available, the lock expires after {STALE:g} s without activity"
            )
        raise InUseError(words, hint=hint) from error


def assert_held(place: Path) -> None:
    """Raise BuildError if another host took the lock over because this process was stopped for too long."""
    if claim := read_takeover(lock_file(place)):
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


def _lock_sibling(place: Path, stack: contextlib.ExitStack, emit: Emit) -> OSError | None:
    """Lock the file beside the folder. Return the error if it may not be created.

    Raises BusyError and OSError.
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
            if not _is_same_file(opened.descriptor, path):
                continue  # its run removed it meanwhile: another run may have created and locked a new file
            void = _claim(opened, path, on_exit, has_locks=has_locks)
            if not _is_same_file(opened.descriptor, path):
                continue
            if void:
                text = f"taking over the lock on {place}, inactive for {STALE:g} s: {void.words}"
                emit(Event("warning", "build", text))
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


def _claim(opened: _Opened, path: Path, on_exit: contextlib.ExitStack, *, has_locks: bool) -> Claim | None:
    """Claim the folder for this host until the end. Return the claim that was void. Raises BusyError."""
    void = None
    if not opened.is_writable:  # another user's file, or a full disk that a removal is to free
        claim = None if has_locks else read_claim(opened.descriptor)
        if claim and _is_alive(claim, opened.descriptor, path, has_locks=False):
            raise BusyError(claim)
        on_exit.callback(_remove, path)
        return None
    if opened.is_new:
        claim = read_claim(opened.descriptor)
        if claim and not claim.is_of_this_process:
            raise BusyError(claim)
    else:
        try:
            void = take_claim(opened.descriptor, path, has_locks=has_locks)
        except OSError as error:
            if error.errno not in FULL:
                raise
            on_exit.callback(_remove, path)
            return None
    on_exit.callback(_remove_own, path)
    on_exit.enter_context(keep_alive(opened.descriptor))
    return void


def _lock_folder(place: Path, stack: contextlib.ExitStack) -> bool:
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


class _Opened(NamedTuple):
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
        write_claim(descriptor)
    except OSError as error:
        if error.errno in FULL:
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
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise BusyError from error


def _is_same_file(descriptor: int, path: Path) -> bool:
    """Return whether a path still leads to an open file."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.lstat())
    except FileNotFoundError:
        return False


def _remove_own(path: Path) -> None:
    """Remove the lock's file, unless another host has taken it over."""
    if read_takeover(path) is None:
        _remove(path)


def _remove(path: Path) -> None:
    """Remove the lock's file while it is locked. Another user's file stays in a folder such as /tmp."""
    with contextlib.suppress(OSError):
        path.unlink()


BEAT = 20.0
STALE = 180.0
"""`BEAT` is the number of seconds between two updates. After `STALE` seconds without one, a claim of another host is
void."""
_EMPTY = 0.2
"""The seconds to wait for the claim in an empty file, which another host may be about to write."""
_MOST_BYTES = 4096


class Claim(NamedTuple):
    """A process of a host. `boot` is the id of the kernel's start, which is different on every machine."""

    host: str
    boot: str
    pid: int
    since: float

    @property
    def words(self) -> str:
        """The process and host as text."""
        since = datetime.fromtimestamp(self.since, timezone.utc)
        return f"process {self.pid} of host {self.host}, since {since:%Y-%m-%d %H:%M:%S} UTC"

    @property
    def is_of_this_host(self) -> bool:
        """Whether this kernel runs the process, or ran it."""
        return self.boot == _read_boot_id()

    @property
    def is_of_this_process(self) -> bool:
        """Whether this process made the claim."""
        return self.is_of_this_host and self.pid == os.getpid()


def make_claim() -> Claim:
    """Return the claim of this process."""
    return Claim(host=platform.node() or "unknown", boot=_read_boot_id(), pid=os.getpid(), since=time.time())


def _read_boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
    except OSError:
        return platform.node()


def read_claim(descriptor: int) -> Claim | None:
    """Return the claim in an open file, or None without one."""
    return _parse_claim(os.pread(descriptor, _MOST_BYTES, 0))


def _parse_claim(text: bytes) -> Claim | None:
    try:
        data = json.loads(text)
        return Claim(
            host=str(data["host"]), boot=str(data["boot"]), pid=int(data["pid"]), since=float(data["since"])
        )
    except (ValueError, KeyError, TypeError, OverflowError):
        return None


def write_claim(descriptor: int) -> None:
    """Write this process's claim into a file. Raises OSError."""
    data = json.dumps(make_claim()._asdict()).encode()
    os.pwrite(descriptor, data, 0)
    os.ftruncate(descriptor, len(data))


def take_claim(descriptor: int, path: Path, *, has_locks: bool) -> Claim | None:
    """Claim a file that another process made, and return the void claim of another host.

    `has_locks` says that this kernel locked the file. Raises BusyError, OSError.
    """
    with _exclude_other_hosts(path):
        claim = _read_late(descriptor)
        if claim and not claim.is_of_this_process and _is_alive(claim, descriptor, path, has_locks=has_locks):
            raise BusyError(claim)
        write_claim(descriptor)
    return None if claim is None or claim.is_of_this_host else claim


def _read_late(descriptor: int) -> Claim | None:
    """Return the claim in a file, after waiting for the process that may be about to write it."""
    end = time.monotonic() + _EMPTY
    while (claim := read_claim(descriptor)) is None and time.monotonic() < end:
        time.sleep(0.01)
    return claim


def _is_alive(claim: Claim, descriptor: int, path: Path, *, has_locks: bool) -> bool:
    if not claim.is_of_this_host:
        return _read_disk_clock(path) - os.fstat(descriptor).st_mtime < STALE
    # The kernel unlocks the files of an ended process. So a file that this process could lock has no owner.
    return not has_locks and Path(f"/proc/{claim.pid}").exists()


def _read_disk_clock(path: Path) -> float:
    """Return the time by the clock of the disk, because the clocks of two hosts differ."""
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f"{path.name}.") as probe:
        os.utime(probe.fileno())
        return os.fstat(probe.fileno()).st_mtime


@contextlib.contextmanager
def _exclude_other_hosts(path: Path) -> Iterator[None]:
    """Exclude other hosts from judging the same claim. Creating a folder is atomic on every shared disk."""
    folder = path.with_name(f"{path.name}.judged")
    end = time.monotonic() + 5
    while True:
        try:
            folder.mkdir()
            break
        except FileExistsError:
            if time.monotonic() > end:
                _discard_old(folder, path)
                end = time.monotonic() + 5
            time.sleep(0.01)
    try:
        yield
    finally:
        folder.rmdir()


def _discard_old(folder: Path, path: Path) -> None:
    """Remove the folder of a process that was killed while it judged a claim. That takes far less than a second."""
    with contextlib.suppress(FileNotFoundError):
        if _read_disk_clock(path) - folder.stat().st_mtime > STALE:
            folder.rmdir()


@contextlib.contextmanager
def keep_alive(descriptor: int) -> Iterator[None]:
    """Update the file's modification time regularly within the block."""
    ended = threading.Event()

    def beat() -> None:
        while not ended.wait(BEAT):
            with contextlib.suppress(OSError):  # the disk is gone, and the work itself reports it
                os.utime(descriptor)

    thread = threading.Thread(target=beat, name="gpuenv lock", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def read_takeover(path: Path) -> Claim | None:
    """Return the claim of a process that took the lock over, or None if this process still has it."""
    try:
        claim = _parse_claim(untrusted.read_bytes(path, _MOST_BYTES))
    except OSError:
        return None
    return None if claim is None or claim.is_of_this_process else claim
