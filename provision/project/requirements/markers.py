"""Whether a marker holds for a target of which not everything is known."""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from packaging.markers import Marker

# Python versions that a marker is tried with where the target's is open; far beyond those that exist.
_MINORS = tuple(f"3.{minor}" for minor in range(6, 31))
_VARIABLES = (
    "os_name", "sys_platform", "platform_machine", "platform_python_implementation", "platform_release",
    "platform_system", "platform_version", "python_version", "python_full_version", "implementation_name",
    "implementation_version",
)  # fmt: skip
_ASSUMED = {"platform_python_implementation": "CPython", "implementation_name": "cpython", "extra": ""}


def may_hold(marker: Marker | None, known: Mapping[str, str]) -> bool:
    """Whether a marker holds for some machine of which `known` is true. What is not known may be
    anything: the marker is tried with every Python version, and kept where it asks for more."""
    if marker is None:
        return True
    text = re.sub(r"\"[^\"]*\"|'[^']*'", "''", str(marker))
    asked = {name for name in _VARIABLES if re.search(rf"\b{name}\b", text)}
    environment = {**_ASSUMED, **known}
    pythons = _pythons(known)
    if asked - set(environment) - {"python_version", "python_full_version"}:
        return True
    tries = itertools.chain(pythons) if asked & {"python_version", "python_full_version"} else pythons[:1]
    return any(_holds(marker, {**environment, **python}) for python in tries)


def _pythons(known: Mapping[str, str]) -> list[dict[str, str]]:
    minor, full = known.get("python_version"), known.get("python_full_version")
    if full:
        return [{"python_full_version": full, "python_version": minor or ".".join(full.split(".")[:2])}]
    minors = (minor,) if minor else _MINORS
    return [
        {"python_version": m, "python_full_version": f"{m}.{patch}"} for m in minors for patch in (0, 9, 99)
    ]


def _holds(marker: Marker, environment: Mapping[str, str]) -> bool:
    from packaging.markers import UndefinedComparison, UndefinedEnvironmentName

    try:
        return marker.evaluate(dict(environment))
    except (UndefinedComparison, UndefinedEnvironmentName, ValueError):
        return True  # a comparison that pip would stop at: the solver is left to say so
