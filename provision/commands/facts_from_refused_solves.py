"""Read what refused solves show about a set, and define its errors."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name

from ..errors import LockError
from ..model import Lock, Plan
from ..resolve.locked_cuda_conflicts import OtherCuda, sentence_of


@dataclass(frozen=True)
class KeptReleases:
    """The first lock with indirect packages that conflict with the builds. It is used if no other set is
    found."""

    plan: Plan
    lock: Lock
    conflicts: tuple[OtherCuda, ...]


class OtherCudaError(LockError):
    """Indirect packages of a lock conflict with its builds."""

    def __init__(self, conflicts: tuple[OtherCuda, ...]) -> None:
        super().__init__(sentence_of(conflicts[0]))
        self.conflicts = conflicts


def make_age_error(name: str, version: str, newest: str, days: int, why: str) -> LockError:
    """Return the error for a release that is `days` days older than the newest one, which `why` explains."""
    return LockError(
        f"{name} {version} is the newest compatible release; it is {days / 365.25:.1f} years older than "
        f"{newest}: {why}",
        hint="name a release (NAME==VERSION), or accept this one: --allow-old",
    )


def is_named(name: str, log: str) -> bool:
    """Return whether a solver's reasons name a package."""
    written = re.escape(name).replace(r"\-", "[-_.]+")
    return (
        re.search(rf"(?<![A-Za-z0-9._-]){written}(?![A-Za-z0-9_.-]*[A-Za-z0-9_-])", log, re.IGNORECASE)
        is not None
    )


def find_reason(error: LockError) -> str:
    """Return the first of the solver's reasons, on one line."""
    text = " ".join(re.sub(r"[^\x20-\x7e]", " ", error.log or "").split())
    because = re.search(r"Because (.{1,240}?)(?:, we can conclude|\.(?: |$)|$)", text)
    return f"the solver finds no compatible set: {because[1]}" if because else error.message


def find_bounds_without_wheel(name: str, log: str) -> str:
    """Return the versions without a wheel in the solver's log ("fire>=4.9,<=4.9.3 has no usable wheels")."""
    match = re.search(rf"{re.escape(name)}([<>=!~]\S*) has no usable wheels", " ".join(log.split()))
    try:
        return str(SpecifierSet(match[1])) if match else ""
    except InvalidSpecifier:
        return ""


def find_bounds(name: str, requirements: Iterable[str]) -> str:
    """Return the version bounds of a package in requirements, or "" without any."""
    for text in requirements:
        try:
            need = Requirement(text)
        except InvalidRequirement:
            continue  # a folder or an editable package has no version bounds
        if canonicalize_name(need.name) == name:
            return str(need.specifier)
    return ""
