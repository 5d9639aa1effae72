"""Records which process of which host has the lock on an environment's folder.

NFS with `nolock` or `local_lock`, and Lustre without `flock`, lock on one host only. So the lock's file also names
its process. That process updates the file's modification time. Another host takes a claim over if its process is
known to be dead. It also does so after `STALE` seconds without an update, by the clock of the disk.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path

BEAT = 20.0
STALE = 180.0
"""`BEAT` is the number of seconds between two updates. After `STALE` seconds without one, a claim of another host is
void."""
_EMPTY = 0.2
"""The seconds to wait for the claim in an empty file, which another host may be about to write."""
_MOST_BYTES = 4096


class ClaimedError(Exception):
    """Another host has the lock. `claim` names it."""

    def __init__(self, claim: Claim) -> None:
        super().__init__(claim)
        self.claim = claim


@dataclass(frozen=True, kw_only=True)
class Claim:
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


def read(descriptor: int) -> Claim | None:
    """Return the claim in a file, or None without one. Older versions wrote none."""
    try:
        data = json.loads(os.pread(descriptor, _MOST_BYTES, 0))
        return Claim(
            host=str(data["host"]), boot=str(data["boot"]), pid=int(data["pid"]), since=float(data["since"])
        )
    except (ValueError, KeyError, TypeError, OverflowError):
        return None


def write(descriptor: int) -> None:
    """Write this process's claim into a file. Raises OSError."""
    data = json.dumps(asdict(make_claim())).encode()
    os.pwrite(descriptor, data, 0)
    os.ftruncate(descriptor, len(data))


def take(descriptor: int, path: Path, *, has_locks: bool) -> Claim | None:
    """Claim a file that another process made, and return the void claim of another host.

    `has_locks` says that this kernel locked the file. Raises ClaimedError, OSError.
    """
    with _exclude_other_hosts(path):
        claim = _read_late(descriptor)
        if claim and not claim.is_of_this_process and _is_alive(claim, descriptor, path, has_locks=has_locks):
            raise ClaimedError(claim)
        write(descriptor)
    return None if claim is None or claim.is_of_this_host else claim


def _read_late(descriptor: int) -> Claim | None:
    """Return the claim in a file, after waiting for the process that may be about to write it."""
    end = time.monotonic() + _EMPTY
    while (claim := read(descriptor)) is None and time.monotonic() < end:
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
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        claim = read(descriptor)
    finally:
        os.close(descriptor)
    return None if claim is None or claim.is_of_this_process else claim
