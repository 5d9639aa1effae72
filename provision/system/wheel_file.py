"""File names of wheels, with and without the label of a variant (PEP 427, PEP 825). Nothing else parses them."""

from __future__ import annotations

import re
from typing import NamedTuple

from packaging.tags import Tag
from packaging.utils import BuildTag, parse_wheel_filename
from packaging.version import Version

NULL = "null"
"""The label of the variant without properties, which every system supports."""
_LABELLED = re.compile(r"([^-]+-[^-]+(?:-\d[^-]*)?-[^-\d][^-]*-[^-]+-[^-]+)-([0-9a-z_.]+)\.whl")
"""A name with a label. A Python tag never begins with a digit, and a build tag always does."""


class WheelName(NamedTuple):
    """The parts of a wheel's name. `label` is that of its variant, or None for an ordinary wheel."""

    name: str
    version: Version
    build: BuildTag
    tags: frozenset[Tag]
    label: str | None


def parse_wheel(file: str) -> WheelName:
    """Return the parts of a wheel's name. Raises InvalidWheelFilename."""
    name, version, build, tags = parse_wheel_filename(plain_name(file))
    return WheelName(str(name), version, build, tags, label_of(file))


def plain_name(file: str) -> str:
    """Return a wheel's name without the label of its variant: the name that every installer takes."""
    match = _LABELLED.fullmatch(file)
    return f"{match[1]}.whl" if match else file


def label_of(file: str) -> str | None:
    """Return the label of a variant, or None for any other file."""
    match = _LABELLED.fullmatch(file)
    return match[2] if match else None
