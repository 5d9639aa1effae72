"""Measured rows into profile files: replacing a table of ours, or only what is new for an overlay."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .checks import row_key
from .kinds import KINDS, Row, Table

if TYPE_CHECKING:
    from collections.abc import Sequence


def documents(tables: Sequence[Table]) -> dict[str, list[Row]]:
    """The hand-kept tables of a file, by name: what is joined to the measured rows."""
    return {t.head["table"]: list(t.rows) for t in tables if t.head.get("kept") == "by hand"}


def replaced(tables: Sequence[Table], rows: Sequence[Row], head: dict[str, str]) -> list[Table]:
    """The tables of a file with its measured table replaced; `head` says what the table is. Its
    date stays where no row changed."""
    old = next((t for t in tables if t.head.get("kept") == "measured"), None)
    if old and list(old.rows) == list(rows):
        head = {**head, "read": old.head["read"]}
    made = Table(head={**head, "kept": "measured"}, rows=tuple(rows))
    return [made, *(t for t in tables if t is not old)]


def difference(tables: Sequence[Table], rows: Sequence[Row], head: dict[str, str]) -> Table | None:
    """The measured rows that a file does not have, or has otherwise, as a table for an overlay;
    None where there is nothing new."""
    kind = KINDS[head["table"]]
    known = {
        row_key(kind, t.head, row): row
        for t in tables
        if t.head.get("table") == head["table"]
        for row in t.rows
    }
    fresh = tuple(row for row in rows if known.get(row_key(kind, head, row)) != row)
    return Table(head={**head, "kept": "measured"}, rows=fresh) if fresh else None
