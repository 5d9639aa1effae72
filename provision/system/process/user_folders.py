"""Chooses the user's folders, and hides credentials of this process from other users."""

from __future__ import annotations

import contextlib
import os
import stat
import sys
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


def has_borrowed_rights() -> bool:
    """Return whether this process has other rights than the user who started it, because of a setuid program.

    PATH, PYTHONPATH and files then come from one user, and the rights from another.
    """
    return hasattr(os, "getresuid") and len({*os.getresuid()[:2]}) > 1


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


def hide_credentials() -> None:
    """Overwrite the credentials of addresses on this process's command line, which every user can read.

    sys.argv does not change.
    """
    if sys.platform != "linux" or not any("://" in word for word in sys.orig_argv):
        return
    import ctypes

    from ..redaction import find_secrets

    fields = Path("/proc/self/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    start, end = (
        int(fields[45]),
        int(fields[46]),
    )  # arg_start and arg_end (proc(5)), or 0 if hidden
    if 0 < start < end:
        # Latin-1 has one character for each byte.
        for secret in find_secrets(ctypes.string_at(start, end - start).decode("latin-1")):
            ctypes.memset(start + secret.start, ord("*"), secret.end - secret.start)
