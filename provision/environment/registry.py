"""What this user's gpuenv knows of the environments that it made on this machine.

Each environment has one small file in the user's data folder, with a name derived from its path. Such a file is
written by one rename, so that simultaneous runs do not overwrite each other's entries. An entry has the path for
`list` and completion, `record`, the digests of the files in `.gpuenv/` that this user's gpuenv wrote there, and
`pythons`, the bundles' Pythons that it uses. Everything else is in the environment's `.gpuenv/`.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from ..errors import BuildError
from ..system import trust, untrusted
from ..system.files import write_file, writing
from .place import MARK, get_draft_path, get_old_path, made_by_gpuenv

_MOST = 1 << 16  # bytes of an entry
_KEPT = 30 * 24 * 3600.0  # seconds that the entry of an environment that is gone stays unchanged


def folder() -> Path:
    """Return the folder of the entries. Raises BuildError for a user without a home folder."""
    import platformdirs

    try:
        path = Path(platformdirs.user_data_dir("gpuenv")) / "environments"
    except RuntimeError:
        path = Path("~")
    if not path.is_absolute():  # older platformdirs return `~` without a home folder
        raise BuildError(
            "the list of environments cannot be stored, because there is no home folder",
            hint="set HOME or XDG_DATA_HOME",
        )
    return path


def _get_entry(env: Path) -> Path:
    return folder() / f"{hashlib.sha256(os.fsencode(env)).hexdigest()[:32]}.json"


def read(env: Path, key: str) -> frozenset[str]:
    """Return the words that an environment's entry has under a key: "record" or "pythons"."""
    try:
        return frozenset(map(str, json.loads(trust.read_cached(_get_entry(env))).get(key, ())))
    except (BuildError, OSError, ValueError, TypeError, AttributeError, RecursionError):
        return frozenset()


def add(env: Path, **words: Iterable[str]) -> None:
    """Add an environment (an absolute path) to the list, with the `words` of a key (`read`) in place of earlier ones.

    Raises BuildError if it cannot be written.
    """
    entry = _get_entry(env)
    known = {key: words.get(key, read(env, key)) for key in ("record", "pythons")}
    text = json.dumps({"path": str(env), **{k: sorted(v) for k, v in known.items() if v}}) + "\n"
    try:
        if entry.exists() and untrusted.read_bytes(entry) == text.encode():
            return
        entry.parent.mkdir(parents=True, exist_ok=True)
        write_file(entry, text)
    except OSError as error:
        raise _explain_error(entry, error) from error


def forget(env: Path) -> None:
    """Remove an environment from the list. Raises BuildError if it cannot be written."""
    entry = _get_entry(env)
    try:
        entry.unlink(missing_ok=True)
    except OSError as error:
        raise _explain_error(entry, error) from error


def _explain_error(entry: Path, error: OSError) -> BuildError:
    return BuildError(
        f"the list of environments cannot be written in {entry.parent}: {error.strerror or error}",
        hint="the environment itself is not affected, but `list` does not show it, and `add`, `drop` and `repair` "
        "do not change it",
    )


def list_environments(*, prune: bool = True) -> list[Path]:
    """Return the existing environments, by path.

    With `prune`, remove entries of environments that have not existed for a month. Until then one may have been moved:
    its entry is what makes it known at the new path.
    """
    paths = []
    for entry, env in _iterate_entries():
        if env is not None and _is_there(env):
            paths.append(env)
        elif prune and (env is None or (_is_gone(env) and _is_old(entry))):
            with contextlib.suppress(OSError):  # a read-only home: the entry stays, and the list ignores it
                entry.unlink(missing_ok=True)
    return sorted(set(paths))


def has_record(record: frozenset[str]) -> bool:
    """Return whether this user's gpuenv wrote a record at any path."""
    paths = (env for _, env in _iterate_entries() if env is not None)
    return bool(record) and any(record <= read(env, "record") for env in paths)


def move_entry(env: Path, record: frozenset[str]) -> bool:
    """Give an environment the entry of the path that it was moved from: that is gone and had this record.

    Return whether there was one.
    """
    for _, old in _iterate_entries():
        if old not in (None, env) and record and record <= read(old, "record") and _is_gone(old):
            with contextlib.suppress(BuildError):
                add(env, record=record, pythons=read(old, "pythons"))
                forget(old)
            return True
    return False


