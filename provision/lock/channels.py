"""Searches for a conda lock: first packages of channels, then wheels for the rest.

uv solves the wheels for the environment's Python. If the wheels or the project's bounds conflict with the solution,
the solver runs again with the new bounds.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from ..conda import solver
from ..conda.solver import ChannelQuery
from ..errors import LockError, ResolveError
from ..index.places import add_locked_indexes
from ..index.wheel_names import cpython_markers
from ..model import (
    Emit,
    Event,
    Lock,
    LockedPackage,
    Plan,
    RequestContext,
    RequirementLine,
    VersionBound,
    requirement_name,
)
from ..requirements.lines import may_apply
from ..resolve import plan_request
from ..resolve.satellites import companion_names
from .pinned import lock_plan
from .source_builds import SourceRules, source_rules

# Each turn is a complete solve.
_TURNS = 8


def search(
    context: RequestContext, emit: Emit, near: Lock | None = None, moving: frozenset[str] = frozenset()
) -> tuple[Plan, Lock | None]:
    """Return the plan that the solver of the channels chooses, and its lock: the channels first, then the wheels.

    The packages of `near` stay where possible, except those in `moving`. The plan notes the variables that override the
    target. Raises LockError, ResolveError.
    """
    packages = [p for p in near.packages if p.name not in moving] if near else []
    keep = [f"{p.name}=={p.version}" for p in packages if not (p.is_conda or p.unhashed)]
    rules = source_rules(context.sources, emit)
    context = _move_companions(context)
    query, notes = solver.make_query(context)
    for words in notes:
        emit(Event("note", "resolve", words))
    context = dataclasses.replace(context, target=query.target)
    query = dataclasses.replace(query, prefer=tuple(p.url for p in packages if p.is_conda))
    for _ in range(_TURNS):
        options = solver.list_alternatives(query, context.profiles)
        solution = solver.solve(query, emit, options)
        lock = solver.make_lock(query, solution)
        if narrower := _narrow(context, query, lock, emit):
            query = narrower
            continue
        if solution.lacking or solution.wheels or context.requirements.lines:
            plan = plan_for(context, solution, lock)
            if plan.python != lock.plan.python:  # the wheels require a Python other than the solver's
                request = dataclasses.replace(query.request, python=plan.python)
                query = dataclasses.replace(query, request=request)
                continue
            lock = add_wheels_on_top(context, plan, lock, emit, rules, keep)
        noted = dataclasses.replace(lock.plan, notes=(*lock.plan.notes, *notes))
        plan = add_locked_indexes(noted, lock.packages)
        return plan, dataclasses.replace(lock, plan=plan)
    raise LockError("no set of conda packages and wheels was found that fits together",
                    hint="name --python, or widen the bounds in the project's files")  # fmt: skip


def _narrow(context: RequestContext, query: ChannelQuery, lock: Lock, emit: Emit) -> ChannelQuery | None:
    """Return the query with the bounds that its solution exceeds, or None if it exceeds none."""
    found = _find_exceeded(context.requirements.lines, lock, context.target.platform)
    if exceeded := [b for b in found if b not in query.limits]:
        return dataclasses.replace(query, limits=(*query.limits, *exceeded))
    for build in lock.plan.builds if context.target.gpus and not query.bounds.cudnn else ():
        if not (build.cuda and build.cudnn):
            continue
        bounds = solver.find_cudnn_bounds(query, context.profiles, build.cuda, build.cudnn)
        if bounds:
            text = (
                f"cuDNN {build.cudnn} has no kernels for a GPU of the target; solving with cudnn {bounds[0]}"
            )
            emit(Event("note", "resolve", text))
            return dataclasses.replace(query, bounds=dataclasses.replace(query.bounds, cudnn=bounds))
    return None


def _move_companions(context: RequestContext) -> RequestContext:
    """Move packages compiled against a framework (torchvision) to the channels: their wheels need its wheel."""
    names = companion_names(context.profiles.builds)
    companions = [n for n in context.requirements.lines if n.package in names and not n.is_direct]
    applied = [n for n in companions if not n.constraint]
    if not applied:
        return context
    texts = tuple(f"{r.name}{r.specifier}" for r in (Requirement(n.text) for n in applied))
    packages = tuple(dict.fromkeys([*context.request.packages, *texts]))
    lines = tuple(n for n in context.requirements.lines if n not in applied)
    requirements = dataclasses.replace(context.requirements, lines=lines)
    return dataclasses.replace(context.with_request(packages=packages), requirements=requirements)


def _find_exceeded(lines: Sequence[RequirementLine], lock: Lock, platform: str) -> list[VersionBound]:
    """Return the bounds of the project's files that the solver's packages exceed."""
    versions: dict[str, str] = {canonicalize_name(p.name): p.version for p in lock.packages}
    markers = {
        **cpython_markers(platform, lock.plan.python), "python_full_version": f"{lock.plan.python}.99"
    }  # fmt: skip
    exceeded = []
    for need in (n for n in lines if n.package in versions and not n.is_direct):
        read = Requirement(need.text)
        try:
            kept = read.specifier.contains(Version(versions[need.package]), prereleases=True)
        except InvalidVersion:
            continue  # PEP 440 does not allow every conda version
        if not kept and may_apply(read.marker, markers):
            exceeded.append(
                VersionBound(name=need.package, specifier=str(read.specifier), origin=need.origin)
            )
    return exceeded


def plan_for(context: RequestContext, solution: solver.Solution, lock: Lock) -> Plan:
    """Return the plan of the wheels, for the solver's Python or else one that fits them. Raises ResolveError."""
    empty = dataclasses.replace(lock.plan, builds=(), packages=solution.wheels)
    wanted = tuple(w for w in context.request.frameworks if w.name in solution.lacking)
    if not wanted:
        return empty
    for python in dict.fromkeys((lock.plan.python, context.request.python)):
        plan = plan_request(
            context.with_request(frameworks=wanted, packages=(), python=python, pythons=(), manager="venv")
        )
        if plan.builds:
            return dataclasses.replace(plan, packages=solution.wheels)
    names = ", ".join(w.name for w in wanted)
    raise ResolveError(
        f"the channels have no {names}, and no wheel fits",
        hint=plan.hint or "choose another Python with --python",
    )


