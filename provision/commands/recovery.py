"""Roll back what an interrupted run left in the place of an environment."""

from __future__ import annotations

from pathlib import Path

from ..environment import draft_and_replace_folder
from ..errors import BuildError
from ..model import Emit, Event
from ..request import paths_of_environment_and_cache as where


def roll_back_interrupted(emit: Emit, env: Path) -> None:
    """Restore the environment as it was before an interrupted run.

    If another run uses it, or nothing can be written, emit a note and change nothing.
    """
    env = where.make_absolute(env)
    if draft_and_replace_folder.is_settled(env):
        return
    try:
        with draft_and_replace_folder.lock_place(env, emit):
            draft_and_replace_folder.recover(env)
    except BuildError as error:
        emit(Event(kind="note", stage="build", text=error.message))
        return
    if draft_and_replace_folder.is_settled(env):
        outcome = (
            "the environment is restored"
            if draft_and_replace_folder.made_by_gpuenv(env)
            else "its files are removed"
        )
        emit(Event(kind="note", stage="build", text=f"{env}: an earlier run was interrupted; {outcome}"))
