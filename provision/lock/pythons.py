"""Chooses the Python of a lock, and asks the first candidate for each CUDA and Python that is possible.

An old pin often has no wheel for the newest Python. Another Python is then better than a compiler.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import replace

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from ..errors import LockError
from ..index.simple_api import version_of
from ..index.wheel_names import tags_of, wheel_tags
from ..model import Plan
from ..system.versions import allows, version
from ..wheels.pylock import is_source
from .attempt import attempt, first_candidate, make_candidate
from .builds import FittingBuilds, chosen_pins
from .named import NamedPackage
from .search_state import Candidate, Outcome, Refusal, Solution, State

_DEPRECATED = 2
"""The years that Python keeps what it has called deprecated."""


def choose_python(state: State) -> None:
    """Take the newest Python for which all named packages have their newest release, best as a wheel.

    Only for a machine whose Pythons are unknown: the newest Python of a framework is often too new for the packages.
    """
    request, plan = state.context.request, state.fitting.newest
    if request.python or request.pythons or not plan.builds:
        return
    possible, held_by = list(state.fitting.question.pythons(state.fitting.rows(plan)[0])), ""
    for named in state.named:
        newest = {p: _newest_usable(state, named, replace(plan, python=p)) for p in possible}
        best = max(filter(None, newest.values()), default=None)
        fitting = [p for p in possible if best and newest[p] == best]
        if best and fitting[0] != possible[0]:
            what = "has no wheel for" if best[1] else "does not support"
            held_by = f"{named.name} {best[0]} {what} Python {possible[0]}"
        possible = fitting or possible
    other = FittingBuilds(state.context, possible[0])
    if held_by and other.newest.builds:
        state.note(f"Python {possible[0]} in place of {plan.python}: {held_by}")
        state.set_fitting(other)


def _newest_usable(state: State, named: NamedPackage, plan: Plan) -> tuple[Version, bool] | None:
    """Return the newest final release within the bounds for a plan's Python, and whether it has a wheel for it."""
    try:
        releases = state.rules.archives.releases(named.name, SpecifierSet(named.specifier), plan)
        sources = {p.version for p in state.rules.archives.list_archives(named.name)}
    except LockError:
        return None  # the solve says why the index does not answer
    usable = (r for r in releases.items() if (r[1] or str(r[0]) in sources) and not r[0].is_prerelease)
    return max(usable, default=None)


def attempt_each_cuda(state: State, candidate: Candidate) -> Outcome:
    """Return the outcome of a first candidate, or after a refusal that of builds of the same index for another CUDA.

    One query cannot choose between them: they differ in the extra that brings CUDA. A refusal that names a bound on
    Python, or a missing wheel, is returned before others.
    """
    first, python = candidate.builds[0], candidate.plan.python or ""
    todo, asked, refusals = [candidate], {*state.groups(candidate)[0]}, []
    alone = len(state.fitting.chains) == 1  # a second framework does not lower the first one
    for build in state.fitting.chains[0] if alone and not candidate.fixed else ():
        here = build.index == first.index and python in state.fitting.question.pythons(build)
        if here and build not in asked:
            todo.append(replace(make_candidate(state, (build,), python), fixed=False))
            asked |= {build, *state.groups(todo[-1])[0]}
    for one in todo:
        outcome = attempt(state, one)
        if isinstance(outcome, Refusal):
            refusals.append(outcome)
            if chosen_pins(one.plan, one.builds) or state.compatibility.limits(state.groups(one)):
                outcome = attempt(state, replace(one, loose=True))
        if isinstance(outcome, Solution):
            return outcome
    return next((r for r in refusals if r.error.pythons or r.error.no_wheel), refusals[0])