def add_wheels_on_top(
    context: RequestContext, plan: Plan, lock: Lock, emit: Emit, rules: SourceRules, keep: Sequence[str]
) -> Lock:
    """Add the wheels to the lock. The pins in `keep` hold if possible. Raises LockError.

    If conda already provides a dependency of the wheels, uv solves again with conda's version. That package is then
    omitted, so that no wheel replaces a conda package.
    """
    names = ", ".join([*(b.framework for b in plan.builds), *plan.packages])
    if names:
        text = f"the channels have no {names}: adding wheels"
        emit(Event("note", "lock", text))
    conda = _find_conda_wheels(context, lock)
    # The plan's own pins stay. Every lock includes pip, which needs no pin.
    planned = {"pip", *(requirement_name(r) for b in plan.builds for r in b.requirements)}
    lines = context.requirements.lines
    answer = lock_plan(plan, emit, rules, lines, keep)
    shared = [p for p in answer.packages if p.name in conda and p.name not in planned]
    if any(p.version != conda[p.name].version for p in shared):
        pins = tuple(f"{p.name}=={conda[p.name].version}" for p in shared)
        again = dataclasses.replace(plan, packages=(*plan.packages, *pins))
        answer = lock_plan(again, emit, rules, lines, keep)
    wheels = [p for p in answer.packages if p.name not in conda]
    rules.announce(wheels, answer.archives, plan)
    whole = dataclasses.replace(lock.plan, builds=(*lock.plan.builds, *plan.builds))
    return dataclasses.replace(lock, plan=whole, packages=(*lock.packages, *wheels))


def _find_conda_wheels(context: RequestContext, lock: Lock) -> dict[str, LockedPackage]:
    """Return conda's packages by the names of their wheels, such as torch for pytorch."""
    packages: dict[str, LockedPackage] = {canonicalize_name(p.name): p for p in lock.packages}
    for row in context.profiles.conda:
        if row.package in packages:
            packages.setdefault(row.framework, packages[row.package])
    return packages
