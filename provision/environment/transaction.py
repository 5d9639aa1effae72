"""A change of an environment, all or nothing.

What the block builds takes the environment's place when the block ends well. When it raises, or the run is killed at
any moment, the environment is as it was before, or none where there was none; `place.recover` clears what was left.

`beside` builds in a hidden sibling and renames it: a venv can be moved. `at_its_path` builds in the place itself,
because conda writes its prefix into files: the old environment is renamed aside, and a marker inside the new one
says that it is unfinished. The new one comes into the place together with that marker, by one rename.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import BuildError
from . import clone, place, within


@contextmanager
def beside(env: Path, *, copied: bool) -> Iterator[Path]:
    """Give a draft beside the environment: empty, or a copy of it. Raises BuildError."""
    if copied:
        _check(env)
    with place.draft(env) as draft:
        if copied:
            clone.copy(env, draft)
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
            clone.copy(place.aside(env), env)
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
    clone.check_writable(env)
    within.check(env)


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
        hint = f"another folder came into its place; the environment that was there is {place.aside(env)}"
    else:
        hint = "something else removed it: run the command again"
    return BuildError(f"{env} vanished while gpuenv was at work there", hint=hint)
