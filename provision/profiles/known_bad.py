"""Decides whether a release that known_bad.yaml lists is bad in one place: beside its GPUs, its driver and its packages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from ..model import KnownBadRelease


def applies(
    bad: KnownBadRelease,
    gpus: Iterable[tuple[str | None, str | None]],
    driver: str | None,
    versions: Mapping[str, str],
) -> bool:
    """Return whether the conditions of a row hold. `gpus` are (capability, name), `versions` those of the packages."""
    fits = (bad.gpu in (None, capability) and (bad.board or "") in (name or "") for capability, name in gpus)
    if (bad.gpu or bad.board) and not any(fits):
        return False
    if bad.driver and not (driver and SpecifierSet(bad.driver).contains(driver)):
        return False
    beside = Requirement(bad.companion) if bad.companion else None
    return beside is None or (
        beside.name in versions and beside.specifier.contains(versions[beside.name], prereleases=True)
    )
