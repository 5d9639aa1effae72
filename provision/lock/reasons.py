"""Says why a lock has no newer releases. Each reason is a measured row, stated metadata, or a solution that exists."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import partial

from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from ..errors import LockError
from ..model import (
    Build,
    FrameworkRequest,
    HeldBackPackage,
    LockedPackage,
    PackageSet,
    Plan,
    format_bytes,
    requirement_name,
)
from ..requirements.quote import try_requirement
from ..resolve.objections import objections
from ..resolve.satellites import lone_companions
from ..system.versions import meets, public, version
from .attempt import find_exceeded
from .builds import name_builds
from .compile import Answer
from .named import NamedPackage
from .search_state import Outcome, Refusal, Solution, State

_OLD = 2 * 365
"""Days behind the newest release from which a warning is given."""
_KEPT = "the existing lock has {locked}; to upgrade it: gpuenv lock --upgrade {package}"


def list_held_back(state: State, chosen: Solution) -> list[HeldBackPackage]:
    """Return what is not in its newest release: frameworks, named packages that bind one, and older wheels."""
    asked = zip(state.context.request.frameworks, state.fitting.chains, strict=True)
    rows = [row for wanted, chain in asked if (row := _explain_framework(state, chosen, wanted, chain))]
    rows += [_explain_package(state, chosen, name) for name in chosen.behind]
    listed = {row.package for row in rows}
    return [*rows, *(row for row in _older_wheels(state, chosen) if row.package not in listed)]


def _older_wheels(state: State, chosen: Solution) -> Iterator[HeldBackPackage]:
    """Yield the packages in an older release with a wheel, where another solution has a newer one to compile."""
    where = f"Python {chosen.plan.python} on {chosen.plan.platform}"
    for name in sorted(chosen.asked.only_binary & chosen.answer.versions.keys()):
        locked = chosen.answer.versions[name]
        compiled = (o for o in state.tried if isinstance(o, Solution) and name in o.compiles)
        newer = {o.answer.versions[name]: o.answer.archives.get(name) for o in compiled}
        newest = max(newer, key=version, default=locked)
        if version(newest) > version(locked):
            archive = newer[newest]
            needs = f", and a build needs a compiler: {archive.compiles}" if archive else ""
            yield HeldBackPackage(
                package=name, locked=locked, newest=newest, because=f"{name} {newest} has no wheel for {where}{needs}"
            )  # fmt: skip


def list_passed_over(state: State, chosen: Solution) -> Iterator[tuple[Build, str]]:
    """Yield the builds that fit and were not chosen, with what decides against the newest of each framework.

    The builds of an index that does not respond are among them, unless this index is the reason.
    """
    for wanted, chain in zip(state.context.request.frameworks, state.fitting.chains, strict=True):
        build, _, usable = _list_newer_builds(state, chosen, wanted, chain)
        closed = (
            () if _find_unreachable(state, chosen, chain, usable) else [b for b in usable if b not in chain]
        )
        because = "the requested packages conflict with it"
        if usable:
            because = _explain_excluded(state, chosen, usable[0])
        for one in (*chain, *closed):
            if one is not build:
                yield one, because


def _explain_framework(
    state: State, chosen: Solution, wanted: FrameworkRequest, chain: Sequence[Build]
) -> HeldBackPackage | None:
    """Return why a framework is not in the newest version within its bounds."""
    build, newer, usable = _list_newer_builds(state, chosen, wanted, chain)
    if not newer or state.context.request.cuda:
        return None
    newest = newer[0].version
    price: str | None = None
    if closed := _find_unreachable(state, chosen, chain, usable):
        name = "PyTorch index" if closed.index == "pytorch" else "default index"
        cuda = f" for CUDA {closed.cuda}" if closed.cuda else ""
        because = f"the {name} does not respond; it has {closed.framework} {closed.version}{cuda}, which fits"
    elif any(b.version == newest for b in chain):
        because = _explain_excluded(state, chosen, usable[0])
        price = _describe_cost(state, chosen, wanted.name, newest)
    elif usable and (why := _find_decider(state, chosen, wanted.name, newest, usable[:1])):
        because = why
    else:
        reasons = [objections(state.fitting.question, wanted, b) for b in newer if b.version == newest]
        fewest = min(filter(None, reasons), key=len, default=None)
        because = fewest[0].text if fewest else "it conflicts with the other frameworks"
    return HeldBackPackage(
        package=wanted.name, locked=build.version, newest=newest, because=because, alternative=price
    )


def _list_newer_builds(
    state: State, chosen: Solution, wanted: FrameworkRequest, chain: Sequence[Build]
) -> tuple[Build, list[Build], list[Build]]:
    """Return the chosen build of a framework, the newer ones within the bounds and of its kind, and those that fit.

    Both are sorted, newest first. Those of an index that does not respond fit too.
    """
    build = next(b for b in chosen.builds if b.framework == wanted.name)
    bound = state.fitting.bounds(wanted, chosen.plan.python)
    newer = [
        b for b in state.context.profiles.builds
        if b.framework == wanted.name and b.platform == build.platform and bool(b.cuda) == bool(build.cuda)
        and not b.yanked and version(b.version) > version(build.version) and meets(b.version, bound)
        and (not version(b.version).is_prerelease or state.context.request.pre)
    ]  # fmt: skip
    closed = [
        b for b in newer if b.index in state.context.available.unreachable
        and {r.code for r in objections(state.fitting.question, wanted, b)} == {"index_unreachable"}
    ]  # fmt: skip
    releases = {b.version for b in newer}
    # A local wheel is no row, but may be of such a release.
    fitting = [b for b in chain if b.version in releases and bool(b.cuda) == bool(build.cuda)]
    by_age = partial(sorted, key=lambda b: version(b.version), reverse=True)
    return build, by_age(newer), by_age([*fitting, *closed])


def _find_unreachable(
    state: State, chosen: Solution, chain: Sequence[Build], usable: Sequence[Build]
) -> Build | None:
    """Return the newest build that is only on an index that does not respond.

    None if a package excludes it, which would decide with this index too.
    """
    elsewhere = {b.version for b in usable if b in chain}
    closed = (b for b in usable if b.version not in elsewhere)
    return next((b for b in closed if not _find_decider(state, chosen, b.framework, b.version, [b])), None)


def _find_decider(
    state: State, chosen: Solution, name: str, release: str, builds: Sequence[Build]
) -> str | None:
    """Return which named package excludes a release of a framework. One that is behind only follows the framework."""
    named = {
        p.name for p in chosen.answer.packages
        if p.name in state.compatibility.named and (p.name in state.locked or not state.find_newer(p))
    }  # fmt: skip
    return who_excludes(state, chosen.answer, name, release, builds, named)


def _explain_excluded(state: State, chosen: Solution, build: Build) -> str:
    """Return what decides against a build that fits."""
    name, release, builds = build.framework, build.version, (build,)
    return (
        _find_decider(state, chosen, name, release, builds)
        or _find_clash(state, build)
        or _explain_failure(state, chosen, name, release)
        or who_excludes(state, chosen.answer, name, release, builds)
        or _explain_older(state, name, next(b.version for b in chosen.builds if b.framework == name))
    )


def _find_clash(state: State, build: Build) -> str | None:
    """Return why a build that fits does not go with the other frameworks."""
    key = (build.framework, build.version, build.cuda, build.index)
    rows = state.fitting.newest.rejected
    return next(
        (r.reasons[0].text for r in rows if (r.framework, r.version, r.cuda, r.index) == key and r.reasons),
        None,
    )


def _explain_package(state: State, chosen: Solution, name: str) -> HeldBackPackage:
    """Return why a named package is not in its newest release."""
    newest = state.newest.by_name[name]
    locked = chosen.answer.versions[name]
    return HeldBackPackage(
        package=name, locked=locked, newest=newest.version, because=_explain_not_newest(state, chosen, newest) or _explain_older(state, name, locked),
        alternative=_describe_cost(state, chosen, name, newest.version),
    )  # fmt: skip


def _explain_not_newest(state: State, chosen: Solution, newest: LockedPackage) -> str | None:
    """Return what excludes the newest release of a named package: first what is fixed, then what was solved."""
    name, stated = newest.name, state.read_bounds(newest)
    frameworks = {b.framework: b.version for b in chosen.builds}
    locked = {**chosen.answer.versions, **frameworks}

    def unmet(needed: Iterable[str]) -> str | None:
        found = (n for n in needed if n in locked and not meets(public(locked[n]), stated.get(n, "")))
        return next((f"{name} {newest.version} requires {n}{stated[n]}" for n in found), None)

    if why := unmet(frameworks):
        tried = _explain_missing(state, name, newest.version)
        return f"{why}; {tried}" if tried else why
    if why := state.compatibility.explain_unfit(newest, chosen.builds):
        others = [state.compatibility.explain_unfit(newest, (b,)) for b in state.fitting.chains[0]]
        return why if None in others else others[0]  # the chosen build is not the reason where none fits
    if name in {n.name for n in state.pages.packages_with_page}:
        builds = name_builds(chosen.builds)
        return f"{name} {newest.version} has no wheel for {builds} and Python {chosen.plan.python}"
    return (
        who_excludes(state, chosen.answer, name, newest.version)
        or unmet(n.name for n in state.named if n.is_exact)
        or _explain_failure(state, chosen, name, newest.version)
        or state.compatibility.explain_exclusion(name, chosen.builds)
        or unmet(stated)
    )


def _explain_missing(state: State, name: str, release: str) -> str | None:
    """Return what the candidates for a release ended with, if no solution has it."""
    ended: str | None = None
    for outcome in state.tried:
        if isinstance(outcome, Solution) and outcome.answer.versions.get(name) == release:
            return None
        if ended or outcome.asked.wanted != (name, release):
            continue
        builds = name_builds(outcome.builds)
        if isinstance(outcome, Refusal):
            ended = f"with {builds} there is no solution: {outcome.reason}"
        else:
            ended = f"with {builds} the solver takes {name} {outcome.answer.versions.get(name, '')}"
    return ended


def _explain_failure(state: State, chosen: Solution, name: str, release: str) -> str | None:
    """Return what a candidate for a release ended with: the solver's reason, or what the other solution lacks."""
    for outcome in sorted(state.tried, key=lambda o: isinstance(o, Solution)):
        if isinstance(outcome, Refusal):
            if outcome.asked.wanted == (name, release):
                by_uv = outcome.reason != outcome.error.message
                return f"the solver finds no compatible set: {outcome.reason}" if by_uv else outcome.reason
            continue
        if outcome is chosen:
            continue
        brings = public(outcome.answer.versions.get(name, "")) == release
        conflict = next((c for c in outcome.conflicts if not c.roots or name in c.roots), None)
        if brings and conflict:
            if not conflict.roots:
                return conflict.sentence
            return f"{name} {release} brings {conflict.name} {conflict.version}, {conflict.why}"
        if outcome.asked.wanted != (name, release):
            continue
        if outcome.compiles and not chosen.compiles:
            compiled = outcome.compiles[0]
            builds = " and ".join(b.framework for b in outcome.builds)
            text = f"{compiled} {outcome.answer.versions[compiled]} has no wheel for this build of {builds}"
            return f"{text} and Python {outcome.plan.python}"
        if limited := _list_lowered(outcome, chosen):
            return f"it would limit {limited}"
    return None


