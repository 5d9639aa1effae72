"""A conda environment is built where it will live, all or nothing.

The old environment is renamed aside, and a marker inside the new one says that it is not finished. It
comes into its place together with that marker, by one rename, so that a crash at any moment leaves the
old environment, or a folder that `place.recover` knows to be half-made.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from . import place


@contextmanager
def building(env: Path) -> Iterator[None]:
    """Build in `env` inside the block; when it raises, the old environment returns. Raises BuildError."""
    with place.draft(env) as draft:
        (draft / place.MARK / place.UNFINISHED).touch()
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
    except OSError as error:
        place.recover(env)
        if told := place.disturbed(env, error):
            raise told from error
        raise
    except BaseException:
        place.recover(env)
        raise
    place.cleared(aside)
