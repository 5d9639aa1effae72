"""The table `tool.gpuenv` of a pyproject.toml, as the nodes that a gpuenv.yaml gives."""

from __future__ import annotations

import datetime as dt
import re
from typing import Any

from .yaml_tree import MAX_DEPTH, Node, NotReadError, decode

TABLE = "tool.gpuenv"
_WORD = b"gpuenv"
_HEADER = re.compile(r"\s*\[\[?([^\[\]]+)\]")
_KEY = re.compile(r"\s*([\w.\"'-]+)\s*=")


class _Number(str):
    """The text of a number as it is written: 3.10 stays 3.10."""

    __slots__ = ()


def document(data: bytes) -> dict[str, Any]:
    """Return a pyproject.toml as a table. Raises NotReadError."""
    import tomli

    try:
        return tomli.loads(decode(data), parse_float=_Number)
    except (tomli.TOMLDecodeError, RecursionError, ValueError) as error:
        raise NotReadError(f"not TOML: {error}") from error


def read_table_of(data: bytes) -> dict[str, Any] | None:
    """Return the table `tool.gpuenv`; None where the file has none. Raises NotReadError."""
    if _WORD not in data:
        return None
    tool = document(data).get("tool")
    found = tool.get("gpuenv") if isinstance(tool, dict) else None
    if found is not None and not isinstance(found, dict):
        raise NotReadError(f"{TABLE}: expected a table")
    return found


def without_table(data: bytes) -> dict[str, Any]:
    """Return all of a pyproject.toml but its table `tool.gpuenv`. Raises NotReadError."""
    whole = document(data)
    whole["tool"] = {key: value for key, value in whole["tool"].items() if key != "gpuenv"}
    return whole


def parse_table(data: bytes) -> Node | None:
    """Return the table `tool.gpuenv` as a node, each with the line of its key. Raises NotReadError."""
    found = read_table_of(data)
    return None if found is None else _node(found, TABLE, 1, _lines(decode(data)))


def _lines(text: str) -> dict[str, int]:
    """Return the lines of headers and keys below `tool.gpuenv`, by their dotted names."""
    found: dict[str, int] = {}
    table = ""
    for number, row in enumerate(text.splitlines(), 1):
        if header := _HEADER.match(row):
            table = _plain(header[1])
            found.setdefault(table, number)
        elif table.startswith(TABLE) and (key := _KEY.match(row)):
            found.setdefault(f"{table}.{_plain(key[1])}", number)
    return found


def _plain(dotted: str) -> str:
    return re.sub(r"[\s\"']", "", dotted)


def _node(value: Any, name: str, line: int, lines: dict[str, int], depth: int = 0) -> Node:
    """Return a value as a node. An entry without a line of its own has that of the key above it."""
    if depth > MAX_DEPTH:
        raise NotReadError(f"lists and tables are nested more than {MAX_DEPTH} deep")
    line = lines.get(name, line)
    if isinstance(value, dict):
        pairs = []
        for key, item in value.items():
            below = _node(item, f"{name}.{key}", line, lines, depth + 1)
            pairs.append((Node(kind="scalar", line=below.line, text=key), below))
        return Node(kind="table", line=line, pairs=pairs)
    if isinstance(value, list):
        return Node(kind="list", line=line, items=[_node(x, name, line, lines, depth + 1) for x in value])
    return Node(kind="scalar", line=line, text=_text(value), taken_for=_taken_for(value))


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _taken_for(value: Any) -> str | None:
    """Return what TOML takes a value for; None for a string."""
    if isinstance(value, bool):
        return "yes or no"
    if isinstance(value, (int, _Number)):
        return "a number"
    return "a date" if isinstance(value, (dt.date, dt.time)) else None
