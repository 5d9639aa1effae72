"""The commands as functions: each takes its options and `emit`, and returns a value of the model.

    from provision import commands
    made = commands.create(commands.CreateOptions(choices=commands.Choices(framework=["jax"])))

A name is loaded when it is asked for, with the stages that it needs. `profiles` is a module with the functions
`list`, `show`, `check` and `update`.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # who reads the types sees them all
    from ..request.options import Choices as Choices
    from . import profiles as profiles
    from .add import AddOptions as AddOptions
    from .add import add as add
    from .bundle import BundleOptions as BundleOptions
    from .bundle import bundle as bundle
    from .create import create as create
    from .create_options import CreateOptions as CreateOptions
    from .detect import DetectOptions as DetectOptions
    from .detect import detect as detect
    from .diagnose import DiagnoseOptions as DiagnoseOptions
    from .diagnose import diagnose as diagnose
    from .export import ExportOptions as ExportOptions
    from .export import export as export
    from .init import InitOptions as InitOptions
    from .init import init as init
    from .list import ListOptions as ListOptions
    from .list import list as list  # noqa: A004  # the verb's name
    from .lock import LockOptions as LockOptions
    from .lock import lock as lock
    from .profiles import ProfilesCheckOptions as ProfilesCheckOptions
    from .profiles import ProfilesListOptions as ProfilesListOptions
    from .profiles import ProfilesShowOptions as ProfilesShowOptions
    from .profiles import ProfilesUpdateOptions as ProfilesUpdateOptions
    from .remove import RemoveOptions as RemoveOptions
    from .remove import remove as remove
    from .repair import RepairOptions as RepairOptions
    from .repair import repair as repair
    from .report import ReportOptions as ReportOptions
    from .report import report as report
    from .resolve import ResolveOptions as ResolveOptions
    from .resolve import resolve as resolve
    from .run import RunOptions as RunOptions
    from .run import run as run
    from .verify import VerifyOptions as VerifyOptions
    from .verify import verify as verify

VERBS = frozenset({
    "add", "bundle", "create", "detect", "diagnose", "export", "init", "list", "lock", "remove", "repair", "report",
    "resolve", "run", "verify",
})  # fmt: skip
"""The commands; each is a function in the module of its name."""
_HOME = (
    {f"{verb.capitalize()}Options": f".{verb}" for verb in VERBS}
    | {f"Profiles{verb}Options": ".profiles" for verb in ("Check", "List", "Show", "Update")}
    | {verb: f".{verb}" for verb in VERBS}
    | {"Choices": "..request.options", "profiles": ""}
)
__all__ = tuple(_HOME)  # the names above, written once


class _Commands(ModuleType):
    """A module whose attribute `create` is the function, also after its submodule `create` was imported."""

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute, but for the submodule of a verb: the import system sets that."""
        if name not in VERBS or not isinstance(value, ModuleType):
            super().__setattr__(name, value)

    def __getattr__(self, name: str) -> Any:
        """Load a command, the dataclass of its options or `profiles`."""
        if name not in _HOME:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        if name == "profiles":
            return importlib.import_module(".profiles", __name__)
        return getattr(importlib.import_module(_HOME[name], __name__), name)

    def __dir__(self) -> Any:
        return sorted({*vars(self), *_HOME})


sys.modules[__name__].__class__ = _Commands
