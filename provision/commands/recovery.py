"""What a killed run left in the place of an environment, before that is looked at or run."""

from __future__ import annotations

from pathlib import Path

from ..environment import place
from ..errors import BuildError
from ..model import Emit, Event
from ..request import environment_paths as where


def roll_back_interrupted(emit: Emit, env: Path) -> None:
    """Bring the environment back that was in the place before. Where another run is at work there, or nothing
    can be written, that is told, and all stays as it is."""
    env = where.make_absolute(env)
    if place.is_settled(env):
        return
    try:
        with place.held(env, emit):
            place.recover(env)
    except BuildError as error:
        emit(Event(kind="note", stage="build", text=error.message))
        return
    if place.is_settled(env):
        told = "the environment is restored" if place.made_by_gpuenv(env) else "its files are removed"
        emit(Event(kind="note", stage="build", text=f"{env}: an earlier run was interrupted; {told}"))
