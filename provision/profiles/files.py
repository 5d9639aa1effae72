"""Reading and writing one profile file: strict YAML, one row one line, `dump(read_file(f)) == f`."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from provision import foreign

from .checks import check_table
from .kinds import KINDS, ROW_EXTRA, TABLE_KEYS, Row, Table

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

MAX_BYTES = 16 << 20
MAX_DEPTH = 8


def read_file(path: Path) -> tuple[list[Table], list[str]]:
    """The tables of a file, and every mistake in it as "file:line: row, key: what"."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        text = foreign.read_strictly(path, MAX_BYTES)
        if odd := _odd(text, loader):
            return [], [f"{path.name}{odd}"]
        root = yaml.compose(text, Loader=loader)
    except (yaml.YAMLError, UnicodeDecodeError) as e:
        mark = getattr(e, "problem_mark", None)
        line = f":{mark.line + 1}" if mark else ""
        return [], [f"{path.name}{line}: not YAML: {getattr(e, 'problem', None) or e}"]
    except OSError as e:
        return [], [f"{path.name}: cannot be read: {e.strerror}"]
    problems: list[str] = []
    if not isinstance(root, yaml.SequenceNode):
        return [], [f"{path.name}: expected a list of tables"]
    tables = [t for node in root.value if (t := _table(path.name, node, problems))]
    for table in tables:
        problems += check_table(path.name, table)
    return tables, problems


def _odd(text: str, loader: Any) -> str | None:
    """What no profile has, found in the events, before anything is built of it: an alias can stand for a
    billion rows, a deep list is deeper than the C library's stack, and a tag asks for code."""
    import yaml

    depth = 0
    event: Any
    for event in yaml.parse(text, Loader=loader):
        line = event.start_mark.line + 1
        depth += isinstance(event, (yaml.SequenceStartEvent, yaml.MappingStartEvent))
        depth -= isinstance(event, (yaml.SequenceEndEvent, yaml.MappingEndEvent))
        if depth > MAX_DEPTH:
            return f":{line}: lists and tables are nested more than {MAX_DEPTH} deep"
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            return f":{line}: anchors and aliases are not read; write the value out"
        if tag := getattr(event, "tag", None):
            return f":{line}: the tag {tag} is not read"
    return None


def _plain(file: str, node: Any, where: str, problems: list[str]) -> Any:
    """A YAML node as strings, lists and dicts; anything but a quoted string is a mistake."""
    line = node.start_mark.line + 1
    if node.id == "scalar":
        if node.style not in ('"', "'"):
            problems.append(f"{file}:{line}: {where}: {node.value!r} must be a quoted string")
        return node.value
    if node.id == "sequence":
        return [_plain(file, item, where, problems) for item in node.value]
    plain: Row = {}
    for key_node, value_node in node.value:
        key = str(key_node.value)
        if key in plain:
            problems.append(f"{file}:{line}: {where}: key {key!r} stands twice")
        plain[key] = _plain(file, value_node, f"{where}, {key}" if where else key, problems)
    return plain


def _table(file: str, node: Any, problems: list[str]) -> Table | None:
    line = node.start_mark.line + 1
    if node.id != "mapping":
        problems.append(f"{file}:{line}: expected a table with the keys table, source, read, rows")
        return None
    head: Row = {}
    rows: list[Row] = []
    lines: list[int] = []
    for key_node, value_node in node.value:
        key = str(key_node.value)
        at = f"{file}:{value_node.start_mark.line + 1}"
        if key in head or (key == "rows" and rows):
            problems.append(f"{at}: key {key!r} stands twice")
        if key == "rows" and value_node.id == "sequence":
            for i, item in enumerate(value_node.value, start=1):
                if item.id == "mapping":
                    rows.append(_plain(file, item, f"row {i}", problems))
                    lines.append(item.start_mark.line + 1)
                else:
                    problems.append(
                        f'{file}:{item.start_mark.line + 1}: row {i}: expected {{key: "value", ...}}'
                    )
        elif key == "rows" or value_node.id != "scalar":
            problems.append(f"{at}: {key}: expected a {'list of rows' if key == 'rows' else 'quoted string'}")
        else:
            head[key] = _plain(file, value_node, key, problems)
    return Table(head=head, rows=tuple(rows), lines=tuple(lines))


def dump(tables: Sequence[Table]) -> str:
    """Tables as the text of a profile file; `dump(read_file(f))` is the file, byte for byte."""
    out = []
    for table in tables:
        kind = KINDS[table.head["table"]]
        order = [k for k in (f.name for f in fields(kind.cls)) if k != "framework"]
        order += [k for k in ROW_EXTRA if k not in order]
        lead = "- "
        for key in TABLE_KEYS:
            if key in table.head:
                out.append(f"{lead}{key}: {_quoted(table.head[key])}")
                lead = "  "
        out.append("  rows:")
        for row in table.rows:
            pairs = [f"{key}: {_quoted(row[key])}" for key in order if key in row]
            out.append(f"  - {{{', '.join(pairs)}}}")
    return "\n".join(out) + "\n"


def _quoted(value: str | list[str]) -> str:
    if isinstance(value, list):
        return "[" + ", ".join(_quoted(v) for v in value) + "]"
    return json.dumps(value, ensure_ascii=False)
