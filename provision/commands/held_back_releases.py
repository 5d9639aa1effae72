"""Find named packages that an existing lock keeps in older releases, and what holds each one back.

No solve is run.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from packaging.version import Version

from ..errors import LockError, ResolveError
from ..managers.protocol import Task, locking
from ..model import HeldBackPackage, Lock, Plan, RequestContext, drop_event
from ..request import paths_of_environment_and_cache
from ..request.shared_options import Choices
from ..resolve.joint_answer import answer
from ..wheels.allowed_source_builds import source_builds
from .best_set import BestSet
from .functions_for_managers import get_stages
from .joint_choice import JointChoice
from .search_for_lock import LockSearch
from .verdict_inputs import get_planned_device

_KEPT = "the existing lock has {locked}; to upgrade it: gpuenv lock --upgrade {package}"


def explain_kept_releases(context: RequestContext, choices: Choices, lock: Lock) -> Lock:
    """Return a lock that kept the releases of an older one, with what holds back its named packages.

    A release that a new search would choose too has the reason of that search. The others are kept by the older lock.
    """
    plan = lock.plan
    reads_indexes = not (context.sources.offline or context.sources.no_index)
    best = _find_best_set(context, choices, plan) if reads_indexes else None
    if best is None:
        return lock
    known = {h.package: h for h in plan.held_back}
    rows = {h.package: h for h in (*_list_frameworks(best, plan), *_list_packages(best, plan, lock))}
    held_back = tuple((rows | known).values())
    return dataclasses.replace(lock, plan=dataclasses.replace(plan, held_back=held_back), held_back=held_back)


def _find_best_set(context: RequestContext, choices: Choices, plan: Plan) -> BestSet | None:
    """Return the set of the first question that the solver has not refused in an earlier run; None without a set."""
    if not locking(context.request.manager).PLANS_FIRST:
        return None
    builds = source_builds(context.sources, drop_event)
    if builds.refusals:
        builds.refusals.runs_uv = False
    context = dataclasses.replace(context, request=dataclasses.replace(context.request, python=plan.python))
    stages = get_stages(paths_of_environment_and_cache.get_cache_dir(choices))
    no_early_solve = dataclasses.replace(context, reading=True)
    task = Task(emit=drop_event, first=no_early_solve, stages=stages, builds=builds)
    joint = JointChoice(drop_event, allow_old=True)
    search = LockSearch(context, builds, drop_event, joint, python_is_given=True)
    try:
        with get_planned_device(context.request.device):
            search.done(task)
    except (LockError, ResolveError):
        pass  # the expected end: a question that the solver has to answer
    return joint.best_set


def _list_frameworks(best: BestSet, plan: Plan) -> Iterator[HeldBackPackage]:
    """Yield the frameworks of a plan that are older than the newest version within the bounds."""
    rows = {h.package: h for h in answer(best.search, best.chosen).held_back}
    for build in plan.builds:
        chosen = best.chosen.candidate.versions.get(build.framework, build.version)
        row = rows.get(build.framework)
        if row and chosen == build.version:
            yield row
        elif Version(build.version) < Version(chosen):
            yield _kept(build.framework, build.version, row.newest if row else chosen)


def _list_packages(best: BestSet, plan: Plan, lock: Lock) -> Iterator[HeldBackPackage]:
    """Yield the named packages that are locked in older releases than the newest ones for the plan's Python."""
    versions = {p.name: p.version for p in lock.packages}
    for row in best.list_held_back(plan, versions):
        chosen = best.chosen.releases.get(row.package)
        if chosen is None or Version(row.locked) >= Version(row.newest):
            continue
        same = row.package in best.loose or chosen.version == row.locked
        yield row if same else _kept(row.package, row.locked, row.newest)


def _kept(package: str, locked: str, newest: str) -> HeldBackPackage:
    because = _KEPT.format(locked=locked, package=package)
    return HeldBackPackage(package=package, locked=locked, newest=newest, because=because)
