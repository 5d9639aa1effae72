"""Choose the builds that fit a target, and explain why nothing newer fits. Pure: no I/O, no machine.

The newest version of the first named framework is preferred. Within it, CUDA that the driver supports
natively comes before CUDA by minor-version compatibility, each highest first. Then the default index comes
before the PyTorch index. For a CPU environment a CPU build comes before any CUDA build. The first build
without an objection is chosen; every objection is kept.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator

from packaging.requirements import Requirement

from ..model import (
    AvailableWheels,
    Build,
    FrameworkRequest,
    Plan,
    PlannedBuild,
    Profiles,
    RejectedBuild,
    RejectionReason,
    Request,
    RequestContext,
    Target,
    requirement_name,
)
from ..system.versions import is_exact, major, version
from .choice import (
    SolvedBuilds,
    candidates,
    choose_compatible,
    explain_passed_over,
    plan_builds,
    toolkit_note,
)
from .hints import hint_for
from .objections import fits, objections
from .question import Question, make_question
from .satellites import add_extras
from .toolkit import bounds_of, is_toolkit_part, toolkit_packages

__all__ = ["plan_request", "resolve"]


def resolve(
    request: Request,
    target: Target,
    profiles: Profiles,
    available: AvailableWheels | None = None,
    others: Iterable[Target] = (),
    solved: SolvedBuilds | None = None,
) -> Plan:
    """Return the plan for a request on a target: the newest builds that fit, or those that a solve chose.

    A plan without builds states the reasons (`rejected`) and what would help (`hint`). With `others` the
    builds fit these targets too. `request.device` must be cuda or cpu. Framework names must be known. Raises
    nothing.
    """
    question = make_question(request, profiles, available or AvailableWheels(), (target, *others))
    chains = [_judge_builds(question, wanted, solved) for wanted in request.frameworks]
    chosen, python, rejected = _choose(question, chains, solved)
    plan = Plan(
        builds=(), python=python, platform=target.platform, manager=request.manager,
        device=request.device, target=target, rejected=tuple(rejected),
    )  # fmt: skip
    if not (chosen and python):
        return dataclasses.replace(plan, hint=hint_for(question, plan))
    builds = plan_builds(question, chosen, python)
    cuda = next((b.cuda for b in chosen if b.cuda), None) if request.device == "cuda" else None
    packages, left_out = _companions(question, chosen, solved.pins if solved else ())
    parts, of_parts = toolkit_packages(question, chosen)
    newer = _newer_cuda_builds(question, builds) if request.device == "cpu" and not solved else ()
    return dataclasses.replace(
        plan,
        builds=builds,
        cuda_major=major(cuda) if cuda else None,
        cudnn=next((b.cudnn for b in builds if b.cudnn), None),
        packages=(*packages, *parts),
        notes=(*_list_notes(question, chosen, solved), *left_out, *of_parts, *newer),
    )


def _judge_builds(
    question: Question, wanted: FrameworkRequest, solved: SolvedBuilds | None
) -> list[tuple[Build, tuple[RejectionReason, ...]]]:
    """Return the candidates, best first, each with the objections to it.

    The chosen one ends the list, or the first that fits of a single framework. Several frameworks choose among all that fit.
    """
    judged = []
    for build in candidates(question, wanted):
        judged.append((build, reasons := objections(question, wanted, build)))
        if solved:
            if build in solved.builds:
                break
        elif (
            not reasons
            and len(question.request.frameworks) == 1
            and choose_compatible(question, [], [[build]])[0]
        ):
            break
    return judged


def _choose(
    question: Question,
    chains: list[list[tuple[Build, tuple[RejectionReason, ...]]]],
    solved: SolvedBuilds | None,
) -> tuple[list[Build], str | None, list[RejectedBuild]]:
    """Return the first build of each chain that is compatible with builds of all others, and their Python.

    Return also the builds that were passed over, chain by chain. What a solve chose stays.
    """
    clean = [[b for b, reasons in chain if not reasons] for chain in chains]
    passed = dict(solved.passed) if solved else {}
    chosen, python = choose_compatible(question, [], [[b] for b in solved.builds] if solved else clean)
    rejected = []
    for i, chain in enumerate(chains):
        for build, reasons in chain:
            if chosen and build == chosen[i]:
                break
            all_reasons = reasons
            if solved and (build in passed or not reasons):
                why = passed.get(build, "the requested packages conflict with it")
                own = (r for r in reasons if r.code != "index_unreachable")  # the packages decide with it too
                all_reasons = (RejectionReason("requirement_conflict", why), *own)
            elif not reasons:
                others = clean[:i] + clean[i + 1 :]
                all_reasons = (explain_passed_over(question, build, chosen[:i], others),)
            rejected.append(
                RejectedBuild(
                    framework=build.framework, version=build.version, cuda=build.cuda,
                    index=build.index, reasons=all_reasons,
                )
            )  # fmt: skip
    return chosen, python, rejected


# --- notes and companions -------------------------------------------------------------


def _list_notes(question: Question, chosen: list[Build], solved: SolvedBuilds | None) -> Iterator[str]:
    target, request = question.target, question.request
    for build in chosen:
        if build.yanked:
            yield f"{build.framework} {build.version} was withdrawn by its publisher (yanked)"
    if request.device == "cpu":
        for build in chosen:
            if build.cuda:
                yield (
                    f"{build.framework} {build.version} is the CUDA {build.cuda} build and runs on the CPU: "
                    + (
                        f"CUDA {request.cuda} was requested"
                        if request.cuda
                        else "no CPU build of it is available"
                    )
                )
        return
    given = {q.target.driver_branch: q.target.driver for q in question.per_target}
    for branch, driver in given.items():
        if branch:
            yield f"driver {branch} is read as {driver}, its first release"
    newest = max((row.branch for row in question.profiles.branches), key=int, default="")
    for driver in {q.target.driver: None for q in question.per_target}:
        if driver and newest and int(major(driver)) > int(newest):
            yield f"driver {driver} is newer than all that gpuenv knows (to {newest}): it is taken to run every build"
    if not target.driver:
        yield "no driver given: the plan is not limited by a driver"
    if not target.gpus:
        yield "no GPU given: the plan is not limited by a GPU"
    cuda, oldest = min(
        ((q.driver_cuda, q.target.driver) for q in question.per_target if q.driver_cuda),
        key=lambda one: version(one[0]), default=(None, None),
    )  # fmt: skip
    for wanted, build in zip(request.frameworks, chosen, strict=True):
        if cuda and build.cuda and version(build.cuda) > version(cuda):
            yield (
                f"{build.framework} {build.version} is built with CUDA {build.cuda}; driver {oldest} "
                f"supports CUDA {cuda} and runs it by minor-version compatibility"
            )
        elif cuda and build.cuda and len(chosen) == 1 and not solved:
            same = [
                b.cuda
                for b in candidates(question, wanted)
                if b.version == build.version and fits(question, wanted, b)
            ]
            newest = max(filter(None, same), key=version, default=build.cuda)
            if version(newest) > version(build.cuda):
                yield (
                    f"CUDA {build.cuda}, not {newest}, because driver {oldest} supports CUDA {cuda}: it would run {newest} "
                    f"only by minor-version compatibility. To choose that: --cuda {newest}"
                )
        if build.cudnn and not build.requires and not is_exact(build.cudnn):
            yield (
                f"{build.framework} {build.version} contains no CUDA: it needs CUDA {build.cuda} and cuDNN "
                f"{build.cudnn} on the loader path"
            )
        yield from toolkit_note(question, build)


def _newer_cuda_builds(question: Question, chosen: Iterable[PlannedBuild]) -> Iterator[str]:
    """Yield notes on newer CUDA builds that were passed over for a CPU build."""
    for wanted, build in zip(question.request.frameworks, chosen, strict=True):
        fitting = [b.version for b in candidates(question, wanted) if b.cuda and fits(question, wanted, b)]
        newest = max(fitting, key=version, default=build.version)
        if build.cuda is None and version(newest) > version(build.version):
            yield (
                f"{build.framework} {newest} is newer, but exists only as a CUDA build: select it with "
                f"--framework '{build.framework}=={newest}'"
            )


def _companions(
    question: Question, chosen: list[Build], pins: tuple[str, ...]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the requested packages, companions in the matching version, and notes on those left out."""
    packages, notes = [], []
    for text in question.request.packages:
        need = Requirement(text)
        if is_toolkit_part(question, need):
            continue
        owner = next((b for b in chosen if _find_last_with(question, b.framework, need.name)), None)
        if owner is None or need.specifier:
            packages.append(text)
            continue
        known = (*pins, *owner.companions)
        match = next((c for c in known if requirement_name(c) == need.name), None)
        if match:
            packages.append(match)
            continue
        last = _find_last_with(question, owner.framework, need.name)
        notes.append(
            f"{need.name} is omitted, because it has no release for {owner.framework} {owner.version}. "
            f"The newest {owner.framework} with one is {last}: use --framework '{owner.framework}=={last}'"
        )
    return tuple(packages), tuple(notes)


