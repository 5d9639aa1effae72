"""Finds the lock of a request: uv answers, the measured rows judge, and at most three other solutions are compared.

A lock with which the request is solved again stays near: first all of its versions have to stay, then its Python and the
versions that can, then nothing.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from ..errors import LockError, ResolveError
from ..index.places import add_locked_indexes
from ..model import Build, Emit, Event, Lock, LockedPackage, Plan, RequestContext, requirement_name
from ..system.versions import meets
from . import pythons, reasons, retry
from .attempt import attempt, attempt_or_refuse, first_candidate, make_candidate
from .builds import FittingBuilds
from .pinned import TwoCudasError
from .search_state import Candidate, Outcome, Refusal, Solution, State
from .source_builds import source_rules
from .variants import add_variants

MOST_MORE = 3
"""The most solves that are compared with the first solution."""
_AT_ONCE = 2


def search(
    context: RequestContext, emit: Emit, near: Lock | None = None, moving: frozenset[str] = frozenset()
) -> tuple[Plan, Lock | None]:
    """Return the plan of a request and its lock, or no lock if no build fits.

    The versions of `near` stay where possible, except those of the packages in `moving`. With `no_code` of the sources no
    code of a source archive runs. Raises LockError, and ResolveError if a measured row forbids the request.
    """
    emit(Event("start", "lock", "solving the packages"))
    rules = source_rules(context.sources, emit)
    locked = {p.name: p for p in near.packages if p.name not in moving} if near else {}
    has_pip = not near or any(p.name == "pip" for p in near.packages)  # an adopted environment may have none
    closed: LockError | None = None
    first: LockError | None = None  # an error that explains more than that of the request after it
    while True:
        fitting = FittingBuilds(context)
        here, python = context.request.pythons, fitting.newest.python
        if here and python and python not in here:  # none of this machine fits, and uv downloads one
            context = context.with_request(pythons=())
            fitting = FittingBuilds(context)
        state = State(fitting, rules, locked, has_pip)
        # Wheel variants are on the user's own indexes, and what is on the PyTorch index is taken from there.
        of_pytorch = any(b.index == "pytorch" for b in state.fitting.newest.builds)
        if not of_pytorch and (varied := add_variants(context)) is not context:
            state = State(FittingBuilds(varied), rules, locked, has_pip)
        if not state.fitting.newest.builds:
            other = retry.move_to_cpu(state, "they share no CUDA")
            if other is None:
                return _without_builds(state, closed)
        else:
            try:
                solution = _solve_again(state, near, moving) if near else _solve(state)
                other = retry.add_frameworks(state, solution)
                if other is None:
                    return _lock(state, solution)
            except LockError as error:
                closed = error if error.unreachable else closed
                first = error if first is None and isinstance(error, TwoCudasError) else first
                other = retry.next_request(state, error)
                if other is None:
                    raise first or error from None
        context = other


def _solve(state: State) -> Solution:
    """Ask, judge, and compare, with an older Python too where a package needs it. Raises LockError, ResolveError.

    After a refusal of the first candidate: without pins of gpuenv's own, another CUDA, an older local build, another Python.
    """
    pythons.choose_python(state)
    first = first_candidate(state)
    outcome = pythons.attempt_each_cuda(state, first)
    if isinstance(outcome, Refusal) and first.builds[0].index == "find-links":
        outcome = _try_older_local(state, outcome)
    if isinstance(outcome, Refusal):
        outcome = pythons.try_other_pythons(state, outcome)
    if isinstance(outcome, Refusal):
        raise retry.explain_refusal(state, outcome)
    best = _compare(state, outcome)
    for conflict in best.conflicts:
        if not conflict.roots and conflict.name in state.compatibility.named:
            raise ResolveError(
                f"{conflict.why}, and no other solution exists",
                hint=f"allow other releases of {conflict.name}, or another build of {best.builds[0].framework}",
            )
        state.note(conflict.sentence, "warning")
    older = pythons.prefer_older(state, best)
    return best if older is best else _compare(state, older)


def _compare(state: State, best: Solution) -> Solution:
    """Return the best of a solution and at most three others."""
    state.tried = [best]
    more = MOST_MORE
    while more and (better := _better_candidates(state, best)[: min(more, _AT_ONCE)]):
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            outcomes = list(pool.map(partial(attempt_or_refuse, state), better))
        for outcome in outcomes:
            elsewhere = all(b.index != "pytorch" for b in best.builds)
            if isinstance(outcome, Refusal) and outcome.error.unreachable == "pytorch" and elsewhere:
                state.close_pytorch(outcome.error)  # candidates of other indexes take its place
                continue
            more -= 1
            state.tried.append(outcome)
            state.note(reasons.describe_outcome(outcome), "done")
            if isinstance(outcome, Solution) and _rank(state, outcome) < _rank(state, best):
                best = outcome
    return best


def _try_older_local(state: State, refusal: Refusal) -> Outcome:
    """Return the solution with an older build of a folder of wheels, after a refusal of the newest."""
    python = refusal.asked.plan.python or ""
    for build in state.fitting.chains[0]:
        builds = state.fitting.replace_build(build, refusal.builds) if build.index == "find-links" else None
        if builds and builds != refusal.builds and python in state.fitting.question.pythons(build):
            wanted = (build.framework, build.version)
            outcome = attempt(state, make_candidate(state, builds, python, wanted))
            if isinstance(outcome, Solution):
                return outcome
    return refusal


def _solve_again(state: State, lock: Lock, moving: frozenset[str]) -> Solution:
    """Return the solution with the versions of a lock, or else one that keeps what it can, or else the best one."""
    keep = {name: p.version for name, p in state.locked.items() if not p.unhashed}
    builds, python = _builds_of(state, lock, moving), lock.plan.python or ""
    if builds and python in state.fitting.question.pythons(builds[0]):
        plan = state.fitting.plan(builds, python)
        pins = tuple(f"{name}=={version}" for name, version in keep.items())
        outcome = attempt_or_refuse(state, Candidate(plan=plan, builds=builds, limits=pins))
        if isinstance(outcome, Solution) and not outcome.conflicts:
            return outcome
        if isinstance(outcome, Refusal) and outcome.error.unreachable:
            raise outcome.error
    with_python = FittingBuilds(state.context, python)
    if not state.context.request.python and with_python.newest.builds:
        state.set_fitting(with_python)
    outcome = attempt(state, dataclasses.replace(first_candidate(state), prefer=keep))
    if isinstance(outcome, Refusal) or outcome.conflicts:
        state.set_fitting(FittingBuilds(state.context))
        outcome = _solve(state)
    new = [n.name for n in state.named if n.name not in keep or not meets(keep[n.name], n.specifier)]
    room = sorted(moving) or new
    if any(
        outcome.answer.versions.get(n, version) != version for n, version in keep.items() if n not in room
    ):
        state.note(f"changing locked packages to make room for {', '.join(room) or 'the requirements'}")
    return outcome


def _builds_of(state: State, lock: Lock, moving: frozenset[str]) -> tuple[Build, ...] | None:
    """Return the fitting builds of a lock, or None if one does not fit any more, may move, or is for another device."""
    if lock.plan.device != state.context.request.device:
        return None
    chosen = []
    for wanted, chain in zip(state.context.request.frameworks, state.fitting.chains, strict=True):
        locked = next((b for b in lock.plan.builds if b.framework == wanted.name), None)
        if locked is None or wanted.name in moving:
            return None
        same = [b for b in chain if (b.version, b.cuda) == (locked.version, locked.cuda)]
        here = [b for b in same if b.index == locked.index]
        chosen += (here or same)[:1]
    return tuple(chosen) if len(chosen) == len(state.fitting.chains) else None


def _rank(state: State, solution: Solution) -> tuple[object, ...]:
    """Return the sort key of a solution, best first."""
    order = [
        chain.index(chosen) if chosen in chain else len(chain)
        for chain, chosen in zip(state.fitting.chains, solution.builds, strict=True)
    ]
    ages = sorted(solution.behind.values(), reverse=True)
    return bool(solution.conflicts), bool(solution.compiles), max(ages, default=0), order, ages


# --- candidates whose answers could be better ------------------------------------------------------


def _better_candidates(state: State, best: Solution) -> list[Candidate]:
    """Return the candidates that were not asked and whose answers could be better, the most promising first."""
    found = (
        *_avoid_conflicts(state, best),
        *_avoid_compiler(state, best),
        *_list_package_candidates(state, best),
        *_list_framework_candidates(state, best),
    )
    # A candidate for another solution builds nothing that the first answer does not build: uv may consider many old
    # releases there.
    folders = (p.name for p in best.answer.packages if p.unhashed)
    built = frozenset([*best.answer.archives, *folders])
    for_wheels = (
        dataclasses.replace(c, only_binary=c.only_binary | {":all:"}, built=built - c.only_binary)
        for c in found
    )
    return [c for c in dict.fromkeys(for_wheels) if (c, c.plan.python) not in state.asked]


def _avoid_conflicts(state: State, best: Solution) -> Iterator[Candidate]:
    """For a release that does not go with the builds: the newest builds that it fits, or the answer without it."""
    python = best.plan.python or ""
    for conflict in best.conflicts[:2]:
        package = best.answer.by_name[conflict.name]
        wanted = (conflict.name, package.version)
        sets = (
            state.fitting.replace_build(b, best.builds)
            for b in state.fitting.chains[0]
            if b is not best.builds[0]
        )
        fit = next((s for s in sets if s and _is_compatible(state, package, s[0], s, python)), None)
        if fit and not any(t.asked.builds == fit for t in state.tried):
            yield make_candidate(state, fit, python, wanted)
            continue
        left_out = f"{conflict.name}!={package.version.partition('+')[0]}"
        limits = (*best.asked.limits, left_out)
        yield dataclasses.replace(make_candidate(state, best.builds, python, wanted), limits=limits)


def _is_compatible(
    state: State, package: LockedPackage, build: Build, builds: tuple[Build, ...], python: str
) -> bool:
    """Return whether a release goes with a build by its metadata, and with a set by its measured row."""
    return (
        meets(build.version, state.bounds_of(package).get(build.framework, ""))
        and python in state.fitting.question.pythons(build)
        and state.compatibility.explain_unfit(package, builds) is None
    )


def _avoid_compiler(state: State, best: Solution) -> Iterator[Candidate]:
    names = frozenset(n for n in best.compiles if state.rules.archives.wheel_files(n))
    if names:
        only_binary = best.asked.only_binary | names
        yield dataclasses.replace(best.asked, only_binary=only_binary, wanted=(min(names), ""))


def _list_package_candidates(state: State, best: Solution) -> Iterator[Candidate]:
    """For a package that is behind: the build that its newest release asks for, with the package listed first."""
    python = best.plan.python or ""
    for name in sorted(best.behind, key=lambda n: -best.behind[n]):
        newer = state.newest.by_name[name]
        for chain, chosen in zip(state.fitting.chains, best.builds, strict=True):
            build = next((b for b in chain if _is_compatible(state, newer, b, (b,), python)), chosen)
            builds = state.fitting.replace_build(build, best.builds) if build is not chosen else None
            if builds:
                yield make_candidate(state, builds, python, (name, newer.version), (name,))
        bounds = state.bounds_of(newer)
        if all(meets(b.version, bounds.get(b.framework, "")) for b in best.builds):
            yield dataclasses.replace(best.asked, first=(name,), wanted=(name, newer.version))


def _list_framework_candidates(state: State, best: Solution) -> Iterator[Candidate]:
    """For a framework that is not in its newest fitting build: that build.

    It cannot be better where no package is behind and one of them excludes it: that one would be behind.
    """
    builds = state.fitting.rows(state.fitting.newest)
    newest, named = builds[0], state.compatibility.named
    if newest.version == best.builds[0].version:
        return
    if best.behind or not reasons.who_excludes(
        state, best.answer, newest.framework, newest.version, builds, named
    ):
        yield make_candidate(state, builds, best.plan.python or "", (newest.framework, newest.version))


# --- results ---------------------------------------------------------------------------------------


def _without_builds(state: State, closed: LockError | None) -> tuple[Plan, None]:
    """Return the plan without builds. Raises LockError if an index that does not answer has builds that fit."""
    if closed is not None:
        raise LockError(
            f"{closed.message}; it has builds that fit, and no other index has one", hint=closed.hint,
            unreachable=closed.unreachable, log=closed.log,
        )  # fmt: skip
    return state.fitting.newest, None


def _lock(state: State, solution: Solution) -> tuple[Plan, Lock]:
    """Return the plan and the lock of a solution, with the reasons why others were not chosen."""
    reasons.refuse_cuda_on_cpu(state, solution)
    answer, context = solution.answer, state.context
    held_back = tuple(reasons.list_held_back(state, solution))
    passed = tuple(reasons.list_passed_over(state, solution))
    names = dict.fromkeys([*(n.name for n in state.named), *map(requirement_name, context.request.packages)])
    named = [f"{n}=={answer.versions[n]}" for n in names if n in answer.versions]
    plan = state.fitting.plan(solution.builds, solution.plan.python or "", named, passed)
    pages = state.pages.notes(answer.packages, plan)
    notes = (*plan.notes, *reasons.list_notes(state, solution), *pages)
    sets = tuple(reasons.list_compared(state, solution))
    plan = dataclasses.replace(plan, held_back=held_back, sets=sets, notes=notes)
    state.rules.announce(answer.packages, answer.archives, plan)
    for text in reasons.list_warnings(state, solution):
        state.note(text, "warning")
    plan = add_locked_indexes(plan, answer.packages)
    lock = Lock(
        manager="venv", target=context.target, plan=plan, packages=answer.packages, held_back=held_back,
    )  # fmt: skip
    count = len(lock.packages)
    state.rules.emit(Event("done", "lock", f"{count} packages", done=count))
    return plan, lock
