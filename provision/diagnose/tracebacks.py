"""Read exceptions of a text and the files that raised them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from .lines import Line

# In front of a line: a rank (torchrun), pytest's "E", a container's or a scheduler's name.
_BEFORE = r"^(?:\[?(?:rank|default)?\d{1,4}\]?[:>] ?|E {1,8}|[\w.-]{1,60} {1,4}\| ){0,2}"
_ENDS = ("Error", "Exception", "Interrupt", "Exit", "Found")
_RAISED = re.compile(
    _BEFORE + r"((?:[A-Za-z_]\w{0,60}\.){0,8}[A-Za-z_]\w{0,60}(?:" + "|".join(_ENDS) + r"))(?:: (.*))?$"
)
_FRAME = re.compile(r"^.{0,80}?File [\"']([^\"']{1,400})[\"'], line (\d{1,7})(?:,? in (.{1,200}))?$")
_SITE = re.compile(r"/(?:site|dist)-packages/([^/]{1,120})")


@dataclass(frozen=True, slots=True)
class Raised:
    """An exception in a text: its type without modules, message, line, and the file of the frame before it."""

    kind: str
    message: str
    line: Line
    file: str | None

    @property
    def package(self) -> str | None:
        """The site-packages folder of the file that raised it."""
        return package_of(self.file or "")


def package_of(path: str) -> str | None:
    """Return the top-level name in site-packages of a file, or None."""
    match = _SITE.search(path.replace("\\", "/"))
    return match.group(1).removesuffix(".py") if match else None


def raised(lines: Sequence[Line]) -> list[Raised]:
    """Return the exceptions of a text, in order."""
    errors, file = [], None
    for line in lines:
        if match := frame(line.text):
            file = match[0]
        elif any(end in line.text for end in _ENDS) and (match_ := _RAISED.match(line.text.strip())):
            errors.append(Raised(match_.group(1).rpartition(".")[2], match_.group(2) or "", line, file))
            file = None
    return errors


def frame(text: str) -> tuple[str, int, str] | None:
    """Return the file, line and function of a traceback line, or None."""
    match = _FRAME.match(text)
    return (match.group(1), int(match.group(2)), (match.group(3) or "").strip()) if match else None
