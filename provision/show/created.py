"""What `create` did, in words."""

from __future__ import annotations

from ..model import Created, Environment
from .plan import show_plan
from .screen import Screen
from .verdict import show_verdict


def show_created(screen: Screen, made: Created) -> None:
    if made.plan:
        show_plan(screen, made.plan)
    if made.environment:
        _show_environment(screen, made.environment)
    if made.verdict:
        show_verdict(screen, made.verdict)
    elif made.environment:
        where = " on a machine that has the GPU" if made.plan and made.plan.device == "cuda" else ""
        screen.wrapped(
            f"unproven: `gpuenv verify {made.environment.path}`{where} gives the verdict", first=""
        )


def _show_environment(screen: Screen, made: Environment) -> None:
    words = "built" if made.changed else "already in place, nothing was rebuilt"
    screen.line(f"{made.path}: {words}")
