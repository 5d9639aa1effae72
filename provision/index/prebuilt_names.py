"""Reads the builds that a wheel is compiled for from its file name.

A page in profiles/indexes.yaml has the rule for its names.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from typing import Protocol

from packaging.specifiers import SpecifierSet
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from ..model import BuiltFor, CxxAbi, WheelGlibc, WheelPage

_FIELDS = {
    "minor": r"(?P<minor>\d+\.\d+)",
    "digits": r"(?P<digits>\d{2,3})",
    "label": r"(?P<label>cpu|cu\d{2,3})",
    "cuda": r"(?P<cuda>\d\d)\d?",
    "abi": "(?P<abi>true|false)",
}


class FrameworkBuild(Protocol):
    """A build of the profiles or of a plan."""

    @property
    def framework(self) -> str:
        """The name of the framework."""

    @property
    def version(self) -> str:
        """The version without local label."""

    @property
    def cuda(self) -> str | None:
        """The CUDA release, or None for a CPU build."""


def read_name(page: WheelPage, file: str) -> tuple[str, BuiltFor] | None:
    """Return the version and the builds of a wheel of a page, or None for a file of another package or form."""
    try:
        name, version, _, _ = parse_wheel_filename(file)
    except (InvalidWheelFilename, InvalidVersion):
        return None
    if (
        page.local is None
        or version.local is None
        or name not in [canonicalize_name(p) for p in page.packages]
    ):
        return None
    match = _pattern(page.local).fullmatch(version.local)
    if match is None:
        return None
    parts = match.groupdict()
    digits, abi = parts.get("digits"), parts.get("abi")
    return version.public, BuiltFor(
        framework=page.framework, minor=parts.get("minor") or (f"{digits[0]}.{digits[1:]}" if digits else ""),
        label=parts.get("label"), cuda=parts.get("cuda"), cxx11={"true": "1", "false": "0"}.get(abi or ""),
    )  # fmt: skip


@functools.cache
def _pattern(rule: str) -> re.Pattern[str]:
    """Return the pattern of a local version in its normal form, which is lower case."""
    texts = re.split(r"\{(\w+)\}", rule)
    parts = [_FIELDS[text] if i % 2 else re.escape(text.lower()) for i, text in enumerate(texts)]
    return re.compile("".join(parts))


def serves(built_for: BuiltFor, build: FrameworkBuild, cxx11: str | None) -> bool:
    """Return whether a wheel is compiled for a build. `cxx11` is the build's C++11 string ABI, or None if unknown."""
    release = tuple(map(int, built_for.minor.split(".")))
    if built_for.framework != build.framework or Version(build.version).release[:2] != release:
        return False
    if built_for.label is not None and built_for.label != label_of(build.cuda):
        return False
    if built_for.cuda is not None and built_for.cuda != (build.cuda or "").split(".")[0]:
        return False
    return None in (built_for.cxx11, cxx11) or built_for.cxx11 == cxx11


def find_cxx11(rows: Iterable[CxxAbi], build: FrameworkBuild, platform: str) -> str | None:
    """Return the C++11 string ABI of a build on a platform, or None without a row for it."""
    for row in rows:
        if row.framework != build.framework or platform != (row.platform or platform):
            continue
        if row.cuda in (None, build.cuda) and SpecifierSet(row.versions).contains(
            build.version, prereleases=True
        ):
            return row.cxx11
    return None


def find_glibc(rows: Iterable[WheelGlibc], package: str, release: str) -> str | None:
    """Return the oldest glibc for the wheels of a release, None where no row has it."""
    for row in rows:
        if row.package == package and SpecifierSet(row.versions).contains(release, prereleases=True):
            return row.glibc
    return None


def label_of(cuda: str | None) -> str:
    """Return the local label of a build: "cu128", "cpu"."""
    return f"cu{cuda.replace('.', '')}" if cuda else "cpu"