def _describe_cost(state: State, chosen: Solution, name: str, release: str) -> str | None:
    """Return what a solution with a newer release would change: "vllm 0.33.0 is compatible with torch 2.14.0"."""
    for outcome in state.tried:
        if outcome is chosen or isinstance(outcome, Refusal):
            continue
        if any(name in (c.name, *c.roots) for c in outcome.conflicts):
            continue
        versions = {b.framework: b.version for b in outcome.builds} | dict(outcome.answer.versions)
        if public(versions.get(name, "")) != release:
            continue
        if name in {b.framework for b in chosen.builds}:
            if outcome.compiles and not chosen.compiles:
                named = " and ".join(f"{n} {outcome.answer.versions[n]}" for n in outcome.compiles)
                return f"{name} {release} would require compiling {named}"
            limited = _list_lowered(outcome, chosen)
            return f"{name} {release} would limit {limited}" if limited else None
        changes = [
            f"{b.framework} {b.version}"
            + (f" (CUDA {b.cuda})" if b.cuda and b.version == old.version else "")
            for b, old in zip(outcome.builds, chosen.builds, strict=True)
            if (b.version, b.cuda) != (old.version, old.cuda)
        ]
        return f"{name} {release} is compatible with {' and '.join(changes)}" if changes else None
    return None


