"""Describe the newest set that was found: pins, passed over builds and held back packages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from ..model import (
    Build,
    FrameworkRequest,
    HeldBackPackage,
    JointSolution,
    NamedPackage,
    PackageRelease,
    PackageSet,
    PassedOverBuild,
)
from .chosen_and_refused_sets import Chosen
from .companion_objections import companion_names
from .compatible_build_sets import CandidateBuilds
from .joint_notes import list_notes
from .objections import objections
from .prebuilt_fit import lacks_prebuilt, no_prebuilt
from .prebuilt_notes import describe_prebuilt, list_compiled, list_prebuilt
from .satellite_fit import unfit_series
from .search_builds_and_packages import JointSearch
from .versions import meets, version

_MOST_RUNGS = 12


def answer(search: JointSearch, chosen: Chosen) -> JointSolution:
    """Return the values and sentences that follow from a choice."""
    return JointSolution(
        python=chosen.candidate.python,
        pins=tuple(
            f"{name}=={r.version}" for name, r in chosen.releases.items() if r.requires_known or not r.wheels
        ),
        limits=tuple(_limits(search, chosen)),
        passed_over=tuple(_passed_over(search, chosen)),
        held_back=(*_frameworks_held_back(search, chosen), *_packages_held_back(search, chosen)),
        ladder=tuple(_ladder(search, chosen)),
        prebuilt=tuple(list_prebuilt(search, chosen)),
        notes=(
            *list_notes(search, chosen),
            *describe_prebuilt(search, chosen),
        ),
    )


def why_none(search: JointSearch) -> str:
    """Return why no set is compatible: the objection to the newest builds."""
    if not search.candidates:
        return "no build fits the target"
    return objection_to(search, search.candidates[0])


def objection_to(search: JointSearch, candidate: CandidateBuilds) -> str:
    """Return the objection to the newest packages with these builds, or what the builds would hold back."""
    best = search.best_with(candidate)
    if best is None:
        return _impossible(search, candidate)
    if compiled := list_compiled(search, best):
        release = best.releases[compiled[0]]
        return f"{lacks_prebuilt(release, candidate.builds, best.candidate.python)}, and its build needs a compiler"
    name = max(best.behind, key=lambda n: best.behind[n], default="")
    if not name or not best.behind[name]:
        return "an older framework that prevents newer packages"
    release = best.releases[name]
    why = against_newest(search, best, name)
    return f"{why}; the newest {name} that fits would be {release.version}"


def _impossible(search: JointSearch, candidate: CandidateBuilds) -> str:
    for package in search.packages:
        reasons = [search.fit.objection(package, r, candidate) for r in package.releases]
        if reasons and None not in reasons:
            return search.fit.of_another_build(package.releases[0], candidate) or reasons[0] or ""
        if not reasons:
            return f"no release of {package.name} is within the bounds"
    newest = {
        p.name: next(r for r in p.releases if search.fit.objection(p, r, candidate) is None)
        for p in search.packages
    }
    return next(search.fit.clash(newest, candidate), "the packages conflict with each other")


def against_newest(search: JointSearch, chosen: Chosen, name: str) -> str:
    """Return the objection to the newest release of a package in a set, otherwise to the first one passed
    over."""
    package = search.fit.by_name[name]
    for release in package.releases:
        if release is chosen.releases[package.name]:
            break
        if chosen.candidate.python not in release.pythons:
            continue
        if why := search.fit.objection(package, release, chosen.candidate):
            return why
        if why := next(search.fit.clash({**chosen.releases, package.name: release}, chosen.candidate), None):
            return why
        if package.paged and search.fit.compiles(name, release, chosen.candidate):
            return no_prebuilt(release, chosen.candidate.builds, chosen.candidate.python)
        if release.compiles and chosen.candidate.python not in release.wheels:
            return f"{package.name} {release.version} has no wheel, and its build needs a compiler"
    return _against_any(search, package) or f"a newer {package.name} conflicts with the other packages"


def _against_any(search: JointSearch, package: NamedPackage) -> str | None:
    """Return the objection to the newest release of a package for any Python, with the first builds for it."""
    pairs = ((r, c) for r in package.releases for c in search.candidates if c.python in r.pythons)
    return next((why for r, c in pairs if (why := search.fit.objection(package, r, c))), None)


def _passed_over(search: JointSearch, chosen: Chosen) -> Iterator[PassedOverBuild]:
    """Yield the builds that fit and come before the chosen ones, once each.

    Builds of other frameworks in the same set are included.
    """
    seen = {id(b) for b in chosen.candidate.builds}
    for candidate in search.candidates:
        if candidate.place >= chosen.candidate.place:
            return
        for build, chosen_build in zip(candidate.builds, chosen.candidate.builds, strict=True):
            if id(build) not in seen and not _before(build, chosen_build):
                seen.add(id(build))
                yield PassedOverBuild(
                    framework=build.framework, version=build.version, cuda=build.cuda, index=build.index,
                    because=objection_to(search, _likeliest(search, candidate, build)),
                )  # fmt: skip


def _before(build: Build, other: Build) -> bool:
    return version(build.version) < version(other.version)


def _likeliest(search: JointSearch, candidate: CandidateBuilds, build: Build) -> CandidateBuilds:
    """Return the candidate with the build for which a set exists, otherwise the given one.

    The Python is seldom the reason.
    """
    same = [c for c in search.candidates if build in c.builds and c.builds == candidate.builds]
    return next((c for c in same if search.best_with(c)), candidate)


def _limits(search: JointSearch, chosen: Chosen) -> Iterator[str]:
    """Yield constraints on unnamed packages that others may require. The plan limits companions."""
    named = {p.name for p in search.packages} | companion_names(search.question.profiles.builds)
    for package in search.fit.rows.packages:
        if package not in named:
            series = unfit_series(search.question, search.fit.rows, package, chosen.candidate.builds)
            if series:
                yield package + ",".join(f"!={s}.*" for s in series)


# --- held back -----------------------------------------------------------------------------------


def _packages_held_back(search: JointSearch, chosen: Chosen) -> Iterator[HeldBackPackage]:
    for package in search.packages:
        release = chosen.releases[package.name]
        newest = search.fit.newest(package.name, chosen.candidate.python)
        if newest is None or newest is release:
            continue
        yield HeldBackPackage(
            package=package.name, locked=release.version, newest=newest.version,
            because=_refusal_of(search, newest) or against_newest(search, chosen, package.name),
            alternative=_price(search, chosen, package, newest),
        )  # fmt: skip


def _refusal_of(search: JointSearch, release: PackageRelease) -> str | None:
    """Return why a solver refused a release. Without that refusal the set would have it."""
    return next(
        (r.because for r in search.refused if r.versions.get(release.package) == release.version), None
    )


def _price(search: JointSearch, chosen: Chosen, package: NamedPackage, newest: PackageRelease) -> str | None:
    """Return which other packages the newest release of a package would change."""
    other = search.best({package.name: [newest]})
    if other is None:
        return None
    changes = [
        f"{b.framework} {b.version}"
        + (f" (CUDA {b.cuda})" if b.cuda and b.version == chosen_build.version else "")
        for b, chosen_build in zip(other.candidate.builds, chosen.candidate.builds, strict=True)
        if (b.version, b.cuda) != (chosen_build.version, chosen_build.cuda)
    ]
    changes += [
        f"{name} {r.version}" for name, r in other.releases.items()
        if name != package.name and r.version != chosen.releases[name].version
    ]  # fmt: skip
    changes += (
        [f"Python {other.candidate.python}"] if other.candidate.python != chosen.candidate.python else []
    )
    return f"{package.name} {newest.version} is compatible with {' and '.join(changes)}" if changes else None


def _frameworks_held_back(search: JointSearch, chosen: Chosen) -> Iterator[HeldBackPackage]:
    """Yield the frameworks that are not planned in their newest version, with what that would hold back."""
    request = search.question.request
    for wanted, chosen_build in zip(request.frameworks, chosen.candidate.builds, strict=True):
        newest = _newest_version(search, wanted)
        if request.cuda or newest is None or version(newest) <= version(chosen_build.version):
            continue
        having = [c for c in search.candidates if c.versions[wanted.name] == newest]
        sets = [s for s in map(search.best_with, having) if s]
        best = min(sets, key=lambda s: s.key, default=None)
        if having:
            because, alternative = (
                objection_to(search, best.candidate if best else having[0]),
                _would_hold(search, best),
            )
        else:
            because, alternative = _target_objection(search, wanted.name, newest), None
        yield HeldBackPackage(
            package=wanted.name,
            locked=chosen_build.version,
            newest=newest,
            because=because,
            alternative=alternative,
        )


def _would_hold(search: JointSearch, best: Chosen | None) -> str | None:
    if best is None:
        return None
    behind = [f"{n} to {best.releases[n].version}" for n, days in best.behind.items() if days]
    builds = " and ".join(f"{b.framework} {b.version}" for b in best.candidate.builds)
    if compiled := list_compiled(search, best):
        named = " and ".join(f"{n} {best.releases[n].version}" for n in compiled)
        return f"{builds} would require compiling {named}"
    return f"{builds} would limit {', '.join(behind)}" if behind else None


def _newest_version(search: JointSearch, wanted: FrameworkRequest) -> str | None:
    """Return the newest version within the bounds of the user and the project."""
    bounds = [
        wanted.specifier,
        *(b.specifier for b in search.question.request.bounds if b.name == wanted.name),
    ]
    builds = [
        b for b in search.question.profiles.builds
        if b.framework == wanted.name and b.platform == search.question.target.platform and not b.yanked
        and not version(b.version).is_prerelease and all(meets(b.version, s) for s in bounds)
    ]  # fmt: skip
    return max((b.version for b in builds), key=version, default=None)


def _target_objection(search: JointSearch, framework: str, newest: str) -> str:
    """Return the objection to the build of a version with the fewest objections."""
    wanted = next(w for w in search.question.request.frameworks if w.name == framework)
    reasons = [
        objections(search.question, wanted, b) for b in search.question.profiles.builds
        if b.framework == framework and b.version == newest and b.platform == search.question.target.platform
    ]  # fmt: skip
    fewest = min((r for r in reasons if r), key=len, default=())
    return fewest[0].text if fewest else "it conflicts with the other frameworks"


# --- the ladder ----------------------------------------------------------------------------------


def _ladder(search: JointSearch, chosen: Chosen) -> Iterator[PackageSet]:
    """Yield the best set for each version of the frameworks, newest first, to a few below the chosen one."""

    def versions(candidate: CandidateBuilds) -> tuple[str, ...]:
        return tuple(b.version for b in candidate.builds)

    rungs, below = 0, 0
    for _, group in groupby(search.candidates, key=versions):
        same = list(group)
        best = min((s for s in map(search.best_with, same) if s), key=lambda s: s.key, default=None)
        here = best is not None and versions(best.candidate) == versions(chosen.candidate)
        yield _rung(search, same, chosen if here else best, here=here)
        rungs, below = rungs + 1, below + (below > 0 or here)
        if rungs >= _MOST_RUNGS or below > 3:
            return


def _rung(
    search: JointSearch, same: Sequence[CandidateBuilds], best: Chosen | None, *, here: bool
) -> PackageSet:
    candidate = best.candidate if best else same[0]
    builds = tuple(
        f"{b.framework} {b.version} ({f'CUDA {b.cuda}' if b.cuda else 'CPU'})" for b in candidate.builds
    )
    if best is None:
        return PackageSet(builds=builds, reason=_impossible(search, candidate))
    oldest = max(best.behind, key=lambda n: best.behind[n], default=None)
    days = best.behind[oldest] if oldest else 0
    return PackageSet(
        builds=builds, python=candidate.python,
        packages=tuple(f"{n} {r.version}" for n, r in best.releases.items()),
        oldest=oldest if days else None, behind=days, reason="" if here else objection_to(search, candidate),
    )  # fmt: skip
