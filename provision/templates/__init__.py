"""Template files of exports, and the function that fills them.

A slot is `@name@`, or `@quoting:name@` with one of the quotings below. Values are input from outside, so that each slot says how
it is quoted. The lines between `@if name@` (or `@if not name@`) and `@end@` are left out where the value is false (true).
`@each:name@` repeats its line for each value.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

_SLOT = re.compile(r"@(?:(\w+):)?(\w+)@")
_BLOCK = re.compile(r"\s*@(?:if (not )?(\w+)|end)@")


def oneline(text: str) -> str:
    """Return text for a comment: one line without control characters."""
    return re.sub(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]+", " ", text).strip()


def shell(*words: str) -> str:
    """Return a command line for sh on one line, because a Dockerfile allows no line end within quotes."""
    return shlex.join(map(oneline, words))


def _in_double_quotes(text: str) -> str:
    """Return text for bash's "${NAME:-...}". A brace would end it."""
    return oneline(re.sub(r'([\\"$`}])', r"\\\1", text))


def _expression(text: str) -> str:
    """Return a string literal for GitHub's expressions."""
    return "'" + oneline(text).replace("'", "''") + "'"


_QUOTINGS: dict[str, Callable[[Any], str]] = {
    "line": oneline,
    "sh": lambda words: shell(words) if isinstance(words, str) else shell(*words),
    "double": _in_double_quotes,
    "json": json.dumps,
    "expression": _expression,
    "raw": str,  # it is in the format already
}


def read(name: str) -> str:
    """Return the text of a template."""
    return (Path(__file__).parent / name).read_text(encoding="utf-8")


def fill(name: str, values: Mapping[str, Any]) -> str:
    """Return a template with its slots filled. Raises KeyError for a slot without a value."""
    lines: list[str] = []
    shown = [True]
    for line in read(name).splitlines():
        if block := _BLOCK.fullmatch(line):
            if block[2]:
                shown.append(shown[-1] and bool(values[block[2]]) is not bool(block[1]))
            else:
                shown.pop()
        elif shown[-1]:
            lines += _fill_line(line, values)
    return "\n".join(lines) + "\n"


def _fill_line(line: str, values: Mapping[str, Any]) -> Iterable[str]:
    """Return a line with its slots filled. Further lines of a value are indented as its first one."""
    if each := re.search(r"@each:(\w+)@", line):
        return [line.replace(each[0], oneline(value)) for value in values[each[1]]]
    indent = line[: len(line) - len(line.lstrip())]
    filled = _SLOT.sub(lambda slot: _QUOTINGS[slot[1] or "line"](values[slot[2]]), line)
    first, *more = filled.split("\n")
    return [first, *((indent + row).rstrip() for row in more)]
