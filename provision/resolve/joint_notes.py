"""List notes on the packages of a chosen set that may not work as expected."""

from __future__ import annotations

from collections.abc import Iterator

from .chosen_and_refused_sets import Chosen
from .companion_objections import lone_companions
from .satellite_fit import objection
from .search_builds_and_packages import JointSearch


def list_notes(search: JointSearch, chosen: Chosen) -> Iterator[str]:
    """Yield the notes on unmeasured packages, lone companions, and packages without kernels for the GPUs."""
    yield from _unmeasured(search, chosen)
    yield from _lone_companions(search, chosen)
    yield from _without_kernels(search, chosen)


def _unmeasured(search: JointSearch, chosen: Chosen) -> Iterator[str]:
    """Yield notes on compiled packages for a framework without a measured row. Their library needs are
    unknown."""
    frameworks = {b.framework for b in chosen.candidate.builds}
    for package in search.packages:
        release = chosen.releases[package.name]
        if not release.compiled or search.fit.rows.rows(package.name, release.version, release.measured):
            continue
        needs = {n.name for n in search.fit.requirements(package, release, chosen.candidate.python)}
        if needs & frameworks:
            yield f"{package.name} {release.version} contains compiled code whose requirements are unknown"


def _lone_companions(search: JointSearch, chosen: Chosen) -> Iterator[str]:
    """Yield notes on companions without a release for the framework. They are no longer built with it."""
    for build in chosen.candidate.builds:
        for name in sorted(lone_companions(build, search.question.profiles.builds) & chosen.releases.keys()):
            release = chosen.releases[name].version
            rows = search.fit.rows.rows(name, release)
            compiled_for = f", compiled for {rows[0].built_for}" if rows and rows[0].built_for else ""
            yield (
                f"{build.framework} {build.version} has no matching release of {name}; "
                f"{name} {release} is the newest compatible one{compiled_for}"
            )


def _without_kernels(search: JointSearch, chosen: Chosen) -> Iterator[str]:
    """Yield notes on packages with GPU code, but in no release for the GPUs of the target."""
    for package in search.packages:
        if not search.fit.without_kernels[package.name]:
            continue
        release = chosen.releases[package.name]
        rows = search.fit.rows.rows(package.name, release.version, release.measured)
        if why := objection(search.question, rows, chosen.candidate.builds):
            yield f"{why}. No other release of this package has kernels for these GPUs"