def _list_lowered(outcome: Solution, chosen: Solution) -> str:
    """Return the named packages that another solution has in older releases: "vllm to 0.2.5"."""
    worse = [n for n in outcome.behind if outcome.behind[n] > chosen.behind.get(n, 0)]
    return ", ".join(f"{n} to {outcome.answer.versions[n]}" for n in worse)


def _explain_older(state: State, package: str, locked: str) -> str:
    if package in state.locked and public(state.locked[package].version) == public(locked):
        return _KEPT.format(locked=locked, package=package)
    if state.context.sources.exclude_newer:
        return f"another requirement or --exclude-newer {state.context.sources.exclude_newer} excludes it"
    return "another requirement excludes it"


def who_excludes(
    state: State,
    answer: Answer,
    name: str,
    release: str,
    builds: Sequence[Build] = (),
    among: Collection[str] | None = None,
) -> str | None:
    """Return why a locked package excludes a release of another one: "vllm 0.33.0 requires torch==2.14.0".

    Its metadata does, or the measured row of a named one. `builds` have the release if it is a framework. `among`
    are the packages to look at, by default all.
    """
    requirers = answer.required_by.get(name, ())
    for package in answer.packages:
        if among is not None and package.name not in among:
            continue
        bound = state.read_bounds(package).get(name, "") if package.name in requirers else ""
        if bound and not meets(release, bound):
            return f"{package.name} {package.version} requires {name}{bound}"
        judged = builds if package.name in state.compatibility.named else ()
        if judged and (why := state.compatibility.explain_unfit(package, judged)):
            return why
    return None


