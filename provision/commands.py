"""The commands as functions for Python programs: `commands.create(commands.CreateOptions())`, see docs/reference/python.md.

A name is imported on first access, together with the stages that it needs.
"""

from __future__ import annotations

import importlib
from typing import Any

from .config.options import Choices as Choices  # noqa: PLC0414  # so that type checkers take it as public

VERBS = (
    "add", "bundle", "create", "detect", "diagnose", "drop", "export", "init", "list", "lock", "remove", "repair", "report",
    "resolve", "run", "sync", "verify",
)  # fmt: skip
"""The commands that are one function each. `cache` and `profiles` are modules with several."""
_GROUPS = {"cache": ("Clean", "Dir", "Prune"), "profiles": ("Check", "List", "Show", "Update")}
_MODULES = (
    {verb: verb for verb in VERBS}
    | {f"{verb.capitalize()}Options": verb for verb in VERBS}
    | {f"{group.capitalize()}{word}Options": group for group, words in _GROUPS.items() for word in words}
)
"""The module of `actions/` that defines a name."""


def __getattr__(name: str) -> Any:
    """Import a command, its options, or the module of several commands."""
    if name in _GROUPS:
        return importlib.import_module(f"provision.actions.{name}")
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"provision.actions.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES, *_GROUPS})
