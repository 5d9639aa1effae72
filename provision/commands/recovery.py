"""Roll back what an interrupted run left in the place of an environment."""

from __future__ import annotations

from pathlib import Path

from ..config import options as where
from ..environment import place
from ..errors import BuildError
from ..model import Emit, Event


def roll_back_interrupted(emit: Emit, env: Path) -> None:
    """Restore the environment as it was before an interrupted run.

    If another run uses it, or nothing can be written, emit a note and change nothing.
    """
    env = where.make_absolute(env)
    if place.is_undisturbed(env):
        return
    try:
        with place.lock_place(env, emit):
            place.recover(env)
    except BuildError as error:
        emit(Event(kind="note", stage="build", text=error.message))
        return
    if place.is_undisturbed(env):
        outcome = "the environment is restored" if place.made_by_gpuenv(env) else "its files are removed"
        emit(Event(kind="note", stage="build", text=f"{env}: an earlier run was interrupted; {outcome}"))