def list_compared(state: State, chosen: Solution) -> Iterator[PackageSet]:
    """Yield the solutions that were compared, newest framework first."""
    others = [o for o in state.tried if o is not chosen]
    every: list[Outcome] = [chosen, *others] if others else []
    for outcome in sorted(every, key=lambda o: [version(b.version) for b in o.builds], reverse=True):
        builds = tuple(
            f"{b.framework} {b.version} ({f'CUDA {b.cuda}' if b.cuda else 'CPU'})" for b in outcome.builds
        )
        if isinstance(outcome, Refusal):
            yield PackageSet(builds=builds, reason=outcome.reason)
            continue
        locked = outcome.answer.versions
        oldest = max(outcome.behind, key=lambda n: outcome.behind[n], default=None)
        yield PackageSet(
            builds=builds, python=outcome.plan.python,
            packages=tuple(f"{n.name} {locked[n.name]}" for n in state.named if n.name in locked),
            oldest=oldest, behind=outcome.behind[oldest] if oldest else 0,
            reason="" if outcome is chosen else _why_not(outcome, chosen),
        )  # fmt: skip


def _why_not(outcome: Solution, chosen: Solution) -> str:
    if outcome.conflicts:
        return outcome.conflicts[0].sentence
    if outcome.compiles and not chosen.compiles:
        return f"{', '.join(outcome.compiles)} would have to be compiled"
    limited = _list_lowered(outcome, chosen)
    return f"it limits {limited}" if limited else "its framework is older"


def describe_outcome(outcome: Outcome) -> str:
    """Return a compared outcome in one line."""
    named = name_builds(outcome.builds)
    if isinstance(outcome, Refusal):
        return f"compared {named}: {outcome.reason}"
    found = [*(c.sentence for c in outcome.conflicts), *(f"{n} has to be compiled" for n in outcome.compiles)]
    found += [
        f"{n} is {outcome.answer.versions[n]}, {days} days behind" for n, days in outcome.behind.items()
    ]
    return f"compared {named}: {'; '.join(found) or 'nothing is behind'}"


