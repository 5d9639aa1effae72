"""Text out of a project's files: how it is shown, and how a requirement is read from it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from provision.system.redaction import redact_text

if TYPE_CHECKING:
    from packaging.requirements import Requirement

LONGEST = 8_000


def shown(text: str) -> str:
    """Return a text for a message: without credentials, in one line of moderate length."""
    text = redact_text(text[:LONGEST])
    text = "".join(c if c.isprintable() else " " for c in text[:101])
    return text if len(text) <= 100 else text[:97] + "..."


def meant_version(text: str) -> str | None:
    """The requirement that "torch@2.6" or "torch=2.6" is meant to be ("torch==2.6.*"); None for any other text.

    To PEP 508 what follows the @ is an address, which no release number is.
    """
    found = re.fullmatch(
        r"\s*([A-Za-z0-9._-]+(?:\[[^\]]*\])?)\s*(?:@|=)\s*v?(\d+(?:\.\d+)*)(?:\.\*)?\s*", text
    )
    if not found:
        return None
    release = found[2]
    return f"{found[1]}=={release}" if release.count(".") >= 2 else f"{found[1]}=={release}.*"


def first_line(error: Exception) -> str:
    """The first line of an error's text, where packaging goes on with a drawing."""
    return shown((str(error).splitlines() or [type(error).__name__])[0])


def requirement(text: str) -> Requirement:
    """A PEP 508 requirement. Raises ValueError, whatever the text is."""
    from packaging.requirements import InvalidRequirement, Requirement

    if len(text) > LONGEST:
        raise ValueError(f"it has {len(text)} characters")
    if re.search(r"[0-9]{200}", text):
        raise ValueError("it has a number of hundreds of digits")
    try:
        return Requirement(text)
    except InvalidRequirement:
        raise
    except (ValueError, RecursionError) as error:
        raise ValueError(type(error).__name__) from error
