"""What the channels lack comes as wheels on top, solved by uv for the environment's own Python."""

from __future__ import annotations

import dataclasses
import re

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from .. import lock as locks
from .. import resolve
from ..errors import ResolveError
from ..lock import conda as solver
from ..model import Event, Lock, Package, Plan
from . import ask
from .locking import Emit


def on_top(asked: ask.Asked, solution: solver.Solution, made: Lock, emit: Emit) -> Lock:
    """The lock with the lacking frameworks and packages as wheels. What conda brings is pinned for uv and
    then left out, so that no wheel replaces a conda package. Raises LockError, ResolveError."""
    wanted = tuple(w for w in asked.request.frameworks if w.name in solution.lacking)
    names = ", ".join(solution.lacking)
    emit(Event(kind="note", stage="lock", text=f"the channels have no {names}: it comes as wheels on top"))
    request = dataclasses.replace(
        asked.request, frameworks=wanted, packages=(), python=made.plan.python, pythons=(), manager="venv"
    )
    plan = resolve.resolve(request, asked.target, asked.profiles, asked.supply)
    if not plan.builds:
        raise ResolveError(
            f"the channels have no {names}, and no wheel fits either with Python {made.plan.python}",
            hint=plan.hint or "another --python",
        )
    wheels = _wheels(plan, made, asked, emit)
    return solver.with_wheels(made, wheels, plan.builds)


def _wheels(plan: Plan, made: Lock, asked: ask.Asked, emit: Emit) -> tuple[Package, ...]:
    """uv is asked twice where conda already brings a package that the wheels need: the second time
    with conda's version of it."""
    conda: dict[str, Package] = {canonicalize_name(p.name): p for p in made.packages}
    first = locks.lock_venv(plan, asked.sources, emit)
    shared = [p for p in first.packages if p.name in conda and p.name not in _pinned(plan)]
    if any(p.version != conda[p.name].version for p in shared):
        pins = tuple(f"{p.name}=={_public(conda[p.name].version)}" for p in shared)
        again = dataclasses.replace(plan, packages=(*plan.packages, *pins))
        first = locks.lock_venv(again, asked.sources, emit)
    return tuple(p for p in first.packages if p.name not in conda)


def _pinned(plan: Plan) -> set[str]:
    return {canonicalize_name(Requirement(r).name) for b in plan.builds for r in b.requirements}


def _public(version: str) -> str:
    return re.sub(r"_.*$", "", version)
