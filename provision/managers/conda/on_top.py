"""What the channels lack comes as wheels on top, solved by uv for the environment's own Python."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from ...errors import ResolveError
from ...model import Asked, Event, Lock, Package, Plan
from ...wheels import pypi
from ..protocol import Task
from . import solve as solver


def plan_for(asked: Asked, solution: solver.Solution, made: Lock, planner: Callable[[Asked], Plan]) -> Plan:
    """The plan of the wheels: with the Python that the solver took, else with one that fits them.
    Raises ResolveError."""
    empty = dataclasses.replace(made.plan, builds=(), packages=solution.wheels)
    wanted = tuple(w for w in asked.request.frameworks if w.name in solution.lacking)
    if not wanted:
        return empty
    request = dataclasses.replace(
        asked.request, frameworks=wanted, packages=(), python=made.plan.python, pythons=(), manager="venv"
    )
    for python in dict.fromkeys((made.plan.python, asked.request.python)):
        again = dataclasses.replace(request, python=python)
        plan = planner(dataclasses.replace(asked, request=again, pythons_known=False))
        if plan.builds:
            return dataclasses.replace(plan, packages=solution.wheels)
    names = ", ".join(w.name for w in wanted)
    raise ResolveError(
        f"the channels have no {names}, and no wheel of it fits either", hint=plan.hint or "another --python"
    )


def on_top(asked: Asked, plan: Plan, made: Lock, task: Task, prefer: Mapping[str, str]) -> Lock:
    """The lock with these wheels; `prefer` are versions that stay where they can. uv is asked again where
    conda already brings a package that they need, with conda's version of it; what conda brings is then
    left out, so that no wheel replaces a conda package. Raises LockError."""
    names = ", ".join([*(b.framework for b in plan.builds), *plan.packages])
    if names:
        text = f"the channels have no {names}: it comes as wheels on top"
        task.emit(Event(kind="note", stage="lock", text=text))
    conda = _brought(asked, made)
    # What the plan pins by itself stays its own; pip comes along with every lock and needs no pin.
    planned = {"pip", *(canonicalize_name(Requirement(r).name) for b in plan.builds for r in b.requirements)}
    beside: dict[str, Any] = {"needs": asked.demands.needs, "elsewhere": tuple(conda), "prefer": prefer,
                              "builds": task.builds}  # fmt: skip
    wheels = pypi.lock(plan, asked.sources, task.emit, **beside).packages
    shared = [p for p in wheels if p.name in conda and p.name not in planned]
    if any(p.version != conda[p.name].version for p in shared):
        pins = tuple(f"{p.name}=={conda[p.name].version}" for p in shared)
        again = dataclasses.replace(plan, packages=(*plan.packages, *pins))
        wheels = pypi.lock(again, asked.sources, task.emit, **beside).packages
    return solver.with_wheels(made, [p for p in wheels if p.name not in conda], plan.builds)


def _brought(asked: Asked, made: Lock) -> dict[str, Package]:
    """Conda's packages under the names that wheels have (conda's pytorch is the wheel torch)."""
    found: dict[str, Package] = {canonicalize_name(p.name): p for p in made.packages}
    for row in asked.profiles.conda:
        if row.package in found:
            found.setdefault(row.framework, found[row.package])
    return found
