"""What a killed run left in the place of an environment, before that is looked at or run."""

from __future__ import annotations

from pathlib import Path

from .. import show
from ..environment import place
from ..errors import BuildError
from ..model import Event
from ..request import paths as where


def settle(screen: show.Screen, env: Path) -> None:
    """Bring the environment back that was in the place before. Where another run is at work there, or nothing
    can be written, that is told, and all stays as it is."""
    env = where.absolute(env)
    if place.is_settled(env):
        return
    try:
        with place.held(env):
            place.recover(env)
    except BuildError as error:
        screen.say(f"note: {error.message}")
        return
    if place.is_settled(env):
        told = "it is as it was before" if place.made_by_gpuenv(env) else "nothing of it stays"
        show.event(
            screen, Event(kind="note", stage="build", text=f"{env}: a run was interrupted here; {told}")
        )
