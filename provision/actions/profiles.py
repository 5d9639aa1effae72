"""`gpuenv profiles list|show|check|update`: read and update the tables of drivers, GPUs and builds."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .. import profiles
from ..config import rows
from ..config.options import Choices, get_cache_dir, suggest_value
from ..errors import BuildError, DataError, UsageError
from ..index import uv
from ..index.config import pip_settings
from ..index.http import Http
from ..index.places import default_index
from ..model import Emit, Event, ProfileTable, ProfileTables, drop_event
from ..model.declare import argument, group, option
from ..model.values import Value
from ..profiles import measure
from ..profiles.measure.reader import Reader, row_name
from ..profiles.tables import FILES, Table, documents, dump, find_difference, read_file
from ..system import process
from ..system.cache import cache_folder
from ..system.files import suggest_fix, write_file


class ProfilesListOptions(Value):
    """The options of `profiles list`."""

    choices: Choices = group(Choices, "profiles")


class ProfilesShowOptions(Value):
    """The options of `profiles show`."""

    names: list[str] = argument(list, help="Names of profiles, such as torch.  [default: all]")
    choices: Choices = group(Choices, "profiles")


class ProfilesCheckOptions(Value):
    """The options of `profiles check`."""

    folders: list[Path] = argument(
        list, help="Folders with tables about versions.  [default: gpuenv's own tables, and yours]"
    )
    choices: Choices = group(Choices, "profiles")


class ProfilesUpdateOptions(Value):
    """The options of `profiles update`."""

    names: list[str] = argument(
        list,
        help="torch, tensorflow, jax, onnxruntime, cudnn or satellites (packages built for a framework; downloads gigabytes).  [default: all but satellites]",
    )
    index: str | None = option(None, help="Package index to read.  [default: that of pip]")
    profiles: Path | None = option(None, help="Folder to write.  [default: your own profiles]")
    choices: Choices = group(Choices, "cache_dir")


def __getattr__(name: str) -> Any:
    """Return the function `list`. Defined under this name it would hide the type in this module."""
    if name != "list":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _list


def _list(options: ProfilesListOptions, emit: Emit = drop_event) -> ProfileTables:
    """Return the tables without their rows: number of rows, source and date."""
    return _check_tables(ProfilesCheckOptions(choices=options.choices))


def show(options: ProfilesShowOptions, emit: Emit = drop_event) -> ProfileTables:
    """Return the rows of profile files."""
    return _tables(_folders(options.choices), options.names)


def check(options: ProfilesCheckOptions, emit: Emit = drop_event) -> ProfileTables:
    """Return the tables of valid profiles: of the named folders, otherwise of gpuenv's own and the overlays.

    The rules of diagnose are checked with gpuenv's own. Raises DataError with file, row and key of every mistake, and
    UsageError.
    """
    from ..diagnose.rules import check_tables

    known = _check_tables(options)
    check_tables(profiles.load(options.folders or rows.list_overlays(options.choices)))
    count = sum(table.count or 0 for table in known.tables)
    files = len({table.file for table in known.tables})
    text = f"the profiles are valid: {files} files, {len(known.tables)} tables, {count} rows"
    emit(Event("summary", "profiles", text))
    return known


def _check_tables(options: ProfilesCheckOptions) -> ProfileTables:
    """Return the tables without their rows. Raises the errors of `check`."""
    for folder in options.folders:
        if not folder.is_dir():
            raise UsageError(f"{folder}: no such folder")
    tables = _tables(options.folders or _folders(options.choices), ())
    return ProfileTables(tables=tuple(t.without_rows() for t in tables.tables))


def update(options: ProfilesUpdateOptions, emit: Emit = drop_event) -> ProfileTables:
    """Read new releases from the index into the user's own overlay. Raises LockError, UsageError."""
    for name in options.names:
        if name not in measure.MEASURED:
            raise UsageError(
                f"{name}: not one of {', '.join(measure.MEASURED)}",
                hint="name profiles that `profiles update` reads",
            )
    environ, cache = process.environ(), get_cache_dir(options.choices)
    http = Http(pip_settings(environ))

    def say(text: str) -> None:
        emit(Event("progress", "profiles", text))

    where = options.index or default_index(environ)
    if not where:
        raise BuildError(
            f"no index is configured, and {uv.program()} states none",
            hint="reinstall gpuenv, or name an index: --index URL",
        )
    reader = Reader(http, where, cache_folder(cache, "measured"), say=say)
    tables = []
    for name in options.names or measure.DEFAULT:
        emit(Event("start", "profiles", f"reading the releases of {name} from the index"))
        tables += _update_file(reader, name, options.profiles or rows.own_profiles())
    for problem in reader.problems:
        emit(Event("warning", "profiles", f"left out: {problem}"))
    return ProfileTables(tables=tuple(tables))


