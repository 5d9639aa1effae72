"""Scratch folders. The next run removes those that a killed run left."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows: one run at a time has to do
    fcntl = None  # type: ignore[assignment]

_SCRATCH = "gpuenv-scratch-"
_YOUNG = 600.0  # seconds in which a folder gets its name


def _is_own(found: os.stat_result) -> bool:
    return not hasattr(os, "geteuid") or found.st_uid == os.geteuid()


def _hold(number: int, *, wait: bool) -> bool:
    """Whether a descriptor is ours alone now; the kernel frees it however we end. File systems without locks
    let everybody have it."""
    if fcntl is None:
        return True
    try:
        fcntl.flock(number, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except OSError:
        return wait
    return True


@contextlib.contextmanager
def scratch(what: str) -> Iterator[Path]:
    """An empty folder among the temporary ones that is gone after the block, at the latest when the next run
    makes one. Raises OSError."""
    import shutil
    import tempfile

    if fcntl is None:
        with tempfile.TemporaryDirectory(prefix=_SCRATCH, ignore_cleanup_errors=True) as name:
            yield Path(name)
        return
    _sweep(Path(tempfile.gettempdir()))
    # Held before it has the name that others sweep: between the two it would be nobody's.
    with contextlib.ExitStack() as kept:
        made = Path(tempfile.mkdtemp(prefix=f".{_SCRATCH}")).absolute()
        path = made.with_name(f"{_SCRATCH}{what}-{made.name.removeprefix(f'.{_SCRATCH}')}")
        for folder in (path, made):
            kept.callback(shutil.rmtree, folder, ignore_errors=True)
        number = os.open(made, os.O_RDONLY)
        kept.callback(os.close, number)
        _hold(number, wait=True)
        made.rename(path)
        yield path


def _sweep(folder: Path) -> None:
    """Remove this user's scratch folders that no run holds any more. One that has not got its name yet is
    somebody's until it is old."""
    import shutil
    import time

    for path in (*folder.glob(f"{_SCRATCH}*"), *folder.glob(f".{_SCRATCH}*")):
        with contextlib.suppress(OSError):
            found = path.lstat()
            young = path.name.startswith(".") and time.time() - found.st_mtime < _YOUNG
            if young or not stat.S_ISDIR(found.st_mode):
                continue
            number = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
            try:
                if _is_own(os.fstat(number)) and _hold(number, wait=False):
                    shutil.rmtree(path, ignore_errors=True)
            finally:
                os.close(number)
