"""What is to be had: wheels at hand, and whether they fit a Python and a platform."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from functools import cache

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from ..index.platforms import wheel_tags
from ..model import Build, Supply, Wheel
from .versions import meets, version


@cache
def supported_tags(python: str, platform: str, glibc: str | None) -> frozenset[str]:
    """The wheel tags that CPython `python` takes on `platform` with `glibc` (PEP 600)."""
    return frozenset(map(str, wheel_tags(python, platform, glibc)))


def wheels_for(supply: Supply, name: str, python: str, platform: str, glibc: str | None) -> list[Wheel]:
    """The wheels of a distribution that fit, newest first."""
    usable = supported_tags(python, platform, glibc)
    wanted = canonicalize_name(name)
    found = [w for w in supply.wheels if w.name == wanted and not usable.isdisjoint(w.tags)]
    return sorted(found, key=lambda w: version(w.version), reverse=True)


def at_hand(supply: Supply, build: Build, python: str, glibc: str | None) -> bool:
    """Whether the framework wheel of this very build is among the wheels."""
    wanted = f"{build.version}+{build.local}" if build.local else build.version
    found = wheels_for(supply, build.framework, python, build.platform, glibc)
    return any(w.version == wanted for w in found)


def missing(supply: Supply, build: Build, python: str, glibc: str | None) -> str | None:
    """The first requirement of a build that no wheel at hand meets, None when all are met."""
    if not at_hand(supply, build, python, glibc):
        return "its own wheel"  # no version here: equal objections to many versions are folded
    for text in build.requires:
        need = Requirement(text)
        found = wheels_for(supply, need.name, python, build.platform, glibc)
        if not any(meets(w.version, str(need.specifier)) for w in found):
            return text
    return None


def local_builds(supply: Supply, framework: str, platform: str, known: Iterable[Build]) -> list[Build]:
    """Builds whose wheels are at hand with a local label ("+cpu", "+cu126"): no index is needed for
    them. What a profile row says of such a build holds; a CPU build needs no row."""
    rows = {(b.version, b.local): b for b in known if b.local}
    found: dict[tuple[str, str], set[str]] = {}
    for wheel in supply.wheels:
        public, _, local = wheel.version.partition("+")
        if wheel.name == framework and local and (local == "cpu" or (public, local) in rows):
            found.setdefault((public, local), set()).update(_minors(wheel))
    builds = []
    for (public, local), minors in found.items():
        bare = Build(framework=framework, version=public, cuda=None, platform=platform, index="", python=())
        row = rows.get((public, local), bare)
        pythons = tuple(sorted(minors, key=version))
        builds.append(dataclasses.replace(row, index="find-links", python=pythons, local=local))
    return builds


def _minors(wheel: Wheel) -> set[str]:
    """The Python minors of a wheel's tags: cp312-cp312-... is 3.12."""
    heads = {t.split("-")[0] for t in wheel.tags}
    return {f"{h[2]}.{h[3:]}" for h in heads if h.startswith("cp3") and h[3:].isdigit()}
