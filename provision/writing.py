"""What a run writes so that one that is killed leaves nothing half-made: files in one step, and scratch
folders that the next run sweeps away where nobody is at work in them any more."""

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


def settle(path: Path, content: str | bytes, *, mode: int = 0o644, durable: bool = False) -> None:
    """Write a file in one step: a reader sees the old one or the new one, with `durable` also when the
    power goes. Raises OSError.

    The draft has one name for all runs, so that what a killed run left of it is written over and not left
    for ever; who writes it holds it, so that two runs at once do not mix.
    """
    data = content.encode() if isinstance(content, str) else content
    draft = path.with_name(f".{path.name}.gpuenv-new")
    number = _taken(draft)
    try:
        os.ftruncate(number, 0)
        with os.fdopen(os.dup(number), "wb") as file:
            file.write(data)
            file.flush()
            if durable:
                os.fsync(number)
        draft.chmod(mode)
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    finally:
        os.close(number)


def _taken(draft: Path) -> int:
    """A descriptor of the draft, held against other runs, whoever's turn it was before."""
    while True:
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
        try:
            number = os.open(draft, flags, 0o600)
        except OSError:
            if not os.path.lexists(draft) or draft.is_dir():
                raise
            draft.unlink()  # a link, or another user's that may not be read; where that is forbidden, so is this
            continue
        try:
            _hold(number, wait=True)
            mine, there = os.fstat(number), draft.lstat()
        except FileNotFoundError:
            os.close(number)
            continue  # who held it has put it in its place
        except BaseException:
            os.close(number)
            raise
        if (mine.st_ino, mine.st_dev) == (there.st_ino, there.st_dev):
            if mine.st_nlink == 1 and _is_own(mine):
                return number
            draft.unlink()  # another user's file, or one with a second name
        os.close(number)


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
