"""What `create` did, in words."""

from __future__ import annotations

import shlex

from ..model import Created, Environment
from .plan import show_plan
from .screen import Screen
from .verdict import show_verdict

_FRAMEWORKS = {"pytorch": "torch"}
"""Frameworks whose conda package has another name."""


def show_created(screen: Screen, made: Created) -> None:
    if made.plan:
        show_plan(screen, made.plan, drifted=_drifted(made))
    if made.environment:
        _show_environment(screen, made.environment)
    if made.verdict:
        show_verdict(screen, made.verdict)
    elif made.environment:
        where = " on a machine that has the GPU" if made.plan and made.plan.device == "cuda" else ""
        screen.wrapped(
            f"unproven: `gpuenv verify {made.environment.path}`{where} gives the verdict", first=""
        )


def _drifted(made: Created) -> dict[str, str]:
    """The frameworks of which another version is installed than the lock's, and what restores the lock's."""
    changes = (
        *(made.verdict.drift if made.verdict else ()),
        *(made.environment.drift if made.environment else ()),
    )
    path = shlex.quote(made.environment.path) if made.environment else ""
    return {
        _FRAMEWORKS.get(
            c.name, c.name
        ): f"{c.locked} in the lock, {c.found or 'none'} installed: gpuenv repair {path}"
        for c in changes
        if c.kind in ("replaced", "removed")
    }


def _show_environment(screen: Screen, made: Environment) -> None:
    words = "built" if made.changed else "already in place, nothing was rebuilt"
    screen.line(f"{made.path}: {words}")
