"""Writes to the terminal: results and tables to stdout, progress and errors to stderr.

All text goes through `clean`, because much of it comes from outside. Paths, logs, and names of devices and
packages can contain terminal escapes, and addresses can contain credentials.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, TextIO

from ..system.redaction import clean, redact_value

if TYPE_CHECKING:
    from ..model import Event
    from .progress import Progress


_IN_JSON = r"[\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]"
UNLIMITED = 1 << 20
"""The columns of what is no terminal."""
_COLOURS = {"green": "32", "yellow": "33", "red": "31", "dim": "2", "bold": "1"}


_OURS = "(" + "|".join(rf"\x1b\[{c}m" for c in ("0", *_COLOURS.values())) + ")"


@dataclass
class Screen:
    """How this run talks. `json` leaves stdout to one document; `quiet` drops progress."""

    json: bool = False
    quiet: bool = False
    verbose: bool = False
    environ: Mapping[str, str] = field(default_factory=dict)
    out: TextIO = field(default_factory=lambda: sys.stdout)
    err: TextIO = field(default_factory=lambda: sys.stderr)
    next_step: str | None = None  # what the result ends with
    shown: set[str] = field(default_factory=set)  # warnings and notes, each of which is said once
    summary: str | None = None  # a sentence in place of the details of a result
    last_only: bool = False  # of the result only its last line is shown
    pending: list[str] = field(default_factory=list)  # the last line so far, where only that is shown
    activity: Progress | None = None  # what is drawn while the command waits
    lock: Any = field(
        default_factory=contextlib.nullcontext
    )  # locked while a line is written, because a thread draws
    live: bool = False  # a progress line is standing that the next line must replace

    def colour(self, text: str, name: str, stream: TextIO | None = None) -> str:
        """Return text in a colour, if the stream shows colours."""
        if not self._has_colours(stream or self.out):
            return text
        return f"\x1b[{_COLOURS[name]}m{text}\x1b[0m"

    def _has_colours(self, stream: TextIO) -> bool:
        """Return whether a stream gets colours: a terminal does, FORCE_COLOR says so for any, NO_COLOR forbids it."""
        if self.environ.get("NO_COLOR"):
            return False
        if self.environ.get("FORCE_COLOR", "0") not in ("", "0", "false"):
            return True
        return stream.isatty() and self.environ.get("TERM") != "dumb"

    def width(self, stream: TextIO | None = None) -> int:
        """Return the columns that a paragraph may take."""
        columns = self.columns(stream)
        return columns if columns == UNLIMITED else max(20, min(columns, 120))

    def columns(self, stream: TextIO | None = None) -> int:
        """Return the columns of a stream, standard output without one: COLUMNS, those of its terminal, or UNLIMITED for a
        pipe or a file, whose reader breaks lines by itself."""
        stream, stated = stream or self.out, self.environ.get("COLUMNS", "")
        if stated.isdecimal() and int(stated):
            return int(stated)
        if not stream.isatty():
            return UNLIMITED
        try:
            return os.get_terminal_size(stream.fileno()).columns or 80
        except (OSError, ValueError):
            return 80

    def line(self, text: str = "") -> None:
        """Write a line of the result."""
        if self.last_only:
            self.pending = [text]
        elif not self.json:
            self._clear_progress()
            self._write(self.out, text)

    def show_pending(self) -> None:
        """Show the last line of a result that is otherwise not shown."""
        pending, self.pending, self.last_only = self.pending, [], False
        for row in pending:
            self.line(row)

    def wrapped(self, text: str, indent: str = "  ", first: str | None = None) -> None:
        """Write a paragraph of the result. It is broken only between words, so that paths stay whole."""
        rows = self.fold(text, indent, first)
        for row in rows:
            self.line(row)
        if self.last_only:
            self.pending = rows

    def fold(
        self, text: str, indent: str = "  ", first: str | None = None, stream: TextIO | None = None
    ) -> list[str]:
        """Return a paragraph in rows. A command in backticks stays in one row, so that it can be copied."""
        whole = re.sub(r"`[^`]{1,200}`", lambda command: command[0].replace(" ", "\0"), clean(text))
        rows = textwrap.wrap(
            whole, self.width(stream), initial_indent=indent if first is None else first,
            subsequent_indent=indent, break_long_words=False, break_on_hyphens=False,
        )  # fmt: skip
        return [row.replace("\0", " ") for row in rows] or [""]

    def show_activity(self, event: Event) -> None:
        """Show what a stage is at, as long as that lasts."""
        if self.quiet:
            return
        if self.activity is None:
            import threading

            from .progress import Progress

            self.lock = threading.RLock()
            is_live = self.err.isatty() and self.environ.get("TERM") != "dumb"
            self.activity = Progress(self.say, self.progress if is_live else None)
        self.activity.update(event)

    def stop_activity(self) -> None:
        """Stop showing an activity. The result or an error follows."""
        if self.activity:
            self.activity.stop()
        with self.lock:
            self._clear_progress()

    def say(self, text: str, *, always: bool = False) -> None:
        """Write a line of progress. On a terminal it is broken between words."""
        if self.quiet and not always:
            return
        with self.lock:
            self._clear_progress()
            rows = [text := self._clean(self.err, text)]
            if self.err.isatty() and "\n" not in text and not text.startswith(" "):
                rows = textwrap.wrap(text, self.width(self.err), subsequent_indent="  ",
                                     break_long_words=False, break_on_hyphens=False)  # fmt: skip
            for row in rows or [""]:
                self._write(self.err, row)

    def progress(self, text: str) -> None:
        """Write a line that the next one replaces. Standard error is a terminal."""
        row = clean(text, self.columns(self.err) - 1)  # of two rows only the last would be erased
        with self.lock:
            self.err.write(f"\r\x1b[2K{row}")
            self.err.flush()
            self.live = True

    def _clear_progress(self) -> None:
        if self.live:
            self.err.write("\r\x1b[2K")
            self.err.flush()  # the result goes to another stream of the same terminal
            self.live = False

    def document(self, data: dict[str, Any]) -> None:
        """Write the JSON document of a `--json` run."""
        self._clear_progress()
        text = json.dumps(redact_value(data), indent=2, ensure_ascii=False)
        self.out.write(_encode(self.out, re.sub(_IN_JSON, lambda m: f"\\u{ord(m[0]):04x}", text)) + "\n")
        self.out.flush()

    def _clean(self, stream: TextIO, text: str) -> str:
        """Return a text without secrets and control characters, but with gpuenv's own colours."""
        if "\x1b" in text and self._has_colours(stream):
            return "".join(p if re.fullmatch(_OURS, p) else clean(p) for p in re.split(_OURS, text))
        return clean(text)

    def _write(self, stream: TextIO, text: str) -> None:
        """Write a line, cleaned."""
        text = self._clean(stream, text)
        stream.write(_encode(stream, text) + "\n")
        stream.flush()


