"""What `create` and `repair` did, in words."""

from __future__ import annotations

import shlex

from ..model import WHEEL_NAMES, CreateResult, Environment, RepairResult, RestoredPackage
from .plan import show_plan
from .screen import Screen
from .verdict import show_verdict


def show_created(screen: Screen, made: CreateResult) -> None:
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


def _drifted(made: CreateResult) -> dict[str, str]:
    """The frameworks of which another version is installed than the lock's, and what restores the lock's."""
    changes = (
        *(made.verdict.drift if made.verdict else ()),
        *(made.environment.drift if made.environment else ()),
    )
    path = shlex.quote(made.environment.path) if made.environment else ""
    return {
        WHEEL_NAMES.get(
            c.name, c.name
        ): f"{c.locked} in the lock, {c.found or 'none'} installed: gpuenv repair {path}"
        for c in changes
        if c.kind in ("replaced", "removed")
    }


def _show_environment(screen: Screen, made: Environment) -> None:
    words = "built" if made.changed else "up to date, nothing was rebuilt"
    screen.line(f"{made.path}: {words}")


def show_repaired(screen: Screen, done: RepairResult) -> None:
    """What was put back, taken out and left; then the verdict."""
    for package in done.packages:
        screen.wrapped(_put_back(screen, package), indent=" " * 12, first="  put back  ")
    for gone in done.removed:
        screen.wrapped(f"{gone.name} {gone.version}: {gone.why}", indent=" " * 12, first="  removed   ")
    if done.left:
        names = ", ".join(f"{p.name} {p.version}" for p in done.left)
        screen.wrapped(f"{names}: not in the lock", indent=" " * 12, first="  left      ")
    if done.environment and not (done.packages or done.removed):
        screen.line(f"{done.environment.path}: nothing to repair: it matches its lock")
    elif done.environment:
        many = len(done.packages)
        words = f"{many} package{'' if many == 1 else 's'} put back"
        words += f", {len(done.removed)} removed" if done.removed else ""
        screen.line(f"{done.environment.path}: {words}")
    if done.verdict:
        show_verdict(screen, done.verdict)


def _put_back(screen: Screen, package: RestoredPackage) -> str:
    if package.had is None:
        return f"{package.name} {package.now}, which was missing"
    if package.had != package.now:
        return f"{package.name} {package.had} -> {screen.colour(package.now, 'bold')}"
    what = f"{package.name} {package.now}"
    why = package.why
    return why if f"of {what} " in why else f"{what}: {why.removeprefix(what + ' ')}"
