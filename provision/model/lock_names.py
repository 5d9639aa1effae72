"""Names of lock files, for a project, a named target, or a class of hosts."""

from __future__ import annotations

import re
from pathlib import PurePath

VENV_LOCK = "pylock.toml"
CONDA_LOCK = "conda-lock.yml"
LOCK_NAMES = {"venv": VENV_LOCK, "conda": CONDA_LOCK}
"""The name of a project's lock file by manager."""
VENV_LOCKS = "pylock*.toml"
VENV_CLASS_LOCKS = "pylock.*.toml"
"""Patterns of venv lock files in a folder: all of them, and those of targets and classes."""
UV_LOCK_FORMAT = VENV_LOCK
"""The name of uv's output format for such locks."""
_NAMED = re.compile(r"pylock\.([^.]+)\.toml|([^.]+)\.conda-lock\.yml")


def make_lock_name(manager: str, target: str | None = None) -> str:
    """Return the name of a project's lock file, or of that of a named target or class.

    The latter are pylock.NAME.toml and NAME.conda-lock.yml. conda-lock requires this suffix.
    """
    if not target:
        return LOCK_NAMES[manager]
    return f"{target}.{CONDA_LOCK}" if manager == "conda" else f"pylock.{target}.toml"


def find_lock_target(name: str) -> str | None:
    """Return the target or class in the name of a lock file, or None for the name of a project's lock."""
    match = _NAMED.fullmatch(name)
    return (match[1] or match[2]) if match else None


def find_lock_manager(lock_file: PurePath | None, chosen: str) -> str:
    """Return conda for a lock file that is not TOML, and `chosen` for others and without a lock file."""
    return "conda" if lock_file and lock_file.suffix != ".toml" else chosen


def is_venv_lock(name: str) -> bool:
    """Return whether a file name is that of a venv lock, also of a target or class."""
    return name.startswith("pylock.") and name.endswith(".toml")
