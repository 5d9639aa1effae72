"""Finds the package without wheels that a refusal of uv names.

uv also reports a withdrawn release as one without usable wheels, and proposes a build. gpuenv never builds it, so
that reason is ignored. A refusal also names old releases without wheels. The solution then has other releases.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from ..index.markers_and_tags_of_platform import wheel_tags
from ..index.simple_api import allows_python
from ..model import LockedPackage, Plan
from .read_source_archives import SourceArchives

OTHER_PYTHONS = re.compile(
    r"(?<![A-Za-z0-9._-])([A-Za-z0-9._-]{1,200})[<>=!~]\S{0,200} has no wheels with a matching Python \w{1,20} tag"
)
"""A package that has wheels for other Pythons only, and no source archive."""
_NO_WHEEL = re.compile(r"Wheels are required for `([A-Za-z0-9._-]+)`")
_UNUSABLE = ("no", "usable", "wheels")
_RELEASE = re.compile(r"([A-Za-z0-9._-]{1,200})([<>=!~][^\s`]{1,200})?")


def find_missing_wheel(log: str, archives: SourceArchives) -> str | None:
    """Return the package without a wheel that a refusal names, or None if it names none or only withdrawn releases."""
    text = " ".join(log.split())
    unusable = find_unusable(text)
    for name in dict.fromkeys(str(canonicalize_name(n)) for n in _NO_WHEEL.findall(text)):
        if not _are_withdrawn(unusable.get(name, ()), archives.withdrawn(name)):
            return name
    match = OTHER_PYTHONS.search(text)
    return str(canonicalize_name(match[1])) if match else None


def has_wheel(package: LockedPackage, archives: SourceArchives, plan: Plan) -> bool:
    """Return whether the indexes or folders have a wheel of a release for a plan."""
    tags = frozenset(wheel_tags(plan.python or "", plan.platform, plan.target.glibc))
    for file in archives.wheel_files(package.name):
        try:
            _, version, _, theirs = parse_wheel_filename(file.name)
            is_same = version == Version(package.version)
        except (InvalidWheelFilename, InvalidVersion):
            continue  # no installer takes such a file
        if is_same and not tags.isdisjoint(theirs) and allows_python(file.requires_python, plan.python or ""):
            return True
    return False


def find_unusable(log: str) -> dict[str, tuple[str, ...]]:
    """Return the bounds of the releases without usable wheels in a refusal, by package. "" means any release.

    "all of: fire==1.0 fire>=1.2,<2 have no usable wheels" has two.
    """
    unusable: dict[str, list[str]] = {}
    words = log.split()
    for at in range(2, len(words) - 2):
        if words[at - 1] not in ("has", "have") or not words[at + 2].startswith(_UNUSABLE[2]):
            continue
        if (words[at], words[at + 1]) == _UNUSABLE[:2]:
            for name, bounds in _iterate_releases_before(words, at - 1):
                unusable.setdefault(name, []).append(bounds)
    return {name: tuple(reversed(bounds)) for name, bounds in unusable.items()}


def _iterate_releases_before(words: Sequence[str], end: int) -> Iterator[tuple[str, str]]:
    """Yield name and bounds of the releases of one package that come last before a word."""
    package = ""
    for at in range(end - 1, -1, -1):
        match = _RELEASE.fullmatch(words[at])
        name = str(canonicalize_name(match[1])) if match else ""
        if match is None or (package and name != package):
            return
        package = name
        yield name, match[2] or ""


def _are_withdrawn(bounds: Iterable[str], releases: Mapping[Version, bool]) -> bool:
    """Return whether all releases within the bounds are withdrawn.

    `releases` are those of the index, with True for withdrawn ones.
    """
    try:
        specifiers = [SpecifierSet(text) for text in bounds]
    except InvalidSpecifier:
        return False
    of_each = [[gone for v, gone in releases.items() if s.contains(v, prereleases=True)] for s in specifiers]
    return bool(of_each) and all(withdrawn and all(withdrawn) for withdrawn in of_each)
