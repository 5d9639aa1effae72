"""Shows what commands write: exports, files of a project, reports and tables of profiles."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..model import (
    CacheUsage,
    ExportResult,
    InitResult,
    IssueReport,
    ProfileTable,
    ProfileTables,
    format_bytes,
)
from ..system.redaction import clean
from .table import show_table
from .terminal_output import Screen

_WIDE = 140
"""Columns from which on a table of profiles names its sources."""


def show_export(screen: Screen, value: ExportResult) -> None:
    """Show the text without changes, or the path of the file."""
    if value.path is None:
        screen.out.write(clean(value.text))
        screen.out.flush()
    else:
        screen.line(clean(f"{value.path}: written ({value.format})"))


def show_initialised(screen: Screen, result: InitResult) -> None:
    """Show one line per file, then the origin of the frameworks and the remaining work."""
    width = max(len(file.path) for file in result.files)
    for file in result.files:
        screen.wrapped(f"{file.path:{width}}  {file.done}: {file.detail}", indent=" " * (width + 2), first="")
    for note in result.notes:
        screen.wrapped(note, indent="    ", first="  ")
    if all(file.done == "kept" for file in result.files):
        screen.line("nothing was changed")


def show_cache(screen: Screen, cache: CacheUsage) -> None:
    """Show the folder alone, so that a script can read it, or what was removed from it."""
    if cache.removed_files is None:
        screen.line(cache.path)
        return
    many = f"{cache.removed_files} file{'' if cache.removed_files == 1 else 's'}"
    screen.line(f"{cache.path}: {many} removed, {format_bytes(cache.freed_bytes or 0)} freed")


def show_report(screen: Screen, report: IssueReport) -> None:
    """Show the text without changes, so that it can be pasted."""
    screen.line(clean(report.text).rstrip("\n"))


def remark_on_report(screen: Screen, report: IssueReport) -> None:
    """Say what is hidden in the text."""
    if report.hidden:
        kinds = ", ".join(report.hidden)
        for row in screen.fold(
            f"note: the report hides: {kinds}; read it before pasting", first="", stream=screen.err
        ):
            screen.say(row)


def show_tables(screen: Screen, known: ProfileTables) -> None:
    """Show one row for each table, or each table with its rows if they were requested."""
    if not known.tables:
        screen.line("no new releases: the profiles are up to date with the index")
    elif any(table.rows for table in known.tables):
        for table in known.tables:
            _show_rows(screen, table)
    else:
        heads = ("TABLE", "ROWS", "KEPT", "READ", "FILE", "SOURCE")
        rows_of = [
            (_format_title(t), str(_count(t)), t.kept or "by hand", t.read, Path(t.file).name, t.source)
            for t in known.tables
        ]
        wide = screen.verbose or screen.columns() >= _WIDE
        shown = heads if wide else heads[:-1]
        show_table(screen, shown, [row[: len(shown)] for row in rows_of])


def _show_rows(screen: Screen, table: ProfileTable) -> None:
    screen.line(
        f"{_format_title(table)}: {_count(table)} rows, {'measured' if table.kept == 'measured' else 'kept by hand'}, read {table.read}"
    )
    screen.wrapped(table.source, indent="  ")
    keys = list(dict.fromkeys(key for row in table.rows for key in row))
    cells = [[_format_cell(row.get(key)) for key in keys] for row in table.rows]
    if cells:
        show_table(screen, [key.upper() for key in keys], cells, indent=2)


def _format_title(table: ProfileTable) -> str:
    return " ".join(filter(None, (table.table, table.framework)))


def _count(table: ProfileTable) -> int:
    return len(table.rows) if table.count is None else table.count


def _format_cell(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value))
    return "" if value is None else str(value)
