"""Shows the results of `create` and `repair` as text."""

from __future__ import annotations

import shlex

from ..model import WHEEL_NAMES, CreateResult, Environment, RepairResult, RestoredPackage
from .plan import show_plan
from .terminal_output import Screen
from .verdict import show_verdict


def show_created(screen: Screen, result: CreateResult) -> None:
    if result.plan:
        show_plan(screen, result.plan, drifted=_find_drifted(result))
    if result.environment:
        _show_environment(screen, result.environment)
    if result.verdict:
        show_verdict(screen, result.verdict)
    elif result.environment:
        where = " on a machine that has the GPU" if result.plan and result.plan.device == "cuda" else ""
        screen.wrapped(f"unproven. To verify, run `gpuenv verify {result.environment.path}`{where}", first="")


def _find_drifted(result: CreateResult) -> dict[str, str]:
    """Return the frameworks whose installed version differs from the lock, with the command that restores it."""
    changes = (
        *(result.verdict.drift if result.verdict else ()),
        *(result.environment.drift if result.environment else ()),
    )
    path = shlex.quote(result.environment.path) if result.environment else ""
    return {
        WHEEL_NAMES.get(
            c.name, c.name
        ): f"{c.locked} in the lock, {c.found or 'none'} installed: gpuenv repair {path}"
        for c in changes
        if c.kind in ("replaced", "removed")
    }


def _show_environment(screen: Screen, environment: Environment) -> None:
    words = "built" if environment.changed else "up to date, nothing was rebuilt"
    screen.line(f"{environment.path}: {words}")


def show_repaired(screen: Screen, done: RepairResult) -> None:
    """Show what was restored, removed and kept, then the verdict."""
    for package in done.packages:
        screen.wrapped(_put_back(screen, package), indent=" " * 12, first="  restored  ")
    for gone in done.removed:
        screen.wrapped(f"{gone.name} {gone.version}: {gone.why}", indent=" " * 12, first="  removed   ")
    if done.left:
        names = ", ".join(f"{p.name} {p.version}" for p in done.left)
        screen.wrapped(f"{names}: not in the lock", indent=" " * 12, first="  left      ")
    if done.environment and not (done.packages or done.removed):
        screen.line(f"{done.environment.path}: nothing to repair: it matches its lock")
    elif done.environment:
        many = len(done.packages)
        words = f"{many} package{'' if many == 1 else 's'} restored"
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
    return f"{what}: {why.removeprefix(what + ' ')}"
