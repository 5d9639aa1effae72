"""A candidate of a search: what it is, uv's answer to it, and the judgement."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from packaging.requirements import Requirement

from ..detect import find_python
from ..errors import LockError
from ..index.config import own_cache, pytorch_address, pytorch_packages
from ..index.refusals import NETWORK_HINT
from ..model import (
    Build,
    CompanionLimit,
    LockedPackage,
    PackageSources,
    Plan,
    RequirementLine,
    drop_event,
    requirement_name,
)
from ..resolve.satellites import companion_names
from ..system.redaction import redact
from ..system.versions import meets
from .builds import chosen_pins, pins
from .compile import Answer, Query
from .pinned import find_difference
from .search_state import Candidate, Outcome, Refusal, Solution, State
from .source_builds import source_rules


def first_candidate(state: State) -> Candidate:
    """Return the first candidate: the newest fitting builds, and all others of their index."""
    plan = state.fitting.newest
    python = plan.python or ""
    if paged := state.pages.builds(python):
        return make_candidate(state, paged, python)
    builds, context = state.fitting.rows(plan), state.context
    local = any(b.index == "find-links" for b in builds)
    fixed = local or context.request.pre or context.available.only_wheels
    return Candidate(plan=plan, builds=builds, fixed=fixed)


def make_candidate(
    state: State,
    builds: tuple[Build, ...],
    python: str,
    wanted: tuple[str, str] = ("", ""),
    first: tuple[str, ...] = (),
) -> Candidate:
    """Return the candidate with exactly these builds. uv decides the packages of `first` first."""
    plan = state.fitting.plan(builds, python)
    return Candidate(plan=plan, builds=builds, first=first, wanted=wanted)


def attempt(state: State, candidate: Candidate) -> Outcome:
    """Return uv's answer with a judgement, or uv's refusal. Raises LockError for any other failure.

    The newest releases of the named packages are looked up at the same time, if they are not known yet.
    """
    state.asked.add((candidate, candidate.plan.python))
    check_index(state.context.sources, candidate.plan)
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(_find_newest, state, candidate.plan)
        try:
            answer = _make_query(state, candidate).answer()
        except LockError as error:
            if error.contradiction or error.absent:
                return Refusal(candidate, error)
            raise
        finally:
            reading.result()
    if state.context.sources.no_code and (wheels := state.pages.packages(candidate.plan)):
        answer = dataclasses.replace(answer, packages=(*answer.packages, *wheels))
    return _judge(state, candidate, answer)


def attempt_or_refuse(state: State, candidate: Candidate) -> Outcome:
    """As `attempt`, but each LockError becomes a Refusal."""
    try:
        return attempt(state, candidate)
    except LockError as error:
        return Refusal(candidate, error)


def _find_newest(state: State, plan: Plan) -> None:
    """Look up the newest releases of the named packages, once for a Python until they are found."""
    texts = tuple(n.text for n in state.named if not n.index and not n.is_exact)
    if texts and not state.newest.packages and state.newest_for != plan.python:
        state.newest_for = plan.python
        quiet = source_rules(state.context.sources, drop_event)
        state.newest = Query(plan=plan, rules=quiet, emit=state.rules.emit, roots=texts, alone=True).newest()


# --- ask -------------------------------------------------------------------------------------------


def check_index(sources: PackageSources, plan: Plan) -> None:
    """Raise LockError if a plan needs the PyTorch index and a connection fails. uv would try it for seconds."""
    if sources.offline or sources.no_index or not pytorch_packages(plan):
        return
    from ..index.http import find_connection_error

    address = pytorch_address(sources.pytorch, plan)
    if why := find_connection_error(address, sources.proxy):
        raise LockError(
            f"the package index {redact(address)} {why}", hint=NETWORK_HINT, unreachable="pytorch"
        )


def _make_query(state: State, candidate: Candidate) -> Query:
    """Return the query of a candidate: named packages of the rows first, then the frameworks, then the rest."""
    plan, context, builds = candidate.plan, state.context, candidate.builds
    measured = (n.name for n in state.named if n.name in state.compatibility.rows.packages)
    own = [*_packages(state, plan), *(n.text for n in context.requirements.lines if is_plain(n))]
    leading = [
        text
        for name in dict.fromkeys([*candidate.first, *measured])
        for text in own
        if requirement_name(text) == name
    ]
    groups = state.groups(candidate)
    if candidate.fixed:
        frameworks = pins(plan)
        limits = state.compatibility.exclude_releases([builds])
    else:
        frameworks = [state.fitting.root(b, plan.python) for b in builds]
        frameworks += [] if candidate.loose else chosen_pins(plan, builds)
        limits = [state.fitting.limit(g) for g in groups]
        limits += state.compatibility.exclude_releases([(b, *builds[1:]) for b in groups[0]])
    limits += [] if candidate.loose else [row.requires for row in state.compatibility.limits(groups)]
    # A release that is named exactly, and has no row, gets no limit: uv's refusal is the reason.
    free = {
        n.name for n in state.named if n.is_exact and not state.compatibility.has_row(n.name, n.specifier)
    }
    limits = [text for text in limits if requirement_name(text) not in free]
    # uv decides requirements of this one file in its order, and those of other files first.
    pip_here = not context.sources.offline or any(w.name == "pip" for w in context.available.wheels)
    roots = list(dict.fromkeys([*leading, *frameworks, *own, *["pip"] * (state.has_pip and pip_here)]))
    root_lines = tuple(n for n in context.requirements.lines if is_plain(n))
    lines = tuple(n for n in context.requirements.lines if not is_plain(n))
    paged = {p.name for p in state.pages.packages(plan)}
    if context.sources.no_code:  # a wheel of a page is fetched to lock it, and not to plan it
        roots = [text for text in roots if requirement_name(text) not in paged]
        lines = tuple(n for n in lines if n.constraint or n.name not in paged)
    else:
        lines = tuple(
            n if n.constraint or n.is_direct or n.index or not n.name
            else dataclasses.replace(n, text=state.pages.require(n.text, plan)) for n in lines
        )  # fmt: skip
        roots = [state.pages.require(text, plan) for text in roots]
    # The user pins packages to addresses, and pages have others: no limit applies to them.
    direct = {n.package for n in lines if n.name and not n.constraint} | paged
    limits = [text for text in limits if requirement_name(text) not in direct]
    return Query(
        plan=plan, rules=state.rules, emit=state.rules.emit, roots=tuple(roots), lines=lines, root_lines=root_lines, limits=(*limits, *candidate.limits),
        prefer=candidate.prefer, only_binary=candidate.only_binary, built=candidate.built,
        python=find_python(plan.python or "", context.machine, own_cache(context.sources)), variants_for=state.fitting.question,
    )  # fmt: skip


def _packages(state: State, plan: Plan) -> list[str]:
    """Return the requested packages of a plan. A plan pins or omits companions; here uv chooses their release."""
    companions = companion_names(state.context.profiles.builds)
    asked = {
        requirement_name(text): text for text in state.context.request.packages if not Requirement(text).url
    }
    planned = [
        asked.get(requirement_name(p), p) if requirement_name(p) in companions else p for p in plan.packages
    ]
    names = {requirement_name(p) for p in planned}
    return [*planned, *(t for n, t in asked.items() if n in companions and n not in names)]


def is_plain(need: RequirementLine) -> bool:
    """Return whether a line is a requirement of a release on the configured indexes."""
    return bool(need.name) and not (
        need.is_direct or need.constraint or need.override or need.index or need.hashes
    )


# --- judge -----------------------------------------------------------------------------------------


def find_exceeded(
    state: State, builds: Sequence[Build], answer: Answer
) -> list[tuple[CompanionLimit, LockedPackage]]:
    """Return the packages of an answer that are newer than its builds allow."""
    exceeded = []
    for row in state.compatibility.limits([[b] for b in builds]):
        need = Requirement(row.requires)
        package = answer.by_name.get(need.name)
        if package and package.version and not meets(package.version, str(need.specifier)):
            exceeded.append((row, package))
    return exceeded


def _judge(state: State, candidate: Candidate, answer: Answer) -> Outcome:
    """Compare an answer with the facts. An answer whose pins are not those of its builds is asked again, fixed."""
    builds = state.fitting.find_builds(state.groups(candidate), answer.versions)
    if builds is None:
        named = " and ".join(b.framework for b in candidate.builds)
        error = LockError(f"the solver chose a release of {named} that does not fit", contradiction=True)
        return Refusal(candidate, error)
    plan = candidate.plan
    if builds != candidate.builds:
        locked = answer.versions
        named_pins = [f"{n.name}=={locked[n.name]}" for n in state.named if n.name in locked]
        plan = state.fitting.plan(builds, plan.python or "", named_pins)
    why = find_difference(plan, answer, state.context.sources, state.context.requirements.lines)
    if why and candidate.fixed:
        raise why
    if why or not (candidate.loose or candidate.fixed or not find_exceeded(state, builds, answer)):
        return attempt(state, dataclasses.replace(candidate, plan=plan, builds=builds, fixed=True))
    return Solution(
        asked=candidate, plan=plan, builds=builds, answer=answer,
        conflicts=tuple(state.compatibility.conflicts(builds, answer)),
        compiles=tuple(n for n, archive in answer.archives.items() if archive and archive.compiles),
        behind=state.measure_ages(answer),
    )  # fmt: skip
