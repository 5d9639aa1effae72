"""What `gpuenv init` did, in words."""

from __future__ import annotations

from ..model import Initialised
from .screen import Screen


def show_initialised(screen: Screen, made: Initialised) -> None:
    """One line a file, then where the frameworks were found and what is left to the user."""
    width = max(len(file.path) for file in made.files)
    for file in made.files:
        screen.wrapped(f"{file.path:{width}}  {file.done}: {file.detail}", indent=" " * (width + 2), first="")
    for note in made.notes:
        screen.wrapped(note, indent="    ", first="  ")
    if all(file.done == "kept" for file in made.files):
        screen.line("nothing was changed")
