"""Chooses the candidates of a search: the first one, and those whose answers could be better."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from ..model import Build, LockedPackage
from ..system.versions import meets
from .reasons import who_excludes
from .search_state import Candidate, Solution, State


def first_candidate(state: State) -> Candidate:
    """Return the first candidate: the newest fitting builds, and all others of their index."""
    plan = state.fitting.newest
    python = plan.python or ""
    if paged := state.pages.builds(python):
        return with_builds(state, paged, python)
    builds, context = state.fitting.rows(plan), state.context
    local = any(b.index == "find-links" for b in builds)
    fixed = local or context.request.pre or context.supply.only_wheels
    return Candidate(plan=plan, builds=builds, fixed=fixed)


def with_builds(
    state: State,
    builds: tuple[Build, ...],
    python: str,
    wanted: tuple[str, str] = ("", ""),
    leading: tuple[str, ...] = (),
) -> Candidate:
    """Return the candidate with exactly these builds. uv decides the packages of `leading` first."""
    plan = state.fitting.plan(builds, python)
    return Candidate(plan=plan, builds=builds, first=leading, wanted=wanted)


def better_candidates(state: State, best: Solution) -> list[Candidate]:
    """Return the candidates that were not tried and whose answers could be better, the most promising first."""
    asked = {outcome.asked for outcome in state.tried}
    found = (
        *_without_conflicts(state, best),
        *_without_compiler(state, best),
        *_for_packages(state, best),
        *_for_framework(state, best),
    )
    # A candidate for another solution builds nothing that the first answer does not build: uv may consider many old
    # releases there.
    folders = (p.name for p in best.answer.packages if p.unhashed)
    built = frozenset([*best.answer.archives, *folders])
    for_wheels = (
        dataclasses.replace(c, only_binary=c.only_binary | {":all:"}, built=built - c.only_binary)
        for c in found
    )
    return [c for c in dict.fromkeys(for_wheels) if c not in asked]


def _without_conflicts(state: State, best: Solution) -> Iterator[Candidate]:
    """For a release that does not go with the builds: the newest builds that it fits, or the answer without it."""
    python = best.plan.python or ""
    for conflict in best.conflicts[:2]:
        package = best.answer.by_name[conflict.name]
        wanted = (conflict.name, package.version)
        sets = (
            state.fitting.beside(b, best.builds) for b in state.fitting.chains[0] if b is not best.builds[0]
        )
        fit = next((s for s in sets if s and _goes_with(state, package, s[0], s, python)), None)
        if fit and not any(t.asked.builds == fit for t in state.tried):
            yield with_builds(state, fit, python, wanted)
            continue
        left_out = f"{conflict.name}!={package.version.partition('+')[0]}"
        limits = (*best.asked.limits, left_out)
        yield dataclasses.replace(with_builds(state, best.builds, python, wanted), limits=limits)


def _goes_with(
    state: State, package: LockedPackage, build: Build, builds: tuple[Build, ...], python: str
) -> bool:
    """Return whether a release goes with a build by its metadata, and with a set by its measured row."""
    return (
        meets(build.version, state.bounds_of(package).get(build.framework, ""))
        and python in state.fitting.question.pythons(build)
        and state.facts.why_unfit(package, builds) is None
    )


def _without_compiler(state: State, best: Solution) -> Iterator[Candidate]:
    names = frozenset(n for n in best.compiles if state.rules.archives.wheel_files(n))
    if names:
        only_binary = best.asked.only_binary | names
        yield dataclasses.replace(best.asked, only_binary=only_binary, wanted=(min(names), ""))


def _for_packages(state: State, best: Solution) -> Iterator[Candidate]:
    """For a package that is behind: the build that its newest release asks for, with the package listed first."""
    python = best.plan.python or ""
    for name in sorted(best.behind, key=lambda n: -best.behind[n]):
        newer = state.newest.by_name[name]
        for chain, chosen in zip(state.fitting.chains, best.builds, strict=True):
            build = next((b for b in chain if _goes_with(state, newer, b, (b,), python)), chosen)
            builds = state.fitting.beside(build, best.builds) if build is not chosen else None
            if builds:
                yield with_builds(state, builds, python, (name, newer.version), (name,))
        bounds = state.bounds_of(newer)
        if all(meets(b.version, bounds.get(b.framework, "")) for b in best.builds):
            yield dataclasses.replace(best.asked, first=(name,), wanted=(name, newer.version))


def _for_framework(state: State, best: Solution) -> Iterator[Candidate]:
    """For a framework that is not in its newest fitting build: that build.

    It cannot be better where no package is behind and one of them excludes it: that one would be behind.
    """
    builds = state.fitting.rows(state.fitting.newest)
    newest, named = builds[0], state.facts.named
    if newest.version == best.builds[0].version:
        return
    if best.behind or not who_excludes(state, best.answer, newest.framework, newest.version, builds, named):
        yield with_builds(state, builds, best.plan.python or "", (newest.framework, newest.version))