def _folders(choices: Choices) -> list[Path]:
    """Return gpuenv's own folder, then the overlays."""
    return [profiles.directory(), *rows.list_overlays(choices)]


def _tables(folders: Sequence[Path], names: Sequence[str]) -> ProfileTables:
    known = {Path(f).stem for f in FILES}
    for name in names:
        if name not in known:
            raise UsageError(
                f"no profile {name!r}: expected one of {', '.join(sorted(known))}",
                hint=suggest_value(name, sorted(known)),
            )
    read = profiles.read_tables(folders)
    return ProfileTables(tables=tuple(_table(p, t) for p, t in read if not names or p.stem in names))


def _table(path: Path, table: Table) -> ProfileTable:
    head = table.head
    return ProfileTable(
        file=str(path), table=head["table"], framework=head.get("framework"), kept=head.get("kept"),
        source=head["source"], read=head["read"], rows=tuple(dict(r) for r in table.rows),
    )  # fmt: skip


def _update_file(reader: Reader, name: str, target: Path) -> list[ProfileTable]:
    """Update one file of the overlay. Return the table of new rows, if there are any."""
    shipped, _ = read_file(profiles.directory() / f"{name}.yaml")
    table, read_rows, required = measure.MEASURED[name]
    measured = [
        r for t in shipped if t.head["table"] == table and t.head.get("kept") == "measured" for r in t.rows
    ]
    # Shipped rows are not read again, so that an update reads only new releases.
    reader.known = frozenset(map(row_name, measured))
    reader.require(required)
    rows = read_rows(reader, documents(shipped))
    today = dt.datetime.now(tz=dt.timezone.utc).date().isoformat()
    head: dict[str, Any] = {"table": table, **({"framework": name} if table == "builds" else {})}
    fresh = find_difference(shipped, rows, {**head, "source": measure.SOURCE, "read": today})
    path = target / f"{name}.yaml"
    others = _read_own_tables(path)
    if fresh is None and not others:
        path.unlink(missing_ok=True)  # the shipped profiles have all rows of the overlay
    else:
        _write(path, dump([*([fresh] if fresh else []), *others]))
    return [_table(path, fresh)] if fresh else []


def _read_own_tables(path: Path) -> list[Table]:
    """Return the tables of an overlay that gpuenv did not write. Raises DataError for a file with mistakes."""
    if not path.exists():
        return []
    tables, problems = read_file(path)
    if problems:
        raise DataError(
            f"{path} is invalid and was not updated", problems=tuple(problems),
            hint="correct these rows, or move the file away",
        )  # fmt: skip
    return [t for t in tables if t.head.get("kept") != "measured"]


def _write(path: Path, text: str) -> None:
    """Write an overlay in one step. Raises UsageError if that fails."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, text)
    except OSError as error:
        raise UsageError(
            f"{path} cannot be written: {error.strerror}",
            hint=suggest_fix(error, "name another folder: --profiles DIR"),
        ) from error
