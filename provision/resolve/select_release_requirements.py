"""Select the requirements of a release that apply to a Python and a platform."""

from __future__ import annotations

from functools import cache

from packaging.requirements import Requirement

from ..index.markers_and_tags_of_platform import CPYTHON, markers_of


@cache
def _requirement(text: str) -> Requirement:
    return Requirement(text)


@cache
def select_requirements(
    texts: tuple[str, ...], extras: tuple[str, ...], python: str, platform: str
) -> tuple[Requirement, ...]:
    """Return the requirements that apply to a Python and a platform, with some extras."""
    values = {"python_version": python, "python_full_version": f"{python}.0"}
    environment = markers_of(platform) | CPYTHON | values
    return tuple(
        need for need in map(_requirement, texts)
        if need.marker is None or any(need.marker.evaluate(environment | {"extra": e}) for e in ("", *extras))
    )  # fmt: skip
