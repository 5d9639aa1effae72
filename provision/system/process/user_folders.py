"""Choose home and cache folders that the user can write to."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path


def settle_home(*, cache: bool = True) -> str | None:
    """Give this process a usable home and cache, and return a note about a replacement.

    The user of a container often has no HOME, or one that is not writable. A private temporary folder replaces it. It
    becomes HOME if `~` has no value. With `cache` it becomes XDG_CACHE_HOME, which gpuenv, uv and rattler share.
    """
    home = Path(os.path.expanduser("~"))  # noqa: PTH111  # Path.expanduser raises where this returns "~"
    if not home.is_absolute() or not home.is_dir():
        # A home that does not exist (/nonexistent, of users such as `nobody`) is not created.
        missing = (
            f"the home folder {home} does not exist" if home.is_absolute() else "this user has no home folder"
        )
        temporary = os.environ["HOME"] = _make_own_temporary()
        return f"{missing}. Using {temporary}, which the system may delete"
    kept = Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache")
    if not cache or (not is_anothers(kept / "gpuenv") and _can_keep(kept / "gpuenv")):
        return None
    temporary = os.environ["XDG_CACHE_HOME"] = str(Path(_make_own_temporary(), ".cache"))
    return f"{kept} {'belongs to another user' if is_anothers(kept) else 'cannot be written'}. Using {temporary}, which the system may delete. To choose a folder, use --cache-dir"


def is_anothers(path: Path) -> bool:
    """Return whether root would write in another user's folder, as with a `sudo` that keeps HOME.

    That user could not change the files afterwards. pip disables its cache in this case.
    """
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        return False
    while not path.exists() and path != path.parent:
        path = path.parent
    return path.stat().st_uid != 0


def _can_keep(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(folder, os.W_OK)


def _make_own_temporary() -> str:
    """Return a folder that only this user can have written to."""
    import tempfile

    if not hasattr(os, "getuid"):
        return tempfile.mkdtemp(prefix="gpuenv-")
    path = Path(tempfile.gettempdir(), f"gpuenv-{os.getuid()}")
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700)
    status = path.lstat()
    is_private = stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o022
    return str(path) if is_private else tempfile.mkdtemp(prefix="gpuenv-")
