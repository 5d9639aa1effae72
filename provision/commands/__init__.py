"""Offer the commands as functions that take options and `emit`, and return a value of the model.

    from provision import commands
    result = commands.create(commands.CreateOptions(choices=commands.Choices(framework=["jax"])))

A name is imported on first access, together with the stages that it needs. `profiles` is a module with the
functions `list`, `show`, `check` and `update`. `cache` is a module with `dir`, `prune` and `clean`.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # type checkers see all names
    from ..config.options import Choices as Choices
    from . import cache as cache, profiles as profiles
    from .add import AddOptions as AddOptions, add as add
    from .bundle import BundleOptions as BundleOptions, bundle as bundle
    from .cache import (
        CacheCleanOptions as CacheCleanOptions,
        CacheDirOptions as CacheDirOptions,
        CachePruneOptions as CachePruneOptions,
    )
    from .create import create as create
    from .create_options import CreateOptions as CreateOptions
    from .detect import DetectOptions as DetectOptions, detect as detect
    from .diagnose import DiagnoseOptions as DiagnoseOptions, diagnose as diagnose
    from .drop import DropOptions as DropOptions, drop as drop
    from .export import ExportOptions as ExportOptions, export as export
    from .init import InitOptions as InitOptions, init as init
    from .list import ListOptions as ListOptions, list as list
    from .lock import LockOptions as LockOptions, lock as lock
    from .profiles import (
        ProfilesCheckOptions as ProfilesCheckOptions,
        ProfilesListOptions as ProfilesListOptions,
        ProfilesShowOptions as ProfilesShowOptions,
        ProfilesUpdateOptions as ProfilesUpdateOptions,
    )
    from .remove import RemoveOptions as RemoveOptions, remove as remove
    from .repair import RepairOptions as RepairOptions, repair as repair
    from .report import ReportOptions as ReportOptions, report as report
    from .resolve import ResolveOptions as ResolveOptions, resolve as resolve
    from .run import RunOptions as RunOptions, run as run
    from .sync import SyncOptions as SyncOptions, sync as sync
    from .verify import VerifyOptions as VerifyOptions, verify as verify

VERBS = frozenset({
    "add", "bundle", "create", "detect", "diagnose", "drop", "export", "init", "list", "lock", "remove", "repair", "report",
    "resolve", "run", "sync", "verify",
})  # fmt: skip
"""The commands; each is a function in the module of its name."""
_GROUPS = ("cache", "profiles")
"""Modules with several commands."""
_HOME = (
    {f"{verb.capitalize()}Options": f".{verb}" for verb in VERBS}
    | {f"Profiles{verb}Options": ".profiles" for verb in ("Check", "List", "Show", "Update")}
    | {f"Cache{verb}Options": ".cache" for verb in ("Clean", "Dir", "Prune")}
    | {verb: f".{verb}" for verb in VERBS}
    | {"Choices": "..config.options", **dict.fromkeys(_GROUPS, "")}
)
__all__ = tuple(_HOME)  # the names above, written once


class _Commands(ModuleType):
    """A module whose attribute `create` stays the function, even after its submodule `create` is imported."""

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute, except for the submodule of a command. The import system sets that."""
        if name not in VERBS or not isinstance(value, ModuleType):
            super().__setattr__(name, value)

    def __getattr__(self, name: str) -> Any:
        """Load a command, the dataclass of its options or `profiles`."""
        if name not in _HOME:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        if name in _GROUPS:
            return importlib.import_module(f".{name}", __name__)
        return getattr(importlib.import_module(_HOME[name], __name__), name)

    def __dir__(self) -> Any:
        return sorted({*vars(self), *_HOME})


sys.modules[__name__].__class__ = _Commands