def list_notes(state: State, chosen: Solution) -> Iterator[str]:
    """Yield notes on the packages of a solution that may not work as expected."""
    by_name = chosen.answer.by_name
    for build in chosen.builds:
        for name in sorted(
            lone_companions(build, state.context.profiles.builds) & by_name.keys() & state.compatibility.named
        ):
            release = by_name[name].version
            rows = state.compatibility.rows.rows(name, release)
            compiled_for = f", compiled for {rows[0].built_for}" if rows and rows[0].built_for else ""
            yield (
                f"{build.framework} {build.version} has no matching release of {name}; "
                f"{name} {release} is the newest compatible one{compiled_for}"
            )
    for row in state.compatibility.limits([[b] for b in chosen.builds]):
        limited = by_name.get(requirement_name(row.requires))
        if (
            limited
            and not chosen.asked.loose
            and (limited.name not in state.compatibility.named or state.find_newer(limited))
        ):
            yield f"{row.requires} for {row.package}{row.versions}: {row.why}"
    yield from state.compatibility.kernel_notes(chosen.answer.packages, chosen.builds)
    for name in sorted(state.compatibility.named & by_name.keys()):
        package = by_name[name]
        compiled = package.url.endswith(".whl") and not package.url.endswith("-none-any.whl")
        if not compiled or state.compatibility.rows.rows(
            name, package.version, state.compatibility.measured.rows(package.sha256)
        ):
            continue
        if state.bounds_of(package).keys() & {b.framework for b in chosen.builds}:
            yield f"{name} {package.version} contains compiled code whose requirements are unknown"


def refuse_cuda_on_cpu(state: State, chosen: Solution) -> None:
    """Raise LockError if a CPU environment would get CUDA because the index with the CPU builds does not answer."""
    cuda = [b for b in chosen.builds if b.cuda and b.framework == "torch"]
    if state.context.request.device != "cpu" or not cuda or not state.context.available.unreachable:
        return
    own = {b.package_name for b in cuda} | {requirement_name(r) for b in cuda for r in b.requires}
    total = sum(p.size or 0 for p in chosen.answer.packages if p.name in own or p.name.startswith("nvidia-"))
    raise LockError(
        f"the PyTorch index, which has the CPU builds of torch, does not respond; torch {cuda[0].version} of the "
        f"default index includes CUDA ({format_bytes(total)})",
        hint="set GPUENV_INDEX_PYTORCH to a mirror, or use --find-links FOLDER with a CPU wheel, or accept CUDA's "
        "wheels with --index pypi",
        unreachable="pytorch",
    )


def list_warnings(state: State, chosen: Solution) -> Iterator[str]:
    """Yield a warning for each package that the builds do not go with, and each named one that is years older than its
    newest state."""
    for row, exceeding in find_exceeded(state, chosen.builds, chosen.answer):
        yield f"{exceeding.name} {exceeding.version} is locked beside {row.package}{row.versions}: {row.why} ({row.source})"
    limits = state.compatibility.limits([[b] for b in chosen.builds])
    limited = {requirement_name(row.requires) for row in limits}  # a note has the reason
    for named in state.named:
        package = chosen.answer.by_name.get(named.name)
        if package is None or not package.version or named.name in limited:
            continue
        if why := _explain_not_built(state, named, package, chosen.plan):
            yield f"{named.name} {package.version} is locked: {why}"
            continue
        newer, days = state.find_newer(package), state.days_behind(package, chosen.answer)
        if newer and days > _OLD:
            why = who_excludes(state, chosen.answer, named.name, newer.version)
            text = f"{named.name} {package.version} is {days / 365.25:.1f} years older than {newer.version}"
            yield f"{text}: {why}" if why else text


def _explain_not_built(state: State, named: NamedPackage, locked: LockedPackage, plan: Plan) -> str | None:
    """Return which newer release is passed over because an option forbids a build of it, or of what it requires."""
    rules = state.rules
    if not (rules.forbidden_by or rules.only_binary):
        return None
    if newer := state.find_newer(locked):
        for need in map(try_requirement, state.read_requirements(newer) or ()):
            name = canonicalize_name(need.name) if need and not need.marker else ""
            if need and (option := rules.forbids(name)):
                found = rules.archives.releases(name, need.specifier, plan)
                if found and not any(found.values()):
                    needs = f"{need.name}{need.specifier}"
                    return (
                        f"{newer.version} requires {needs}, which has no wheel, and {option} forbids a build"
                    )
    if option := rules.forbids(named.name):
        found = rules.archives.releases(named.name, SpecifierSet(named.specifier), plan)
        latest = max(found, default=version("0"))
        if latest > version(locked.version) and not found[latest]:
            return f"{latest} has no wheel, and {option} forbids a build"
    return None
