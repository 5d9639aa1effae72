"""Measure the releases of the default index, and update the tables of profiles/.

    python scripts/update_profiles.py [torch tensorflow jax cudnn] [--write] [--cache DIR]
    python scripts/update_profiles.py satellites [--platform linux-aarch64] [--write] [--cache DIR]
    python scripts/update_profiles.py [NAME ...] --sample 3

Shows a unified diff; only `--write` changes files. Tables marked `kept: "by hand"` are not changed. A wheel
that cannot be read is reported and has no row. Facts are cached in the cache folder by the wheel's sha256, so
that an interrupted run can be started again. `--sample` reads that many random rows again without the cache,
and fails if one differs.

`satellites` is read only if named. It downloads whole wheels, some 40 GB, one at a time, and needs 3 GB for
temporary files (TMPDIR). With `--platform` only those of one platform are read, and the rows of others stay.
"""

from __future__ import annotations

import argparse
import datetime as dt
import difflib
import random
import sys
from collections.abc import Sequence
from pathlib import Path

from provision.cli import exit_codes
from provision.errors import GpuenvError
from provision.index.config import pip_settings
from provision.index.http import Http
from provision.index.places import default_index
from provision.profiles import measure
from provision.profiles.measure.reader import Reader, row_name
from provision.profiles.measure.satellites import PLATFORMS
from provision.profiles.tables import KINDS, Row, Table, documents, dump, read_file, row_key
from provision.system import process

ROOT = Path(__file__).resolve().parent.parent


def read(path: Path) -> list[Table]:
    """Return the tables of a profile file. Exit if it is invalid."""
    tables, problems = read_file(path) if path.exists() else ([], [])
    if problems:
        raise SystemExit("\n".join(problems))
    return tables


def head(name: str) -> dict[str, str]:
    """Return the head of a measured table."""
    today = dt.datetime.now(tz=dt.timezone.utc).date().isoformat()
    table = measure.MEASURED[name][0]
    framework = {"framework": name} if table == "builds" else {}
    return {"table": table, **framework, "source": measure.SOURCE, "read": today}


def sample(reader: Reader, folder: Path, names: list[str], count: int) -> int:
    """Read `count` random measured rows of the named files again, and return how many differ."""
    known = []
    for name in names:
        tables = read(folder / f"{name}.yaml")
        known += [
            (name, tables, row)
            for t in tables
            if t.head.get("kept") == "measured"
            for row in t.rows
            if "sha256" in row and row.get("platform", "any") in reader.platforms
        ]
    wrong = 0
    for name, tables, row in random.sample(known, count):  # which rows, no secret
        reader.only = frozenset({row_name(row)})
        kind = KINDS[measure.MEASURED[name][0]]
        measured = measure.MEASURED[name][1](reader, documents(tables))
        key = row_key(kind, {}, row)
        again = next((r for r in measured if row_key(kind, {}, r) == key), None)
        wrong += again != row
        which = " ".join([*filter(None, [row.get("package")]), row["version"], row["platform"]])
        print(f"{'as before' if again == row else 'DIFFERS'}: {name} {which}")
        if again != row:
            print(f"  profiles: {row}\n  index:    {again}")
    return wrong


def replace_table(tables: Sequence[Table], rows: Sequence[Row], head: dict[str, str]) -> list[Table]:
    """Return the tables of a file with a new measured table of that `head`.

    The date stays if no row changed.
    """
    old = next((t for t in tables if t.head.get("kept") == "measured"), None)
    if old and list(old.rows) == list(rows):
        head = {**head, "read": old.head["read"]}
    measured = Table(head={**head, "kept": "measured"}, rows=tuple(rows))
    return [measured, *(t for t in tables if t is not old)]


def update(reader: Reader, folder: Path, names: list[str], *, write: bool) -> int:
    """Print the difference of each named file, with `write` write it, and return how many differ."""
    changed = 0
    for name in names:
        path = folder / f"{name}.yaml"
        tables = read(path)
        before = path.read_text(encoding="utf-8") if path.exists() else ""
        reader.require(measure.MEASURED[name][2])
        kept = [r for t in tables if t.head.get("kept") == "measured" for r in t.rows]
        kept = [r for r in kept if r.get("platform", "any") not in reader.platforms]
        rows = [*kept, *measure.MEASURED[name][1](reader, documents(tables))]
        after = dump(replace_table(tables, rows, head(name)))
        sides = before.splitlines(keepends=True), after.splitlines(keepends=True)
        sys.stdout.writelines(difflib.unified_diff(*sides, f"a/{path.name}", f"b/{path.name}"))
        changed += before != after
        if write and before != after:
            path.write_text(after, encoding="utf-8")
    return changed


# Longer than most functions: half of it declares the options.
def main() -> int:
    """Measure, print the difference, and write if requested."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help=f"of {', '.join(measure.MEASURED)} (default: all but {', '.join(measure.ON_REQUEST)})",
    )
    parser.add_argument("--write", action="store_true", help="write the files")
    parser.add_argument("--sample", type=int, metavar="N", help="only read N random rows again")
    parser.add_argument("--platform", choices=PLATFORMS, help="measure only its rows; for satellites")
    parser.add_argument("--cache", type=Path, default=ROOT / ".cache" / "measured")
    parser.add_argument("--index", help="a simple index (default: the one that pip or uv takes)")
    parser.add_argument("--profiles", type=Path, default=ROOT / "profiles")
    parser.add_argument("-v", "--verbose", action="store_true", help="say each wheel as it is read")
    options = parser.parse_args()
    if unknown := set(options.names) - set(measure.MEASURED):
        parser.error(f"no such table: {', '.join(sorted(unknown))}")
    if options.platform and options.names != ["satellites"]:
        parser.error("--platform is for satellites: the rows of the other files are sorted by version")
    environ = process.environ()
    http = Http(pip_settings(environ))
    say = (lambda text: print(text, file=sys.stderr, flush=True)) if options.verbose else None
    cache = None if options.sample else options.cache
    try:
        reader = Reader(http, options.index or default_index(environ), cache, say=say)
        if options.platform:
            reader.platforms = frozenset({options.platform})
        if options.sample:
            names = options.names or list(measure.MEASURED)
            return 1 if sample(reader, options.profiles, names, options.sample) else 0
        names = options.names or list(measure.DEFAULT)
        changed = update(reader, options.profiles, names, write=options.write)
    except GpuenvError as e:
        print(f"{e}\n{e.hint or ''}", file=sys.stderr)
        return exit_codes.get_error_code(e)
    for problem in reader.problems:
        print(f"left out: {problem}", file=sys.stderr)
    done = "written" if options.write else "not written (--write)"
    print(f"{reader.read_count} wheels read, {changed} files differ, {done}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
