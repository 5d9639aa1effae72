"""A lock in words."""

from __future__ import annotations

from ..model import Lock
from .listing import amount
from .plan import show_plan
from .screen import Screen


def show_lock(screen: Screen, lock: Lock) -> None:
    show_plan(screen, lock.plan)
    total = sum(p.size or 0 for p in lock.packages)
    known = f", {amount(total)} to download" if total else ""
    screen.line(f"{len(lock.packages)} packages locked{known}")
    if screen.verbose:
        for package in lock.packages:
            screen.line(f"  {package.name} {package.version}")
