"""What commands write, in words: exports, bundles, a project's files, reports and tables of profiles."""

from __future__ import annotations

from ..model import Bundle, Cache, Exported, Initialised, ProfileTables, Report
from .listing import amount
from .screen import Screen, clean


def show_export(screen: Screen, value: Exported) -> None:
    """The text as it is, or the file's path."""
    if value.path is None:
        screen.out.write(clean(value.text))
        screen.out.flush()
    else:
        screen.line(clean(f"{value.path}: written ({value.format})"))


def show_bundle(screen: Screen, bundle: Bundle) -> None:
    """What it is for, its files, its notes."""
    gpus = ", ".join(g.name or f"compute capability {g.capability}" for g in bundle.target.gpus)
    driver = f"driver {bundle.target.driver}" if bundle.target.driver else ""
    meant = ", ".join(filter(None, (bundle.target.platform, f"Python {bundle.python}", driver, gpus)))
    screen.wrapped(f"{', '.join(bundle.frameworks)} for {bundle.device}: {meant}", first="")
    total = sum(f.size or 0 for f in bundle.files)
    python = f", with Python {bundle.archive.version}" if bundle.archive else ", without a Python"
    screen.line(f"{len(bundle.files)} files, {total / 1e6:.1f} MB{python}")
    if screen.verbose:
        for file in bundle.files:
            screen.line(f"  {file.path}")
    for note in bundle.notes:
        screen.wrapped(f"note: {note}", indent="    ", first="  ")


def show_initialised(screen: Screen, made: Initialised) -> None:
    """One line a file, then where the frameworks were found and what is left to the user."""
    width = max(len(file.path) for file in made.files)
    for file in made.files:
        screen.wrapped(f"{file.path:{width}}  {file.done}: {file.detail}", indent=" " * (width + 2), first="")
    for note in made.notes:
        screen.wrapped(note, indent="    ", first="  ")
    if all(file.done == "kept" for file in made.files):
        screen.line("nothing was changed")


def show_cache(screen: Screen, cache: Cache) -> None:
    """The folder alone, so that a script can read it; or what was removed from it."""
    if cache.removed_files is None:
        screen.line(cache.path)
        return
    many = f"{cache.removed_files} file{'' if cache.removed_files == 1 else 's'}"
    screen.line(f"{cache.path}: {many} removed, {amount(cache.freed_bytes or 0)} freed")


def show_report(screen: Screen, report: Report) -> None:
    """The text without changes, for a public place."""
    screen.line(clean(report.text).rstrip("\n"))


def remark_on_report(screen: Screen, report: Report) -> None:
    """Say what is hidden in the text."""
    if report.hidden:
        kinds = ", ".join(report.hidden)
        for row in screen.fold(f"note: hidden in it: {kinds}; read it before you paste it", first=""):
            screen.say(row)


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
