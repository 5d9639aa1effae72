"""Creates scratch folders, and removes those of killed runs."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import stat
from collections.abc import Iterator
from pathlib import Path

_SCRATCH = "gpuenv-scratch-"
_YOUNG = 600.0  # seconds until a new folder has its final name


@contextlib.contextmanager
def make_scratch(purpose: str) -> Iterator[Path]:
    """Yield an empty temporary folder and remove it after the block. Raises OSError.

    After a kill, the next run with a scratch folder removes it.
    """
    import shutil
    import tempfile

    _sweep(Path(tempfile.gettempdir()))
    # It is locked before it gets the name that other runs remove.
    with contextlib.ExitStack() as kept:
        folder_path = Path(tempfile.mkdtemp(prefix=f".{_SCRATCH}")).absolute()
        path = folder_path.with_name(f"{_SCRATCH}{purpose}-{folder_path.name.removeprefix(f'.{_SCRATCH}')}")
        for folder in (path, folder_path):
            kept.callback(shutil.rmtree, folder, ignore_errors=True)
        number = os.open(folder_path, os.O_RDONLY)
        kept.callback(os.close, number)
        with contextlib.suppress(OSError):  # a file system without locks, where no run sweeps
            fcntl.flock(number, fcntl.LOCK_EX)  # until this process ends
        folder_path.rename(path)
        yield path


@functools.cache  # a run looks once
def _sweep(folder: Path) -> None:
    """Remove this user's unlocked scratch folders. A folder without its final name is kept until it is old."""
    import shutil
    import time

    try:
        names = os.listdir(folder)  # noqa: PTH208  # thousands of names
    except OSError:
        return  # unreadable
    for name in names:
        if not name.removeprefix(".").startswith(_SCRATCH):
            continue
        path = folder / name
        with contextlib.suppress(OSError):
            status = path.lstat()
            young = path.name.startswith(".") and time.time() - status.st_mtime < _YOUNG
            if young or not stat.S_ISDIR(status.st_mode):
                continue
            number = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
            try:
                if os.fstat(number).st_uid == os.geteuid():
                    fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(path, ignore_errors=True)
            finally:
                os.close(number)
