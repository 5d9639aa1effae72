"""Who holds the lock on a place, for hosts that share its disk but not their kernels' locks.

NFS with `nolock` or `local_lock`, and Lustre without `flock`, lock on one host only. So the lock's file also says who
holds it, and its time of change is a sign of life. A claim is taken over where its holder is known to be dead, or gave
no sign for `STALE` seconds by the clock of the disk.
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
"""Seconds between two signs of life, and after how many seconds without one a claim of another host is void."""
_EMPTY = 0.2
"""For how many seconds a file without a claim may be that of a host that is about to write it."""
_MOST_BYTES = 4096


class ClaimedError(Exception):
    """Another host has the place; `claim` says which."""

    def __init__(self, claim: Claim) -> None:
        super().__init__(claim)
        self.claim = claim


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A process of a host. `boot` is the id of the kernel's start, which no two machines share."""

    host: str
    boot: str
    pid: int
    since: float

    @property
    def words(self) -> str:
        """The holder for people."""
        since = datetime.fromtimestamp(self.since, timezone.utc)
        return f"process {self.pid} of host {self.host}, since {since:%Y-%m-%d %H:%M:%S} UTC"

    @property
    def is_of_this_host(self) -> bool:
        """Whether this kernel runs the process, or ran it."""
        return self.boot == _boot()

    @property
    def is_mine(self) -> bool:
        """Whether this process made the claim."""
        return self.is_of_this_host and self.pid == os.getpid()


def own() -> Claim:
    """The claim of this process."""
    return Claim(host=platform.node() or "unknown", boot=_boot(), pid=os.getpid(), since=time.time())


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
    except OSError:
        return platform.node()


def read(descriptor: int) -> Claim | None:
    """The claim in a file, None where there is none: older versions wrote nothing into it."""
    try:
        data = json.loads(os.pread(descriptor, _MOST_BYTES, 0))
        return Claim(
            host=str(data["host"]), boot=str(data["boot"]), pid=int(data["pid"]), since=float(data["since"])
        )
    except (ValueError, KeyError, TypeError, OverflowError):
        return None


def write(descriptor: int) -> None:
    """Put this process's claim into a file. Raises OSError."""
    data = json.dumps(asdict(own())).encode()
    os.pwrite(descriptor, data, 0)
    os.ftruncate(descriptor, len(data))


def take(descriptor: int, path: Path, *, has_locks: bool) -> Claim | None:
    """Claim a file that another process made. `has_locks` says that this kernel locked it. Return the claim of another
    host that was void. Raises ClaimedError, OSError."""
    with _alone(path):
        found = _read_late(descriptor)
        if found and not found.is_mine and _is_alive(found, descriptor, path, has_locks=has_locks):
            raise ClaimedError(found)
        write(descriptor)
    return None if found is None or found.is_of_this_host else found


def _read_late(descriptor: int) -> Claim | None:
    """The claim in a file, which its maker may be about to write."""
    end = time.monotonic() + _EMPTY
    while (found := read(descriptor)) is None and time.monotonic() < end:
        time.sleep(0.01)
    return found


def _is_alive(claim: Claim, descriptor: int, path: Path, *, has_locks: bool) -> bool:
    if not claim.is_of_this_host:
        return _now_on_disk(path) - os.fstat(descriptor).st_mtime < STALE
    # The kernel frees the lock of a process that ends, so one that could be had is nobody's.
    return not has_locks and Path(f"/proc/{claim.pid}").exists()


def _now_on_disk(path: Path) -> float:
    """The time by the clock that stamps the files there: the clocks of two hosts differ."""
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f"{path.name}.") as probe:
        os.utime(probe.fileno())
        return os.fstat(probe.fileno()).st_mtime


@contextlib.contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Exclude other hosts from judging the same claim: making a folder is atomic on every disk that hosts share."""
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
    """Remove the folder of a process that was killed while it judged a claim, which takes far less than a second."""
    with contextlib.suppress(FileNotFoundError):
        if _now_on_disk(path) - folder.stat().st_mtime > STALE:
            folder.rmdir()


@contextlib.contextmanager
def kept_alive(descriptor: int) -> Iterator[None]:
    """Give signs of life within the block."""
    ended = threading.Event()

    def beat() -> None:
        while not ended.wait(BEAT):
            with contextlib.suppress(OSError):  # the disk is gone, which the work itself says
                os.utime(descriptor)

    thread = threading.Thread(target=beat, name="gpuenv lock", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def taken_from_me(path: Path) -> Claim | None:
    """The claim of another process in the file that this process locked; None where it is still this one's."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        found = read(descriptor)
    finally:
        os.close(descriptor)
    return None if found is None or found.is_mine else found
