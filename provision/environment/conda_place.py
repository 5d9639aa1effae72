"""A conda environment is built where it will live, all or nothing.

The old environment is renamed aside, and a marker inside the new one says that it is not finished. It
comes into its place together with that marker, by one rename, so that a crash at any moment leaves the
old environment, or a folder that `place.recover` knows to be half-made.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import BuildError
from . import place


@contextmanager
def building(env: Path) -> Iterator[None]:
    """Build in `env` inside the block; when it raises, the old environment returns. Raises BuildError."""
    with place.draft(env) as draft:
        (draft / place.MARK / place.UNFINISHED).touch()
        begun = (draft / place.MARK / place.UNFINISHED).stat().st_ctime_ns
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
    try:
        yield
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
    place.cleared(aside)


def _claim(env: Path, begun: int) -> None:
    """Mark what the engine and uv made anew when the folder that they worked in was taken away: they make it
    again for every file that is left. A folder with anything in it that is older than this build is
    somebody else's."""
    if not env.is_dir() or env.is_symlink() or _oldest(env) < begun:
        return
    try:
        (env / place.MARK).mkdir(exist_ok=True)
        (env / place.MARK / place.UNFINISHED).touch()
    except FileNotFoundError:
        return  # it is being taken away at this moment


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
