"""What a manager is: a way to build environments. venv and conda are its two instances, chosen by name."""

from __future__ import annotations

import importlib
from typing import Protocol, cast


class Manager(Protocol):
    """A module with these names. What both managers do alike is written in `commands/`, once."""

    LOCK_NAME: str
    """The name of a project's lock file: pylock.toml, conda-lock.yml."""


_MODULES = {"venv": ".venv", "conda": ".conda.manager"}


def manager(name: str) -> Manager:
    """The manager of a name; it is imported when it is asked for."""
    return cast("Manager", importlib.import_module(_MODULES[name], __package__))
