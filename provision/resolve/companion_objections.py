"""Compare packages with a build: its companions (torchvision) and its requirements (triton)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from ..model import Build
from .versions import meets


def companion_names(builds: Iterable[Build]) -> frozenset[str]:
    """Return the packages that are companions of any of the builds."""
    texts = {c for b in builds for c in b.companions}
    return frozenset(_named(t)[0] for t in texts)


def comes_along(name: str, release: str, builds: Sequence[Build]) -> bool:
    """Return whether a build names this release as its companion. It is then on the same index."""
    companions = [_named(c) for b in builds for c in b.companions]
    return any(meets(release, bounds) for companion, bounds in companions if companion == name)


def companion_objection(
    name: str, release: str, builds: Sequence[Build], names: frozenset[str]
) -> str | None:
    """Return why a release is not a companion of the builds, or None.

    `names` are the packages that are companions of any build.
    """
    for build in builds:
        for text in build.companions:
            if _named(text)[0] == name:
                return f"{build.framework} {build.version} is compatible with {text}, not with {release}"
        if build.local and name in names:
            return f"{build.framework} {build.version}+{build.local} has no {name} release with the same suffix (+{build.local})"
    return None


def companions_of_builds(builds: Iterable[Build]) -> dict[tuple[str, str], str]:
    """Return the framework release for which a companion release is compiled, by the companion's name and its pin
    ("==2.5.1")."""
    return {_named(text): f"{b.framework} {b.version}" for b in builds for text in b.companions}


def required_names(builds: Iterable[Build]) -> frozenset[str]:
    """Return the packages that any of the builds require."""
    return frozenset(_named(text)[0] for text in {r for b in builds for r in b.requires})


def requirement_of_builds(name: str, release: str, builds: Sequence[Build]) -> str | None:
    """Return why a release conflicts with the requirements of the builds, or None."""
    for build in builds:
        for bounds in _bounds_by_name(build.requires).get(name, ()):
            if not meets(release, bounds):
                return f"{build.framework} {build.version} requires {name}{bounds}"
    return None


@cache
def _bounds_by_name(requires: tuple[str, ...]) -> Mapping[str, Sequence[str]]:
    found: dict[str, list[str]] = {}
    for name, bounds in map(_named, requires):
        found.setdefault(name, []).append(bounds)
    return found


@cache
def _named(text: str) -> tuple[str, str]:
    need = Requirement(text)
    return str(canonicalize_name(need.name)), str(need.specifier)


def lone_companions(build: Build, builds: Iterable[Build]) -> frozenset[str]:
    """Return the companions that other versions of a framework have and this one does not."""
    return companion_names(b for b in builds if b.framework == build.framework) - companion_names([build])
