"""Choose home and cache folders that the user can write to, and that other users cannot."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

from . import trust

_OF_THE_USER = ("HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME")


def settle_home(*, cache: bool = True) -> str | None:
    """Give this process a usable home and cache, and return a note about a replacement.

    Root does not use the folders of another user, as with a `sudo` that keeps HOME: they configure what root installs,
    and that user could not change root's files there. The user of a container often has no HOME, that of root
    (`docker run --user`), or one that is not writable. A private temporary folder replaces it. It becomes HOME if the
    home does not exist or may not be entered. With `cache` it becomes XDG_CACHE_HOME, which gpuenv, uv and rattler
    share. Folders of configuration and data that may not be entered are left out.
    """
    left = {name: owner for name in _OF_THE_USER
            if (value := os.environ.get(name)) and (owner := trust.find_foreign_owner(Path(value)))}  # fmt: skip
    for name in left:
        del os.environ[name]
    home = Path(os.path.expanduser("~"))  # noqa: PTH111  # Path.expanduser raises where this returns "~"
    if problem := _describe_home(home):
        temporary = os.environ["HOME"] = _make_own_temporary()
        return f"{problem}. Using {temporary}, which the system may delete"
    for name, place in (("XDG_CONFIG_HOME", ".config"), ("XDG_DATA_HOME", ".local/share")):
        folder = Path(os.environ.get(name) or home / place)
        if _is_closed(folder) or _is_closed(folder / "gpuenv"):
            temporary = os.environ[name] = str(Path(_make_own_temporary(), place))
            return f"{folder} cannot be read. Using {temporary}, which the system may delete. To choose a folder, set {name}"
    notes = []
    if left:
        os.environ["HOME"] = str(home)
        notes.append(
            f"root does not use the folders of {' and '.join({*left.values()})} in {', '.join(left)}. Using {home}"
        )
    kept = Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache")
    if cache and (fault := _find_cache_fault(kept)):
        temporary = os.environ["XDG_CACHE_HOME"] = str(Path(_make_own_temporary(), ".cache"))
        notes.append(
            f"{fault}. Using {temporary}, which the system may delete. To choose a folder, use --cache-dir"
        )
    return ". ".join(notes) or None


def _describe_home(home: Path) -> str | None:
    """Return why a home folder cannot be used, or None."""
    if not home.is_absolute():
        return "this user has no home folder"
    if _is_closed(home):
        return f"the home folder {home} cannot be read by this user"
    # A home that does not exist (/nonexistent, of users such as `nobody`) is not created.
    return None if home.is_dir() else f"the home folder {home} does not exist"


def _is_closed(folder: Path) -> bool:
    """Return whether a folder exists, or may exist, where this user may not enter it."""
    try:
        return folder.is_dir() and not os.access(folder, os.R_OK | os.X_OK)
    except OSError:
        return True


def _find_cache_fault(kept: Path) -> str | None:
    """Return why the caches of gpuenv, uv and rattler in a folder cannot be used, or None."""
    own = kept / "gpuenv"
    try:
        trust.settle_cache(own)
        for other in (kept / "uv", kept / "rattler" / "cache"):
            trust.refuse_foreign_cache(other)
        return None if os.access(own, os.W_OK) else f"{kept} cannot be written"
    except trust.UntrustedError as error:
        return error.reason


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