def try_other_pythons(state: State, refusal: Refusal) -> Outcome:
    """Ask for other Pythons after a refusal that names bounds on Python, or a package without a wheel for this one."""
    python = refusal.asked.plan.python or ""
    bounded = (n.name for n in state.named if n.name in refusal.error.named and n.specifier)
    lacking = refusal.error.no_wheel or next(
        (n for n in bounded if not _list_with_wheel(state, n, [python])), None
    )
    for other in _list_others(state, refusal.error, lacking, python):
        fitting = FittingBuilds(state.context, other)
        if not fitting.newest.builds:
            continue
        within = next(
            (f"{n.name}{n.specifier}" for n in state.named if n.name == lacking and n.specifier),
            f"{lacking} that fits",
        )
        cause = (
            f"no release of {within} has a wheel for Python {python}"
            if lacking
            else "the requirements do not support it"
        )
        state.note(f"Python {python} is not possible: {cause}. Trying Python {other}")
        state.set_fitting(fitting)
        outcome = attempt_each_cuda(state, first_candidate(state))
        if isinstance(outcome, Solution):
            return outcome
        refusal = outcome
    return refusal


def _list_others(state: State, error: LockError, lacking: str | None, python: str) -> list[str]:
    if state.context.request.python or not (error.pythons or lacking):
        return []
    known = {p for b in state.fitting.chains[0] for p in b.python} - {python}
    fitting = {p for p in known if all(allows(bound, p) for bound in error.pythons[:1])}
    if lacking:
        fitting &= _list_with_wheel(state, lacking, fitting)
    have = state.context.request.pythons
    newest = sorted(fitting, key=version, reverse=True)
    return sorted(newest, key=lambda p: have.index(p) if p in have else len(have))[:2]


def _list_with_wheel(state: State, name: str, pythons: Iterable[str]) -> set[str]:
    """Return the Pythons for which a package has a wheel within its bounds."""
    bounds = SpecifierSet(next((n.specifier for n in state.named if n.name == name), ""))
    files = [f.name for f in state.rules.archives.wheel_files(name)]
    within = (f for f in files if (v := version_of(f, name)) and bounds.contains(v, prereleases=True))
    tags = frozenset(tag for file in within for tag in tags_of(file))
    target = state.context.target
    return {p for p in pythons if not tags.isdisjoint(wheel_tags(p, target.platform, target.glibc))}


def prefer_older(state: State, best: Solution) -> Solution:
    """Return the solution with an older Python, if a package that must be built is older than the Python.

    Python warns for two years before it removes what a program uses (PEP 387), and C code may break with each release.
    Where a build needs a compiler, older builds of the framework may have that Python.
    """
    python = best.plan.python or ""
    days, request = best.answer.uploaded, state.context.request
    released = {row.version: row.released for row in state.context.profiles.pythons}
    sources = [p for p in best.answer.packages if is_source(p) and p.name in days]
    years = {p.name: 0 if p.name in best.compiles else _DEPRECATED for p in sources}
    until = {n: str(int(days[n][:4]) + more) + days[n][4:] for n, more in years.items()}
    late = [p for p in sources if until[p.name] < released.get(python, "")]
    if not late or request.python or state.context.sources.no_code:
        return best
    oldest = min(late, key=lambda p: until[p.name])
    allowed = request.pythons or tuple(released)
    compiled = {p.name for p in late} & {*best.compiles}
    builds = state.fitting.chains[0] if compiled else best.builds[:1]
    known = {p for build in builds for p in build.python}
    for name in compiled:
        known &= _list_with_wheel(state, name, known)
    other = max(
        (p for p in known if released.get(p, "9") <= until[oldest.name] and p in allowed),
        key=version,
        default=None,
    )
    older = FittingBuilds(state.context, other) if other else None
    if older and older.newest.builds:
        again = replace(state, fitting=older)
        with contextlib.suppress(LockError):
            outcome = attempt(again, first_candidate(again))
            if isinstance(outcome, Solution) and not (outcome.conflicts or compiled & {*outcome.compiles}):
                state.note(
                    f"Python {other} in place of {python}: {oldest.name} {oldest.version} of {days[oldest.name]} has no wheel, "
                    f"and is older than Python {python}"
                )
                state.set_fitting(older)
                return outcome
    return best