def _iterate_entries() -> Iterator[tuple[Path, Path | None]]:
    """Yield each entry and its environment, or None for an invalid entry."""
    try:
        entries = list(folder().glob("*.json"))
    except (BuildError, OSError):
        return
    for entry in entries:
        try:
            env = Path(json.loads(untrusted.read_bytes(entry, _MOST))["path"])
        except OSError:
            continue  # another run removed it meanwhile
        except (ValueError, KeyError, TypeError, RecursionError):
            yield entry, None
        else:
            yield entry, env if env.is_absolute() else None


def _is_old(entry: Path) -> bool:
    try:
        return time.time() - entry.stat().st_mtime > _KEPT
    except OSError:  # another run removed it
        return False


def _is_there(env: Path) -> bool:
    try:
        return made_by_gpuenv(env)
    except OSError:
        return False


def _is_gone(env: Path) -> bool:
    """Return whether the environment certainly no longer exists.

    Its disk must be readable, and no other run may be replacing or removing it.
    """
    try:
        (env / MARK).stat()
    except (FileNotFoundError, NotADirectoryError):
        return bool(env.name) and not any(map(os.path.lexists, (get_draft_path(env), get_old_path(env))))
    except OSError:
        return False
    return False


# --- disk usage --------------------------------------------------------------------------------


class Size(NamedTuple):
    """Bytes on disk, with each file counted once.

    `shared` is the part in files with other names elsewhere, because uv and rattler link files of their caches.
    Removing the environment does not free it.
    """

    bytes: int
    shared: int


def measure(env: Path, seconds: float | None = None) -> Size | None:
    """Return the disk usage of a folder as `du` counts it, or None if that takes longer than `seconds`.

    Links are not followed. Other file systems and unreadable folders are ignored.
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
        for entry, status in _scan_folder(folders.pop()):
            if status.st_dev != device:
                continue
            size = getattr(status, "st_blocks", -(-status.st_size // 512)) * 512
            if entry.is_dir(follow_symlinks=False):
                folders.append(entry.path)
            elif status.st_nlink > 1:
                linked.setdefault(status.st_ino, [0, status.st_nlink, size])[0] += 1
                continue
            total += size
    shared = sum(size for seen, names, size in linked.values() if names > seen)
    return Size(bytes=total + sum(size for _, _, size in linked.values()), shared=shared)


def _scan_folder(folder: str) -> Iterator[tuple[os.DirEntry[str], os.stat_result]]:
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):  # removed between the two calls
                    yield entry, entry.stat(follow_symlinks=False)
    except OSError:
        return


_PYTHONS = "pythons"


def _python_folder(sha256: str) -> Path:
    if not re.fullmatch(r"[0-9a-f]{64}", sha256):
        raise BuildError(f"{sha256!r} is not a SHA-256 of a Python archive", hint="copy the bundle again")
    return folder().with_name("pythons") / sha256


def claim_python(env: Path, sha256: str) -> Path:
    """Return the folder to unpack the Python of an environment into. Raises BuildError.

    It is entered in the registry first: a run that is killed leaves what the next one at this path removes.
    """
    folder = _python_folder(sha256)
    add(env, pythons=read(env, _PYTHONS) | {sha256})
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    return folder


def list_own_pythons(env: Path) -> list[Path]:
    """Return the folders that go with an environment: those that no other one uses, which exists or is being built."""
    others = [other for _, other in _iterate_entries() if other not in (None, env)]
    used = frozenset[str]().union(*(read(other, _PYTHONS) for other in others if not _is_gone(other)))
    return [_python_folder(p) for p in sorted(read(env, _PYTHONS) - used)]


def remove_unused_pythons(env: Path) -> None:
    """Remove the Pythons that the environment at a path does not use any more, unless another one does.

    Raises BuildError.
    """
    claimed = read(env, _PYTHONS)
    try:
        settings = untrusted.read_text(env / "pyvenv.cfg")  # of a venv, which name the folder of its Python
    except OSError:
        settings = ""
    used = frozenset(p for p in claimed if p in settings)
    if used == claimed:
        return
    for folder in list_own_pythons(env):
        if folder.name not in used:
            shutil.rmtree(folder, ignore_errors=True)
            with contextlib.suppress(OSError):  # others are there
                folder.parent.rmdir()
    if made_by_gpuenv(env):
        add(env, pythons=used)
    else:
        forget(env)
