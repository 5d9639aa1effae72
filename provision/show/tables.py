"""Tables of the profiles in words."""

from __future__ import annotations

from ..model import ProfileTables
from .screen import Screen


def show_tables(screen: Screen, known: ProfileTables) -> None:
    if not known.tables:
        screen.line("nothing new: the profiles have all that the index has")
    for table in known.tables:
        name = " ".join(x for x in (table.table, table.framework) if x)
        count = len(table.rows) if table.count is None else table.count
        screen.wrapped(f"{name}: {count} rows, {table.kept or 'kept by hand'}, read {table.read}", first="")
        screen.wrapped(f"{table.source}", indent="    ")
        screen.wrapped(table.file, indent="    ")
        for row in table.rows:
            words = (f"{k} {' '.join(v) if isinstance(v, (list, tuple)) else v}" for k, v in row.items())
            screen.wrapped("; ".join(words), indent="      ", first="  - ")
