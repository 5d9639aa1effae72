"""Shows a bundle as text: what it is for, its files and its notes."""

from __future__ import annotations

from ..model import Bundle, BundlePlan, format_bytes
from .terminal_output import Screen


def show_bundle(screen: Screen, bundle: Bundle) -> None:
    """Show the purpose of a bundle, its files and its notes."""
    if bundle.plans:
        for plan in bundle.plans:
            _show_plan(screen, plan)
    else:
        screen.wrapped(_describe(bundle), first="")
    total = sum(f.size or 0 for f in bundle.files)
    screen.line(f"{len(bundle.files)} files, {format_bytes(total)}, {_format_pythons(bundle)}")
    if screen.verbose:
        for file in bundle.files:
            screen.line(f"  {file.path}")
    for note in bundle.notes:
        screen.wrapped(f"note: {note}", indent="    ", first="  ")


def _show_plan(screen: Screen, plan: BundlePlan) -> None:
    """Show the lock of a plan, its packages, and its classes with their number of hosts."""
    screen.wrapped(f"{plan.lock}: {_describe(plan)}", indent="    ", first="")
    classes = ", ".join(f"{c.id} ({_count(len(c.hosts))})" for c in plan.classes)
    screen.wrapped(f"for {classes}", indent="    ", first="  ")


def _describe(plan: Bundle | BundlePlan) -> str:
    target = plan.target
    gpus = ", ".join(g.name or f"compute capability {g.capability}" for g in target.gpus)
    driver = f"driver {target.driver}" if target.driver else ""
    meant = ", ".join(filter(None, (target.platform, f"Python {plan.python}", driver, gpus)))
    return f"{', '.join(plan.frameworks)} for {plan.device}: {meant}"


def _format_pythons(bundle: Bundle) -> str:
    plans: tuple[Bundle | BundlePlan, ...] = bundle.plans or (bundle,)
    found = dict.fromkeys(p.archive.version for p in plans if p.archive)
    return f"with Python {', '.join(found)}" if found else "without a Python"


def _count(hosts: int) -> str:
    return f"{hosts:,} host{'' if hosts == 1 else 's'}"
