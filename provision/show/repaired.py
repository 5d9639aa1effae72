"""What `repair` did, for people: old -> new, one line a package."""

from __future__ import annotations

from ..model import PutBack, Repaired
from .screen import Screen
from .verdict import show_verdict


def show_repaired(screen: Screen, done: Repaired) -> None:
    """What was put back, taken out and left; then the verdict."""
    for package in done.packages:
        screen.wrapped(_put_back(screen, package), indent=" " * 12, first="  put back  ")
    for gone in done.removed:
        screen.wrapped(f"{gone.name} {gone.version}: {gone.why}", indent=" " * 12, first="  removed   ")
    if done.left:
        names = ", ".join(f"{p.name} {p.version}" for p in done.left)
        screen.wrapped(f"{names}: not in the lock", indent=" " * 12, first="  left      ")
    if done.environment and not (done.packages or done.removed):
        screen.line(f"{done.environment.path}: nothing to repair, all is as its lock has it")
    elif done.environment:
        many = len(done.packages)
        words = f"{many} package{'' if many == 1 else 's'} put back"
        words += f", {len(done.removed)} removed" if done.removed else ""
        screen.line(f"{done.environment.path}: {words}")
    if done.verdict:
        show_verdict(screen, done.verdict)


def _put_back(screen: Screen, package: PutBack) -> str:
    if package.had is None:
        return f"{package.name} {package.now}, which was gone"
    if package.had != package.now:
        return f"{package.name} {package.had} -> {screen.colour(package.now, 'bold')}"
    what = f"{package.name} {package.now}"
    return f"{what}: {package.why.removeprefix(what + ' ')}"
