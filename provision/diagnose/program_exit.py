"""How a program that gpuenv ran ended, beyond its output."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


def _nothing(_name: str) -> None:
    return None


def _never(_name: str) -> bool:
    return False


@dataclass(frozen=True, kw_only=True, slots=True)
class Ran:
    """The end of a program and the environment it ran in. None stands for unknown.

    `signal` is the signal that ended it; 128 + n of a shell counts too. `oom_kills` counts the
    processes that the kernel ended when memory ran out; `oom_source` names the counter. `address_space` and `open_files` are its limits, None where there is
    none. `memory` is that of the machine or its container. All sizes are in bytes. `files_of` returns the installed
    package ("numpy 2.1.0") whose files of a module are listed, by module. `own_module` returns where a module lies
    in the project itself. `has_module` returns whether the environment has a module.
    """

    signal: str | None = None
    oom_kills: int | None = None
    oom_source: str | None = None
    address_space: int | None = None
    open_files: int | None = None
    memory: int | None = None
    made_by_gpuenv: bool = False
    files_of: Callable[[str], str | None] = _nothing
    own_module: Callable[[str], str | None] = _nothing
    has_module: Callable[[str], bool] = _never
