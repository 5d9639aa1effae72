"""Where an environment is put: one writer at a time, all or nothing.

An environment is made in a hidden sibling of its place and renamed into it, so that a crash at
any moment leaves the old environment or none. `.gpuenv/` inside marks what gpuenv made; a folder
without it is never touched.
"""

from __future__ import annotations

import errno
import os
import re
import shlex
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from ..errors import BuildError, UsageError
from ..model import Emit, Event, drop_event
from ..system.safe_write import suggest_fix
from . import place_lock

MARK = ".gpuenv"
# With those that turn the order of what is shown around: the line that is shown would name another folder.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
UNFINISHED = "building"
"""A file in MARK of an environment that is being built where it will live (conda)."""


def made_by_gpuenv(path: Path) -> bool:
    return (path / MARK).is_dir() and not (path / MARK).is_symlink()


_WRITTEN = ("plan.json", "request.json", "lock.json", UNFINISHED)
"""Files of MARK, one of which every environment has from the moment that it is in its place."""


def has_been_made(env: Path) -> bool:
    """Whether gpuenv filled the mark, or a removal was interrupted that had left nothing else."""
    written = any((env / MARK / name).exists() for name in _WRITTEN)
    return written or {x.name for x in env.iterdir()} == {MARK}


def home_folder() -> Path | None:
    try:
        return Path.home()
    except RuntimeError:
        return None  # neither HOME nor the user database names one


def mounted_in(env: Path) -> Path | None:
    """Where another disk is mounted at or in a folder: what is removed there is gone from that disk."""
    real = env.resolve()
    inside = next((m for m in _mounts() if m.is_relative_to(real)), None)
    return inside or (env if os.path.ismount(env) else None)


def _mounts() -> list[Path]:
    """Where file systems are mounted, from Linux's own table (proc(5): the fifth field, blanks as octal)."""
    try:
        rows = Path("/proc/self/mountinfo").read_bytes().splitlines()
    except OSError:
        return []  # another system: ismount on the environment itself has to do
    points = [row.split(b" ")[4] for row in rows if row.count(b" ") > 4]
    return [Path(os.fsdecode(p.decode("unicode_escape").encode("latin-1"))) for p in points]


_CHANGING = "changing.json"
"""A file in MARK that an early development version left in an environment while it changed the packages there."""


def is_settled(path: Path) -> bool:
    """Whether no run was interrupted here: nothing half-made beside the place or in it."""
    return not any(p.exists() for p in (half_made(path), aside(path), path / MARK / UNFINISHED))


def is_half_changed(path: Path) -> bool:
    """Whether an early development version was interrupted while it changed packages in the place itself."""
    return (path / MARK / _CHANGING).exists()


def refuse_half_changed(path: Path) -> None:
    """Raise BuildError for an environment whose packages are those of no lock."""
    if is_half_changed(path):
        raise BuildError(
            f"{path} is incomplete: {MARK}/{_CHANGING} shows that a change of its packages was interrupted",
            hint=f"rebuild it: gpuenv create {shlex.quote(str(path))} --recreate",
        )


def holds_more_than_an_environment(path: Path) -> bool:
    """Return whether a folder is the root of the file system, one just below it, or has the home folder in it. Nobody
    is advised to remove such a folder."""
    real, home = path.resolve(), home_folder()
    return (
        real == real.parent
        or real.parent == Path(real.anchor)
        or bool(home and home.resolve().is_relative_to(real))
    )


def check_place(path: Path) -> None:
    """Refuse a place that is a file, a link to somewhere else, or a folder of someone else's.

    Raises UsageError (exit 2).
    """
    if not path.name.isprintable() and not path.exists() and _CONTROL.search(path.name):
        raise UsageError(
            f"the name of {path!r} contains control characters, which activate scripts and pyvenv.cfg do not support",
            hint="choose another path for ENV",
        )
    if not path.exists() and re.search(r"[\ud800-\udfff]", str(path)):  # what Python makes of such bytes
        raise UsageError(
            f"{path!r} contains bytes that are not valid UTF-8, which pyvenv.cfg does not support",
            hint="choose another path for ENV",
        )
    if path.is_symlink() and not path.exists():
        raise UsageError(
            f"{path} is a broken symbolic link", hint="remove the link, or choose another path for ENV"
        )
    if path.exists() and not path.is_dir():
        raise UsageError(f"{path} is a file, not an environment", hint="choose another path for ENV")
    if path.is_dir() and not made_by_gpuenv(path) and any(path.iterdir()):
        raise UsageError(
            f"{path} is a folder that gpuenv did not make; it is left alone",
            hint="choose another path for ENV"
            + ("" if holds_more_than_an_environment(path) else ", or remove the folder yourself"),
        )
    if made_by_gpuenv(path) and not has_been_made(path):
        raise UsageError(
            f"{path} contains a folder {MARK}, but is not an environment. It was not changed",
            hint="choose another path for ENV, or remove the folder yourself",
        )
    home = home_folder()
    if home and path.is_dir() and home.is_relative_to(path.resolve()):
        raise UsageError(
            f"your home folder is inside {path}; it is left alone", hint="choose another path for ENV"
        )