def _find_last_with(question: Question, framework: str, companion: str) -> str | None:
    """Return the newest version of a framework with a companion, or None."""
    having = (
        b.version
        for b in question.profiles.builds
        if b.framework == framework and companion in bounds_of(b.companions)
    )
    return max(having, key=version, default=None)


# --- the plan of a request, with the extras that its packages need --------------------------------------------


def plan_request(context: RequestContext, solved: SolvedBuilds | None = None) -> Plan:
    """Return the plan, with the builds of a solve if one is given. If no Python of this machine fits, one that uv could download
    is tried.

    The notes of the plan explain the lines of files on packages that it selects. The others are said to be left out.
    """
    plan = _plan_targets(context, solved)
    if not plan.builds and context.pythons_known and not context.sources.offline:
        wider = _plan_targets(context.with_request(pythons=()))
        plan = wider if wider.builds else plan
    plan = add_extras(plan, context, solved.pins if solved else ())
    places = [f"({line.origin})" for line in context.request.stack]
    explained = [place for place in places if any(place in note for note in plan.notes)]
    left_out = (
        text for text in context.requirements.left_out if not any(place in text for place in explained)
    )
    return dataclasses.replace(plan, notes=(*plan.notes, *left_out))


def _plan_targets(context: RequestContext, solved: SolvedBuilds | None = None) -> Plan:
    """Return the plan for the target, or the one plan that fits several targets."""
    first, *others = context.targets or (context.target,)
    plan = resolve(context.request, first, context.profiles, context.available, others, solved)
    return dataclasses.replace(plan, target=context.target)
