"""Quote text of a project's files in messages, and parse a requirement from it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ..system.redaction import clean_line

if TYPE_CHECKING:
    from packaging.requirements import Requirement


LONGEST = 8_000


def quote_text(text: str) -> str:
    """Return a text for a message: one line of at most 100 characters, without credentials."""
    return clean_line(text, 100)


def suggest_version(text: str) -> str | None:
    """Return the requirement meant by "torch@2.6" or "torch=2.6" ("torch==2.6.*"), or None for any other text.

    PEP 508 reads an address after the @. A release number is not an address.
    """
    match = re.fullmatch(
        r"\s*([A-Za-z0-9._-]+(?:\[[^\]]*\])?)\s*(?:@|=)\s*v?(\d+(?:\.\d+)*)(?:\.\*)?\s*", text
    )
    if not match:
        return None
    release = match[2]
    return f"{match[1]}=={release}" if release.count(".") >= 2 else f"{match[1]}=={release}.*"


def take_first_line(error: Exception) -> str:
    """Return the first line of an error's text. Errors of packaging continue with a drawing."""
    return quote_text((str(error).splitlines() or [type(error).__name__])[0])


def try_requirement(text: str) -> Requirement | None:
    """Return a requirement, or None for a folder, an editable package or what is none."""
    from packaging.requirements import InvalidRequirement, Requirement

    try:
        return Requirement(text)
    except InvalidRequirement:
        return None


def parse_requirement(text: str) -> Requirement:
    """Parse a PEP 508 requirement. Raises ValueError for any text that is not one."""
    from packaging.requirements import Requirement
    from packaging.version import Version

    if len(text) > LONGEST:
        raise ValueError(f"it is too long ({len(text)} characters)")
    if re.search(r"[0-9]{200}", text):
        raise ValueError("it contains a number with hundreds of digits")
    try:
        need = Requirement(text)
    except RecursionError as error:  # packaging 26.1
        raise ValueError("its marker is nested too deep") from error
    for exact in need.specifier:  # packaging allows any text here, and no release can have it
        if exact.operator == "===":
            Version(exact.version)
    return need
