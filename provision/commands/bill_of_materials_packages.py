"""List the installed packages of an environment for its bill of materials. No code runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from email.message import Message
from email.parser import HeaderParser
from pathlib import Path

from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from ..environment.distributions import Distribution, list_conda_infos, read_distributions
from ..export.subject import InstalledPart
from ..model import Lock

# A longer requirement in METADATA is not a name with versions and a marker.
_LONGEST = 4096


def list_installed_parts(env: Path, lock: Lock) -> tuple[InstalledPart, ...]:
    """Return the distributions in the environment's site-packages, without those of conda packages."""
    locked = {str(canonicalize_name(p.name)): p.version for p in lock.packages if not p.is_conda}
    by_conda = list_conda_infos(env)
    installed = {}
    for name, (one, *_) in read_distributions(env).items():
        if one.installer == "conda" or one.folder.name in by_conda:
            continue
        head = _head(one)
        state = _state(one.version, locked.get(name))
        installed[name] = (one, head, state)
    needs = {name: _parsed(_values(head, "Requires-Dist")) for name, (_, head, _) in installed.items()}
    extras = {"", *(extra for rows in needs.values() for need in rows for extra in need.extras)}
    planned = _parsed([*(r for b in lock.plan.builds for r in b.requirements), *lock.plan.packages])
    extras |= {extra for need in planned for extra in need.extras}
    return tuple(
        InstalledPart(
            name=name, version=one.version, state=state, requires=_names(needs[name], extras, one.folder),
            license_expression=_expression(head), license_names=_classified(head),
        )
        for name, (one, head, state) in sorted(installed.items())
    )  # fmt: skip


def describe_differences(lock: Lock, installed: Sequence[InstalledPart]) -> list[str]:
    """Return sentences on how the installed packages differ from the lock."""
    here = {p.name for p in installed}
    missing = [p.name for p in lock.packages if not p.is_conda and canonicalize_name(p.name) not in here]
    differences = []
    for state, words in (
        ("replaced", "in another version than the lock's"),
        ("added", "in addition to the locked packages"),
    ):
        names = [f"{p.name} {p.version}" for p in installed if p.state == state]
        differences += (
            [f"installed {words} and therefore without a hash: {', '.join(names)}"] if names else []
        )
    differences += (
        [f"omitted, because they are in the lock but not installed: {', '.join(missing)}"] if missing else []
    )
    return differences


def _state(version: str, locked: str | None) -> str:
    if locked is None:
        return "added"
    try:
        same = not locked or Version(version) == Version(locked)
    except InvalidVersion:
        same = version == locked
    return "locked" if same else "replaced"


def _head(one: Distribution) -> Message:
    return HeaderParser().parsestr(one.metadata)


def _values(head: Message, key: str) -> list[str]:
    return [str(value) for value in head.get_all(key) or []]


def _parsed(texts: Iterable[str]) -> list[Requirement]:
    parsed = []
    for text in texts:
        try:
            parsed += [Requirement(text)] if len(text) <= _LONGEST else []
        except InvalidRequirement:
            continue  # an invalid requirement of an old package is left out
    return parsed


def _names(needs: Iterable[Requirement], extras: set[str], folder: Path) -> tuple[str, ...]:
    """Return the names of the requirements that apply on this platform, for all requested extras."""
    minor = folder.parent.parent.name.removeprefix("python")
    environment = {"python_version": minor, "python_full_version": f"{minor}.0"}
    names = {
        str(canonicalize_name(need.name))
        for need in needs
        if need.marker is None or any(need.marker.evaluate({**environment, "extra": e}) for e in extras)
    }
    return tuple(sorted(names))


def _expression(head: Message) -> str | None:
    """Return the licence as an SPDX expression, or None if the package has none."""
    for text in _values(head, "License-Expression"):
        try:
            return str(canonicalize_license_expression(text))
        except InvalidLicenseExpression:
            continue
    return None


def _classified(head: Message) -> tuple[str, ...]:
    """Return the licences of the classifiers ("License :: OSI Approved :: MIT License")."""
    rows = [row.split(" :: ") for row in _values(head, "Classifier")]
    return tuple(dict.fromkeys(row[-1] for row in rows if row[0] == "License" and len(row) > 1))