@contextmanager
def held(path: Path, emit: Emit = drop_event) -> Iterator[None]:
    """Hold the place against every other gpuenv. Raises BuildError."""
    with ExitStack() as lock:
        real = path.resolve()
        try:
            notes = lock.enter_context(place_lock.locked(real))
        except OSError as error:
            raise not_writable(real.parent, error) from error
        for text in notes:
            emit(Event(kind="warning", stage="build", text=text))
        yield


@contextmanager
def draft(place: Path) -> Iterator[Path]:
    """A fresh marked sibling to build in. It is removed unless `settle` moved it away. Raises
    BuildError when the sibling cannot be made."""
    path = half_made(place)
    if made_by_gpuenv(place) and not os.access(place, os.W_OK | os.X_OK):
        raise BuildError(
            f"{place} is write-protected and cannot be replaced: it belongs to user {place.stat().st_uid}",
            hint="choose another path for ENV, or run the command as a user with write permission",
        )
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        discard(path)
        path.mkdir()
        (path / MARK).mkdir()
    except OSError as error:
        raise not_writable(place.parent, error) from error
    try:
        yield path
    except OSError as error:
        if told := disturbed(path, error):
            raise told from error
        raise
    finally:
        if path.is_dir() and not path.is_symlink():
            # Somebody may have removed the folder while an installer wrote in it: what is there now is ours.
            (path / MARK).mkdir(exist_ok=True)
        cleared(path)


def discard(path: Path) -> None:
    """Remove a folder that gpuenv made (or an empty one); refuse any other. Links are unlinked,
    never followed."""
    if path.is_symlink():
        path.unlink()
    elif path.is_dir():
        if not made_by_gpuenv(path) and any(path.iterdir()):
            raise BuildError(
                f"{path} already exists and was not created by gpuenv", hint="move it away, then try again"
            )
        refuse_mounts(path)
        # The mark goes last: what is left of an interrupted removal is still known as ours.
        for child in path.iterdir():
            if child.name != MARK:
                _remove(child) if child.is_dir() and not child.is_symlink() else child.unlink()
        _remove(path)


def _remove(folder: Path) -> None:
    try:
        shutil.rmtree(folder)
    except RecursionError as error:
        raise BuildError(
            f"{folder} contains folders that are nested too deeply to remove",
            hint=f"rm -rf {shlex.quote(str(folder))}",
        ) from error


def refuse_mounts(path: Path) -> None:
    """Raise BuildError where another disk is mounted in a folder that is to be removed."""
    if place := mounted_in(path):
        raise BuildError(f"another disk is mounted at {place}; {path} is left alone", hint="unmount it first")


def cleared(path: Path) -> None:
    """`discard` at the end of a run. Raises BuildError where the folder cannot be removed."""
    try:
        discard(path)
    except OSError as error:
        raise not_writable(path, error) from error


def settle(built: Path, place: Path) -> None:
    """Move a finished draft into its place. An environment that is there is put aside first and
    removed last; between the two renames nothing is lost. Raises BuildError."""
    place_lock.assert_held(place.resolve())
    before = aside(place)
    discard(before)
    old = made_by_gpuenv(place)
    if old:
        refuse_mounts(place)
    try:
        if old:
            place.rename(before)
        try:
            built.rename(place)
        except OSError:
            if old:
                before.rename(place)
            raise
    except OSError as error:
        raise not_writable(place.parent, error) from error
    cleared(before)


def recover(place: Path) -> None:
    """Finish what a killed swap left: if the place is empty and the old environment stands aside,
    it comes back; if both are there the old one is removed, unless what is in its place is somebody's. What
    is there unfinished goes first, what was half-made beside it last. Raises BuildError."""
    half, before = half_made(place), aside(place)
    try:
        if (place / MARK / UNFINISHED).exists():
            discard(half)
            place.rename(half)
            discard(half)
        if made_by_gpuenv(before):
            if made_by_gpuenv(place):
                discard(before)
            elif not os.path.lexists(place) or _is_empty(place):
                before.rename(place)
        if made_by_gpuenv(half) or _is_empty(half):
            discard(half)
    except OSError as error:
        raise not_writable(place.parent, error) from error


def _is_empty(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink() and not any(path.iterdir())


def half_made(place: Path) -> Path:
    """Where an environment is made, and where one is put that is being removed."""
    return _beside(place, "new")


def aside(place: Path) -> Path:
    """Where an environment waits while the one that replaces it is made."""
    return _beside(place, "old")


def _beside(place: Path, end: str) -> Path:
    if not place.name:
        raise UsageError(f"{place} cannot be used for an environment", hint="choose another path for ENV")
    return place.with_name(f".{place.name}.gpuenv-{end}")


def disturbed(path: Path, error: OSError) -> BuildError | None:
    """What a run is to end with that could not go on in the folder it builds in; None for an error that has
    nothing to do with that folder."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS) or str(error.filename).startswith(str(path)):
        return not_writable(path, error)
    return None


def not_writable(path: Path, error: OSError) -> BuildError:
    """A BuildError for a file system that refused: full, read-only, no permission, or taken away."""
    if error.errno == errno.ENOENT:
        return BuildError(
            f"{error.filename or path} was removed by another process while gpuenv used it",
            hint="run the command again",
        )
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return BuildError(f"the disk of {path} is full: {error.strerror}", hint="free space, then try again")
    return BuildError(
        f"cannot write in {path}: {error.strerror or error}",
        hint=suggest_fix(error, "choose a path for ENV in a folder with write permission"),
    )
