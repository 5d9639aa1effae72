"""Formats tables with headers that fit the terminal.

Long cells are folded. Columns without room are named below the table.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from itertools import zip_longest

from ..system.redaction import clean
from .terminal import Screen

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
