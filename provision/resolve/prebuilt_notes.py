"""List the packages of a set with prebuilt wheels or without one, and notes on them."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import unquote

from ..model import PrebuiltWheel
from .chosen_and_refused_sets import Chosen
from .prebuilt_fit import builds_with_wheel, no_prebuilt
from .search_builds_and_packages import JointSearch


def list_compiled(search: JointSearch, chosen: Chosen) -> list[str]:
    """Return the packages with a page of wheels that a set takes from source."""
    return [
        p.name for p in search.packages
        if p.paged and chosen.compiles and search.fit.compiles(p.name, chosen.releases[p.name], chosen.candidate)
    ]  # fmt: skip


def list_prebuilt(search: JointSearch, chosen: Chosen) -> Iterator[PrebuiltWheel]:
    """Return the prebuilt wheels of a set."""
    wheels = (search.fit.prebuilt_for(r, chosen.candidate) for r in chosen.releases.values())
    return filter(None, wheels)


def describe_prebuilt(search: JointSearch, chosen: Chosen) -> Iterator[str]:
    """Return a sentence for each package with a page of wheels: its wheel, or the builds that have one."""
    python, compiled = chosen.candidate.python, list_compiled(search, chosen)
    for package in search.packages:
        release = chosen.releases[package.name]
        if wheel := search.fit.prebuilt_for(release, chosen.candidate):
            yield f"{release.package} {release.version} is the wheel {unquote(wheel.url.rpartition('/')[2])}"
        elif package.name in compiled:
            others = builds_with_wheel(search.question, package.releases, python)
            yield (
                f"{no_prebuilt(release, chosen.candidate.builds, python)}, so it is built from source"
                + (f". Wheels exist for {others}" if others else "")
            )
