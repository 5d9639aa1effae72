"""Measure what the default index can tell and bring the tables of profiles/ up to date.

    python scripts/update_profiles.py [torch tensorflow jax cudnn] [--write] [--cache DIR]

Shows a unified diff and changes nothing unless told `--write`. Tables marked `kept: "by hand"` are
left as they are. A wheel that cannot be read is reported, its old row (if any) goes, and the exit
status is 1. What was read is kept in the cache folder by the wheel's sha256: a run can be resumed.
"""

from __future__ import annotations

import argparse
import datetime
import difflib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from provision import index, process, profiles
from provision.index import measure

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).resolve().parent.parent
MEASURED: dict[str, tuple[str, Callable[[measure.Reader], list[dict[str, Any]]]]] = {
    "cudnn": ("cudnn", measure.cudnn_rows),
    "torch": ("builds", measure.torch_rows),
    "tensorflow": ("builds", measure.tensorflow_rows),
    "jax": ("builds", measure.jax_rows),
}
SOURCE = "the wheels of the default index"


def updated(path: Path, name: str, table: str, rows: list[dict[str, Any]]) -> str:
    """The text of a profile file with its measured table replaced."""
    tables, problems = profiles.read_file(path) if path.exists() else ([], [])
    if problems:
        raise SystemExit("\n".join(problems))
    old = next((t for t in tables if t.head.get("kept") == "measured"), None)
    head = dict(old.head) if old else {"table": table, "source": SOURCE, "kept": "measured"}
    if table == "builds":
        head["framework"] = name
    if not old or list(old.rows) != rows:
        head["read"] = datetime.datetime.now(tz=datetime.timezone.utc).date().isoformat()
    made = profiles.Table(head=head, rows=tuple(rows))
    return profiles.dump([made, *(t for t in tables if t is not old)])


def main() -> int:
    """Measure, show the difference, write if told."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", choices=[*MEASURED, []], help="which tables (default: all)")
    parser.add_argument("--write", action="store_true", help="write the files")
    parser.add_argument("--cache", type=Path, default=ROOT / ".cache" / "measured")
    parser.add_argument("--index", help="a simple index (default: the one that pip or uv takes)")
    parser.add_argument("--profiles", type=Path, default=ROOT / "profiles")
    parser.add_argument("-v", "--verbose", action="store_true", help="say each wheel as it is read")
    options = parser.parse_args()
    environ = process.environ()
    http = index.Http(index.pip_configuration(environ))
    say = (lambda text: print(text, file=sys.stderr, flush=True)) if options.verbose else None
    reader = measure.Reader(http, options.index or index.default_index(environ), options.cache, say=say)
    changed = 0
    for name in options.names or MEASURED:
        table, rows_of = MEASURED[name]
        path = options.profiles / f"{name}.yaml"
        before = path.read_text(encoding="utf-8") if path.exists() else ""
        after = updated(path, name, table, rows_of(reader))
        diff = difflib.unified_diff(
            before.splitlines(True), after.splitlines(True), f"a/{path.name}", f"b/{path.name}"
        )
        sys.stdout.writelines(diff)
        changed += before != after
        if options.write and before != after:
            path.write_text(after, encoding="utf-8")
    for problem in reader.problems:
        print(f"left out: {problem}", file=sys.stderr)
    done = "written" if options.write else "not written (--write)"
    print(f"{reader.told} wheels read, {changed} files differ, {done}", file=sys.stderr)
    return 1 if reader.problems else 0


if __name__ == "__main__":
    sys.exit(main())
