"""Where in a TOML text a value stands, for messages that name a line."""

from __future__ import annotations

import functools
import re

_HEADER = re.compile(r"\s*\[([^\[\]]+)\]\s*(#.*)?")
_QUOTED = re.compile(r'"([^"]*)"|\'([^\']*)\'')


class Places:
    """The lines of a TOML text. A value is looked for below the header of its table, each line once."""

    def __init__(self, name: str, text: str) -> None:
        self.name, self.lines = name, text.split("\n")
        self.taken: set[tuple[int, str]] = set()

    @functools.cached_property
    def headers(self) -> dict[str, int]:
        """The index of the line of each [table]."""
        found: dict[str, int] = {}
        for i, line in enumerate(self.lines):
            if match := _HEADER.fullmatch(line):
                found.setdefault(re.sub(r"[\s\"']", "", match[1]), i)
        return found

    @functools.cached_property
    def strings(self) -> dict[str, list[int]]:
        """The indexes of the lines in which each quoted text stands."""
        found: dict[str, list[int]] = {}
        for i, line in enumerate(self.lines):
            for match in _QUOTED.finditer(line):
                found.setdefault(match[1] or match[2] or "", []).append(i)
        return found

    def quoted(self, value: str, table: str, fallback: str) -> str:
        """The origin of a quoted value: file and line, else file and `fallback`, a path of keys."""
        start = self.headers.get(table, 0)
        for i in self.strings.get(value, ()):
            if i >= start and (i, value) not in self.taken:
                self.taken.add((i, value))
                return f"{self.name} line {i + 1}"
        return f"{self.name} [{fallback}]"

    def key(self, key: str, table: str) -> str:
        """The origin of a key of a table."""
        start = self.headers.get(table)
        pattern = re.compile(rf"\s*[\"']?{re.escape(key)}[\"']?\s*=")
        for i in range(len(self.lines) if start is None else start + 1, len(self.lines)):
            if _HEADER.fullmatch(self.lines[i]):
                break
            if pattern.match(self.lines[i]):
                return f"{self.name} line {i + 1}"
        return f"{self.name} [{table}.{key}]"
