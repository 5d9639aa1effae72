"""Read the commands that a person typed in a shell, each with its output.

A report often shows them after the error: `ls`, `find`, `pip list`. Their output lists files and packages that
exist. Empty output is a fact too, if another prompt follows: a log can end before a command's output.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from .lines import Line

_ENV = r"(?:\([\w.+/:\\ -]{1,60}\) ?){0,2}"
_PROMPTS = tuple(
    re.compile(form)
    for form in (
        rf"{_ENV}PS [A-Za-z]:\\[^>\n]{{0,150}}> ?(?P<typed>.*)$",
        rf"{_ENV}[A-Za-z]:\\[^>\n]{{0,150}}> ?(?P<typed>.*)$",
        rf"{_ENV}\[?[\w.-]{{1,40}}@[\w.-]{{1,80}}[: ~][^$#%>\n]{{0,120}}[$#%\u276f] ?(?P<typed>.*)$",
        rf"{_ENV}[\w.~/-]{{0,60}}[$\u276f\u279c] ?(?P<typed>.*)$",
        r"(?:In \[\d{1,5}\]: )?!(?P<typed>\S.*)$",
        r"(?:>>>|In \[\d{1,5}\]:) ?(?P<typed>.*)$",
    )
)
_MARK = re.compile("[$#%>!+\u276f\u279c]")
_PROMPT_WIDTH = 320  # characters that a prompt can have
_PLAIN = re.compile(r"(?:[#%>+] |)(?P<typed>\S.*)$")  # a prompt that output can have too
_PROGRAMS = (
    r"find|ls|ldconfig|locate|where|whereis|dir|dpkg|rpm|apt|pip3?|conda|mamba|micromamba|uv|ldd|"
    r"uname|lsmod|dkms|modinfo|"
    r"python3?(?:\.\d{1,2})? -m pip|Get-ChildItem|gci"
)
_LISTS = re.compile(rf"(?:sudo )?(?:\S{{0,200}}[/\\])?(?:{_PROGRAMS})(?:\.exe)? ", re.IGNORECASE)
_OUTPUT = 400  # lines of one output


@dataclass(slots=True)
class ShellCommand:
    """A typed command, its line and its output. `ended`: a later prompt proves that the output is complete."""

    typed: str
    line: Line
    output: list[Line] = field(default_factory=list)
    ended: bool = False


def shell_commands(lines: Sequence[Line]) -> list[ShellCommand]:
    """Return the commands of a text with their outputs, in order."""
    found: list[ShellCommand] = []
    for line in lines:
        typed = _read_typed(line.text.strip())
        if typed is None:
            if found and len(found[-1].output) < _OUTPUT and found[-1].line.source == line.source:
                found[-1].output.append(line)
            continue
        if found:
            found[-1].ended = True
        found.append(ShellCommand(typed, line))
    return found


def _read_typed(text: str) -> str | None:
    """Return the command of a line with a prompt, or None for a line of output."""
    if not _MARK.search(text, 0, _PROMPT_WIDTH):
        return None
    for prompt in _PROMPTS:
        if match := prompt.match(text):
            return match.group("typed").strip()
    match = _PLAIN.match(text)
    return match.group("typed") if match and text[:2] in ("# ", "% ", "> ", "+ ") and _LISTS.match(match.group("typed")) else None  # fmt: skip
