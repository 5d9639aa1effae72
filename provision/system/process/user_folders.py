"""The user's own folders, and what other users may see of this process."""

from __future__ import annotations

import contextlib
import os
import stat
import sys
from pathlib import Path


def settle_home(*, cache: bool = True) -> str | None:
    """Give this process a home and a cache where it has none that it could use, and say so.

    A container's user is often one that nobody knows, without HOME or with one that it may not write to. Then
    a folder of its own among the temporary ones takes its place: for HOME where there is no answer to `~`, and
    with `cache` for XDG_CACHE_HOME, which gpuenv, uv and rattler share.
    """
    home = Path(os.path.expanduser("~"))  # noqa: PTH111  # Path.expanduser raises where this says "~"
    if not home.is_absolute() or not home.is_dir():
        # One that is only named (/nonexistent, of users like `nobody`) is not made: that is not ours to do.
        missing = f"there is no home folder {home}" if home.is_absolute() else "there is no home folder"
        own = os.environ["HOME"] = _own_temporary()
        return f"{missing}: {own} is used, which the system may clear"
    kept = Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache")
    if not cache or (not is_anothers(kept / "gpuenv") and _can_keep(kept / "gpuenv")):
        return None
    own = os.environ["XDG_CACHE_HOME"] = str(Path(_own_temporary(), ".cache"))
    return f"{kept} {'belongs to another user' if is_anothers(kept) else 'cannot be written'}: {own} is used, which the system may clear (or name one with --cache-dir)"


def is_anothers(path: Path) -> bool:
    """Whether root would write where the folder is another user's, as with `sudo` that keeps HOME: what it
    left there that user could not change. pip leaves its cache out then."""
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        return False
    while not path.exists() and path != path.parent:
        path = path.parent
    return path.stat().st_uid != 0


def borrowed_rights() -> bool:
    """Whether this process has another user's rights than who started it (a setuid program on the way): PATH,
    PYTHONPATH and files are then the one's, and what they can do the other's."""
    return hasattr(os, "getresuid") and len({*os.getresuid()[:2]}) > 1


def _can_keep(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(folder, os.W_OK)


def _own_temporary() -> str:
    """A folder in which nobody else could have put something."""
    import tempfile

    if not hasattr(os, "getuid"):
        return tempfile.mkdtemp(prefix="gpuenv-")
    path = Path(tempfile.gettempdir(), f"gpuenv-{os.getuid()}")
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700)
    found = path.lstat()
    mine = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o022
    return str(path) if mine else tempfile.mkdtemp(prefix="gpuenv-")


def hide_credentials() -> None:
    """Overwrite the credentials of every address on this process's command line, which every user of the
    machine can read. What Python has of it (sys.argv) does not change."""
    if sys.platform != "linux" or not any("://" in word for word in sys.orig_argv):
        return
    import ctypes

    from ..redaction import secrets_in

    fields = Path("/proc/self/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    start, end = (
        int(fields[45]),
        int(fields[46]),
    )  # arg_start and arg_end (proc(5)); 0 where they are not told
    if 0 < start < end:
        # Latin-1, as it has one character for each byte.
        for secret in secrets_in(ctypes.string_at(start, end - start).decode("latin-1")):
            ctypes.memset(start + secret.start, ord("*"), secret.end - secret.start)
