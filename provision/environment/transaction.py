"""A change of an environment, all or nothing.

What the block builds takes the environment's place when the block ends well. When it raises, or the run is killed at
any moment, the environment is as it was before, or none where there was none; `place.recover` clears what was left.

`beside` builds in a hidden sibling and renames it: a venv can be moved. `at_its_path` builds in the place itself,
because conda writes its prefix into files: the old environment is renamed aside, and a marker inside the new one
says that it is unfinished. The new one comes into the place together with that marker, by one rename.

A copy has hard links where that can be, so that gigabytes take a second and no room: installers replace files, they
do not write into them. What gpuenv and conda write themselves is copied.

An environment that is to be written in must not lead out of itself: a write to `lib/.../site-packages/x` goes
elsewhere where one of these folders is a link, and an uninstaller removes there what a RECORD lists. Environments
come with archives, shared disks and other people's projects, so that is looked at before anything is written. What
reads an environment follows links."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import BuildError
from ..system.safe_write import TooDeepError, links_out, write_file
from . import host_verdicts, place
from .place import MARK, not_writable


@contextmanager
def beside(env: Path, *, copied: bool) -> Iterator[Path]:
    """Give a draft beside the environment: empty, or a copy of it. Raises BuildError."""
    if copied:
        _check(env)
    with place.draft(env) as draft:
        if copied:
            copy(env, draft)
        yield draft
        place.settle(draft, env)


@contextmanager
def at_its_path(env: Path, *, copied: bool) -> Iterator[Path]:
    """Give the place itself: empty, or a copy of the environment, which waits aside. Raises BuildError."""
    if copied:
        _check(env)
    begun = _set_aside(env)
    try:
        if copied:
            copy(place.aside(env), env)
        yield env
        (env / place.MARK / place.UNFINISHED).unlink()
    except BaseException as error:
        vanished = not (env / place.MARK / place.UNFINISHED).exists()
        if vanished:
            _claim(env, begun)
        place.recover(env)
        if vanished and isinstance(error, (OSError, BuildError)):
            raise _taken_away(env) from error
        if isinstance(error, OSError) and (told := place.disturbed(env, error)):
            raise told from error
        raise
    place.cleared(place.aside(env))


def _check(env: Path) -> None:
    """Raise BuildError where an environment cannot be copied and removed afterwards."""
    check_writable(env)
    check(env)


def _set_aside(env: Path) -> int:
    """Rename the environment aside and put an empty, marked one in its place; return when that was made."""
    with place.draft(env) as draft:
        marker = draft / place.MARK / place.UNFINISHED
        marker.touch()
        begun = marker.stat().st_ctime_ns
        aside = place.aside(env)
        place.discard(aside)
        try:
            if place.made_by_gpuenv(env):
                place.refuse_mounts(env)
                env.rename(aside)
            elif env.is_dir():
                env.rmdir()
            draft.rename(env)
        except OSError as error:
            place.recover(env)
            raise place.not_writable(env.parent, error) from error
    return begun


def _claim(env: Path, begun: int) -> None:
    """Mark what the engine and uv made again after the folder that they worked in was removed: they make it
    for every file that is left. A folder that holds anything older than this build is not ours."""
    if not env.is_dir() or env.is_symlink() or _oldest(env) < begun:
        return
    try:
        (env / place.MARK).mkdir(exist_ok=True)
        (env / place.MARK / place.UNFINISHED).touch()
    except FileNotFoundError:
        return  # it is being removed at this moment


def _oldest(env: Path) -> float:
    """When the file that was changed first was: to link a file of the cache changes it."""
    oldest = float("inf")
    for folder, folders, files in os.walk(env):
        for name in (*folders, *files):
            try:
                oldest = min(oldest, (Path(folder) / name).lstat().st_ctime_ns)
            except FileNotFoundError:
                continue
    return oldest


def _taken_away(env: Path) -> BuildError:
    if place.made_by_gpuenv(place.aside(env)):
        hint = f"another folder now exists at this path. The previous environment was moved to {place.aside(env)}"
    else:
        hint = "run the command again"
    return BuildError(f"{env} was removed by another process while gpuenv used it", hint=hint)


_WRITTEN = (place.MARK, "conda-meta", "pyvenv.cfg")


def check_writable(env: Path) -> None:
    """Raise BuildError where a folder inside could not be removed afterwards."""
    for folder, _, _ in os.walk(env):
        if not os.access(folder, os.W_OK | os.X_OK):
            raise BuildError(
                f"{folder} is not writable: it belongs to user {Path(folder).stat().st_uid}",
                hint="change the owner back to the environment's user, or run this command as that user",
            )


def copy(source: Path, target: Path) -> None:
    """Copy an environment into a folder. Raises BuildError."""
    try:
        _folder(source, target, written=False)
    except OSError as error:
        raise place.not_writable(target, error) from error


def _folder(source: Path, target: Path, *, written: bool) -> None:
    target.mkdir(exist_ok=True)
    with os.scandir(source) as entries:
        for entry in entries:
            old, new = Path(entry.path), target / entry.name
            if written and entry.name == host_verdicts.FOLDER:
                continue  # they are about what is changed in the copy
            ours = written or entry.name in _WRITTEN
            if entry.is_symlink():
                new.symlink_to(old.readlink())
            elif entry.is_dir():
                _folder(old, new, written=ours)
            elif ours:
                shutil.copy2(old, new)
            else:
                _file(old, new)
    shutil.copystat(source, target)


def _file(source: Path, target: Path) -> None:
    """A link, or a copy where the file system or the file's owner allows none."""
    try:
        target.hardlink_to(source)
    except OSError:
        shutil.copy2(source, target)


def check(env: Path) -> None:
    """Raise BuildError where a folder in an environment, or a file that gpuenv or an installer writes anew,
    is a link that leads out. A link of `bin/python` does, and is never written through."""
    try:
        found = next((e for f, e in links_out(env) if _is_written_through(env, f, e)), None)
    except TooDeepError as error:
        raise BuildError(
            str(error.strerror), hint="rebuild the environment: gpuenv create --recreate"
        ) from error
    except OSError as error:
        raise BuildError(f"{error.filename} cannot be searched: {error.strerror or error}") from error
    if found is not None:
        told = os.path.relpath(found.path, env)
        raise BuildError(
            f"{told} in {env} is a link to {Path(found.path).readlink()}. gpuenv does not write through links",
            hint="remove the link, or rebuild the environment: gpuenv create --recreate",
        )


def _is_written_through(env: Path, folder: str, entry: os.DirEntry[str]) -> bool:
    return entry.is_dir() or _is_written(os.path.relpath(folder, env), entry.name)


def _is_written(folder: str, name: str) -> bool:
    """Whether a file of this name is written in its place, not replaced by another one."""
    first, _, rest = folder.partition(os.sep)
    if folder == ".":
        return name in ("pyvenv.cfg", ".gitignore")
    if first == "bin" and not rest:
        return not name.startswith("python")
    return first in (MARK, "conda-meta") or (
        folder.endswith("site-packages") and name.startswith("_virtualenv")
    )


def own(path: Path) -> None:
    """Make a file that has other names, as hard links give them, one of its own. Raises BuildError."""
    try:
        found = path.lstat()
        if not stat.S_ISREG(found.st_mode):
            raise BuildError(
                f"{path} is not a regular file", hint="rebuild the environment: gpuenv create --recreate"
            )
        if found.st_nlink > 1:
            write_file(path, path.read_bytes())
    except OSError as error:
        raise not_writable(path, error) from error
