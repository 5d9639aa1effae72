"""The environments that were made on this machine by this user: what `list` shows and completion offers.

One small file per environment, named after its path, in the user's data folder: writing one is one
rename, so that runs at the same time never lose each other's. An entry says where an environment is and
nothing else; all that is told of it is read in its own `.gpuenv/`.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ..errors import BuildError
from ..system import process, safe_write, untrusted_files

_MARK = ".gpuenv"
_MOST = 1 << 16  # bytes of an entry


def folder() -> Path:
    """Where the entries are. Raises BuildError where the user has no home folder."""
    import platformdirs

    try:
        path = Path(platformdirs.user_data_dir("gpuenv")) / "environments"
    except RuntimeError:
        path = Path("~")
    if not path.is_absolute():  # older platformdirs hand `~` on where nobody knows what it is
        raise BuildError(
            "the list of environments cannot be stored, because there is no home folder",
            hint="set HOME or XDG_DATA_HOME",
        )
    return path


def _entry(env: Path) -> Path:
    return folder() / f"{hashlib.sha256(os.fsencode(env)).hexdigest()[:32]}.json"


def add(env: Path) -> None:
    """Enter an environment (an absolute path). Raises BuildError where that cannot be written."""
    entry = _entry(env)
    text = json.dumps({"path": str(env)}) + "\n"
    try:
        if entry.exists() and untrusted_files.read_bytes(entry) == text.encode():
            return
        if process.is_anothers(entry.parent):
            raise PermissionError(
                errno.EPERM,
                "it is in the home folder of another user, and gpuenv run as root writes no files there",
            )
        entry.parent.mkdir(parents=True, exist_ok=True)
        safe_write.write_file(entry, text)
    except OSError as error:
        raise _refused(entry, error) from error


def forget(env: Path) -> None:
    """Take an environment out. Raises BuildError where that cannot be written."""
    entry = _entry(env)
    try:
        entry.unlink(missing_ok=True)
    except OSError as error:
        raise _refused(entry, error) from error


def _refused(entry: Path, error: OSError) -> BuildError:
    return BuildError(
        f"the list of environments cannot be written in {entry.parent}: {error.strerror or error}",
        hint="the environment itself is not affected, but `gpuenv list` does not show it",
    )


def environments(*, prune: bool = True) -> list[Path]:
    """The environments that are there, by path. With `prune` the entries of those that are gone for good
    are taken out, silently: that is how a folder which was deleted by hand leaves the list."""
    found = []
    for entry, env in _entries():
        if env is not None and _is_there(env):
            found.append(env)
        elif prune and (env is None or _is_gone(env)):
            _drop(entry)
    return sorted(set(found))


def _entries() -> Iterator[tuple[Path, Path | None]]:
    """Each entry and its environment, None where the entry cannot be understood."""
    try:
        entries = list(folder().glob("*.json"))
    except (BuildError, OSError):
        return
    for entry in entries:
        try:
            path = json.loads(untrusted_files.read_bytes(entry, _MOST))["path"]
            env = Path(path)
        except OSError:
            continue  # taken out by another run between the two reads
        except (ValueError, KeyError, TypeError, RecursionError):
            yield entry, None
        else:
            yield entry, env if env.is_absolute() else None


def _is_there(env: Path) -> bool:
    try:
        return (env / _MARK).is_dir()
    except OSError:
        return False


def _is_gone(env: Path) -> bool:
    """Whether it is certain that the environment is gone: its disk answers, and nothing of it stands
    aside, as it does while another run swaps or removes it."""
    try:
        (env / _MARK).stat()
    except (FileNotFoundError, NotADirectoryError):
        return bool(env.name) and not any(
            os.path.lexists(env.with_name(f".{env.name}.gpuenv-{x}")) for x in ("new", "old")
        )
    except OSError:
        return False
    return False


def _drop(entry: Path) -> None:
    try:
        entry.unlink(missing_ok=True)
    except OSError:
        return  # a read-only home: the entry stays, and the listing leaves it out all the same


# --- how much disk they take -------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class Size:
    """Bytes on disk, each file counted once; `shared` is the part in files that also have a name
    elsewhere (uv and rattler link their caches): removing the environment does not free it."""

    bytes: int
    shared: int


def measure(env: Path, seconds: float | None = None) -> Size | None:
    """The disk that a folder takes, as `du` counts it; None when it takes longer than `seconds`.

    Links are not followed, other file systems not entered, and what cannot be read is left out.
    """
    deadline = None if seconds is None else time.monotonic() + seconds
    total = 0
    linked: dict[int, list[int]] = {}  # inode -> names of it seen here, names in all, bytes
    folders = [str(env)]
    try:
        device = os.lstat(env).st_dev
    except OSError:
        return Size(bytes=0, shared=0)
    while folders:
        if deadline is not None and time.monotonic() > deadline:
            return None
        for entry, found in _within(folders.pop()):
            if found.st_dev != device:
                continue
            size = getattr(found, "st_blocks", -(-found.st_size // 512)) * 512
            if entry.is_dir(follow_symlinks=False):
                folders.append(entry.path)
            elif found.st_nlink > 1:
                linked.setdefault(found.st_ino, [0, found.st_nlink, size])[0] += 1
                continue
            total += size
    shared = sum(size for seen, names, size in linked.values() if names > seen)
    return Size(bytes=total + sum(size for _, _, size in linked.values()), shared=shared)


def _within(folder: str) -> Iterator[tuple[os.DirEntry[str], os.stat_result]]:
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):  # it was removed between the two calls
                    yield entry, entry.stat(follow_symlinks=False)
    except OSError:
        return
