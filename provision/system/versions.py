"""Compares versions, and versions with bounds of PEP 440."""

from __future__ import annotations

import re
from functools import cache

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version


@cache
def version(text: str) -> Version:
    """Return a version. Driver versions ("580.159.04") and capabilities ("9.0") compare the same way."""
    return Version(text)


@cache
def specifiers(text: str) -> SpecifierSet:
    return SpecifierSet(text)


@cache
def meets(text: str, bounds: str) -> bool:
    """Return whether a version is within PEP 440 bounds. Pre-releases are allowed here. An invalid version is
    within no bounds but empty ones.
    """
    try:
        return not bounds or specifiers(bounds).contains(version(text), prereleases=True)
    except (InvalidVersion, InvalidSpecifier):
        return False


@cache
def overlap(bounds: str, others: str) -> bool:
    """Return whether a version can be within two sets of bounds."""
    return not specifiers(f"{bounds},{others}").is_unsatisfiable()


@cache
def allows(bounds: str, minor: str) -> bool:
    """Return whether a release of a Python minor ("3.11") is within bounds of requires-python."""
    spec = specifiers(bounds)
    named = [s.version for s in spec if s.version.startswith(f"{minor}.") and "*" not in s.version]
    return any(spec.contains(v, prereleases=True) for v in (f"{minor}.0", f"{minor}.99", *named))


@cache
def exact(bounds: str) -> str | None:
    """Return the one version that bounds name (==X or ===X, no wildcard), or None."""
    named = (s.version for s in specifiers(bounds) if s.operator in ("==", "===") and "*" not in s.version)
    return next(named, None)


def is_exact(bounds: str) -> bool:
    """Return whether the bounds name one version."""
    return exact(bounds) is not None


def has_prefix(text: str, prefix: str) -> bool:
    """Return whether "12.6" begins with "12" or "12.6", part by part."""
    wanted = prefix.split(".")
    return text.split(".")[: len(wanted)] == wanted


def major(text: str) -> str:
    return text.split(".", 1)[0]


def minor(text: str) -> str:
    """Return the first two numbers: "12.6" of "12.6.3"."""
    return ".".join(text.split(".")[:2])


def public(text: str) -> str:
    """Return a version without its local label: "2.15.0" of "2.15.0+cu126"."""
    return text.partition("+")[0]


def numbers(text: str) -> tuple[int, ...]:
    """Return the numbers of a version, which PEP 440 need not allow."""
    return tuple(int(n) for n in re.findall(r"\d+", text))
