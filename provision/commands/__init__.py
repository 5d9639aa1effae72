"""One module a command: the dataclass of its options, and the function that takes them and returns a value of the model.

`from provision import commands` offers them by the name of the command, as docs/reference/python.md describes. A name is
imported on first access, together with the stages that it needs.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any

VERBS = (
    "add", "bundle", "create", "detect", "diagnose", "drop", "export", "init", "list", "lock", "remove", "repair", "report",
    "resolve", "run", "sync", "verify",
)  # fmt: skip
"""The commands that are one function each. `cache` and `profiles` are modules with several."""
_GROUPS = {"cache": ("Clean", "Dir", "Prune"), "profiles": ("Check", "List", "Show", "Update")}
_HOMES = (
    {verb: verb for verb in VERBS}
    | {f"{verb.capitalize()}Options": verb for verb in VERBS}
    | {f"{group.capitalize()}{word}Options": group for group, words in _GROUPS.items() for word in words}
)


class _Commands(ModuleType):
    """A module whose attribute `create` stays the function: the import system would set the submodule of that name."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in VERBS or not isinstance(value, ModuleType):
            super().__setattr__(name, value)

    def __getattr__(self, name: str) -> Any:
        """Import a command, its options, or the module of several commands."""
        if name == "Choices":
            return importlib.import_module("..config.options", __name__).Choices
        if name in _GROUPS:
            return importlib.import_module(f"..actions.{name}", __name__)
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(importlib.import_module(f"..actions.{_HOMES[name]}", __name__), name)

    def __dir__(self) -> list[str]:
        return sorted({*vars(self), *_HOMES, *_GROUPS, "Choices"})


sys.modules[__name__].__class__ = _Commands
