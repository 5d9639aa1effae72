"""Evaluate markers for a target of which some variables are unknown."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping

from packaging.markers import Marker

# Python versions to try where the target has none, with some that do not exist yet
_MINORS = tuple(f"3.{minor}" for minor in range(6, 31))
_VARIABLES = (
    "os_name", "sys_platform", "platform_machine", "platform_python_implementation", "platform_release",
    "platform_system", "platform_version", "python_version", "python_full_version", "implementation_name",
    "implementation_version",
)  # fmt: skip
_ASSUMED = {"platform_python_implementation": "CPython", "implementation_name": "cpython", "extra": ""}


def may_apply(marker: Marker | None, known: Mapping[str, str]) -> bool:
    """Return whether a marker is true for some machine with the `known` variables.

    An unknown Python version is tried with every version. Any other unknown variable may have any value.
    """
    if marker is None:
        return True
    text = re.sub(r"\"[^\"]*\"|'[^']*'", "''", str(marker))
    used = {name for name in _VARIABLES if re.search(rf"\b{name}\b", text)}
    environment = {**_ASSUMED, **known}
    pythons = _list_pythons(known)
    if used - set(environment) - {"python_version", "python_full_version"}:
        return True
    tries = itertools.chain(pythons) if used & {"python_version", "python_full_version"} else pythons[:1]
    return any(_is_true(marker, {**environment, **python}) for python in tries)


def pythons_of(marker: Marker | None, known: Mapping[str, str]) -> tuple[str, ...]:
    """Return the minor versions of Python for which a marker may apply, or none if it does not depend on Python."""
    if marker is None or "python_" not in str(marker) or "python_version" in known:
        return ()
    return tuple(m for m in _MINORS if may_apply(marker, {**known, "python_version": m}))


def _list_pythons(known: Mapping[str, str]) -> list[dict[str, str]]:
    minor, full = known.get("python_version"), known.get("python_full_version")
    if full:
        return [{"python_full_version": full, "python_version": minor or ".".join(full.split(".")[:2])}]
    minors = (minor,) if minor else _MINORS
    return [
        {"python_version": m, "python_full_version": f"{m}.{patch}"} for m in minors for patch in (0, 9, 99)
    ]


def _is_true(marker: Marker, environment: Mapping[str, str]) -> bool:
    from packaging.markers import UndefinedComparison, UndefinedEnvironmentName

    try:
        return marker.evaluate(dict(environment))
    except (UndefinedComparison, UndefinedEnvironmentName, ValueError):
        return True  # the solver reports a comparison that pip rejects
