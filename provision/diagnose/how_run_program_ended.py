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
    """The end of a program and its environment. None means unknown. All sizes are in bytes.

    `signal` is the signal that ended it; 128 + n of a shell counts too. `oom_kills` counts the processes that
    the kernel killed when memory ran out, and `oom_source` names the counter. `address_space` and `open_files`
    are its limits, or None. `memory` is that of the machine or its container.

    `files_of` returns the installed package ("numpy 2.1.0") that lists the files of a module. `own_module`
    returns the path of a module in the project. `has_module` returns whether the environment has a module.
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