def _encode(stream: TextIO, text: str) -> str:
    """Return text that a stream can encode. File names may contain invalid bytes, and a stream may be ASCII."""
    encoding = stream.encoding or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)


def count(number: int, word: str, several: str = "") -> str:
    """Return a number with its word: "1 host", "2,400 hosts"."""
    plural = several or f"{word}{'es' if word.endswith('s') else 's'}"
    return f"{number:,} {word if number == 1 else plural}"


# --- tables: long cells are folded ---------------------------------------------------------------

_GAP = 2
_LEAST = 8
_LONG_WORD = 20
"""Longer words are broken."""
_MOST_ROWS = 6
"""Rows of one cell, beyond which its column has no room."""


def show_table(
    screen: Screen,
    heads: Sequence[str],
    rows: Sequence[Sequence[str]],
    indent: int = 0,
    *,
    whole: bool = False,
) -> None:
    """Show rows under their heads. Where not all columns have room, the last ones are left out and named; with `whole`
    none is."""
    cells = [[clean(cell) for cell in row] for row in rows]
    natural = [max([len(head), *(len(row[i]) for row in cells)]) for i, head in enumerate(heads)]
    least = [
        _find_least_width([head, *(row[i] for row in cells)], whole=whole) for i, head in enumerate(heads)
    ]
    room = max(40, screen.columns()) - indent
    shown = len(heads) if whole else _select_fitting(least, room)
    widths = _share_width(natural[:shown], least, room)
    screen.line(format_row(heads[:shown], widths, indent))
    for row in cells:
        folded = [
            textwrap.wrap(cell, width, break_on_hyphens=False) or [""]
            for cell, width in zip(row[:shown], widths, strict=True)
        ]
        for part in zip_longest(*folded, fillvalue=""):
            screen.line(format_row(part, widths, indent))
    if left_out := ", ".join(heads[shown:]):
        screen.wrapped(f"hidden columns: {left_out}; widen the terminal or use --json", indent=" " * indent)


def _find_least_width(cells: Sequence[str], *, whole: bool) -> int:
    """Return the least width of a column: of its head, its longest word, and what folds into few rows."""
    words = max((len(word) for cell in cells for word in cell.split()), default=0)
    tall = 0 if whole else max(map(len, cells)) // _MOST_ROWS
    return min(max(map(len, cells)), max(_LEAST, len(cells[0]), min(words, _LONG_WORD), tall))


def _select_fitting(least: Sequence[int], room: int) -> int:
    """Return how many columns fit at their least widths; one always does."""
    used = 0
    for i, width in enumerate(least):
        used += width + (_GAP if i else 0)
        if used > room and i:
            return i
    return len(least)


def _share_width(natural: Sequence[int], least: Sequence[int], room: int) -> list[int]:
    """Return the widths of columns that share a room: the widest give until all fit."""
    widths = list(natural)
    while sum(widths) + _GAP * (len(widths) - 1) > room:
        i = max(range(len(widths)), key=lambda i: widths[i] - least[i])
        if widths[i] <= least[i]:
            break
        widths[i] -= 1
    return widths


def format_row(cells: Sequence[str], widths: Sequence[int], indent: int = 0) -> str:
    padded = (" " * _GAP).join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
    return (" " * indent + padded).rstrip()
