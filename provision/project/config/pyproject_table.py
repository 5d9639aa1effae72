"""Parse `tool.gpuenv` of a pyproject.toml into the nodes of a gpuenv.yaml."""

from __future__ import annotations

import datetime as dt
import re
from typing import Any

from .yaml_tree import MAX_DEPTH, NotReadError, YamlNode, decode_yaml

TABLE = "tool.gpuenv"
_WORD = b"gpuenv"
_HEADER = re.compile(r"\s*\[\[?([^\[\]]+)\]")
_KEY = re.compile(r"\s*([\w.\"'-]+)\s*=")


class _Number(str):
    """The written text of a number: 3.10 stays 3.10."""

    __slots__ = ()


def parse_document(data: bytes) -> dict[str, Any]:
    """Parse a pyproject.toml. Raises NotReadError."""
    import tomli

    try:
        return tomli.loads(decode_yaml(data), parse_float=_Number)
    except (tomli.TOMLDecodeError, RecursionError, ValueError) as error:
        raise NotReadError(f"not TOML: {error}") from error


def read_table_of(data: bytes) -> dict[str, Any] | None:
    """Return the table `tool.gpuenv`, or None. Raises NotReadError."""
    if _WORD not in data:
        return None
    tool = parse_document(data).get("tool")
    table = tool.get("gpuenv") if isinstance(tool, dict) else None
    if table is not None and not isinstance(table, dict):
        raise NotReadError(f"{TABLE}: expected a table")
    return table


def remove_table(data: bytes) -> dict[str, Any]:
    """Return a pyproject.toml without its table `tool.gpuenv`. Raises NotReadError."""
    whole = parse_document(data)
    whole["tool"] = {key: value for key, value in whole["tool"].items() if key != "gpuenv"}
    return whole


def parse_table(data: bytes) -> YamlNode | None:
    """Return the table `tool.gpuenv` as nodes with the lines of their keys. Raises NotReadError."""
    table = read_table_of(data)
    return None if table is None else _build_node(table, TABLE, 1, _locate_keys(decode_yaml(data)))


def _locate_keys(text: str) -> dict[str, int]:
    """Return the lines of headers and keys below `tool.gpuenv`, by their dotted names."""
    lines_of_keys: dict[str, int] = {}
    table = ""
    for number, row in enumerate(text.splitlines(), 1):
        if header := _HEADER.match(row):
            table = _unquote(header[1])
            lines_of_keys.setdefault(table, number)
        elif table.startswith(TABLE) and (key := _KEY.match(row)):
            lines_of_keys.setdefault(f"{table}.{_unquote(key[1])}", number)
    return lines_of_keys


def _unquote(dotted: str) -> str:
    return re.sub(r"[\s\"']", "", dotted)


def _build_node(value: Any, name: str, line: int, lines: dict[str, int], depth: int = 0) -> YamlNode:
    """Return a value as a node. An entry without its own line has the line of the key above it."""
    if depth > MAX_DEPTH:
        raise NotReadError(f"lists and tables are nested more than {MAX_DEPTH} deep")
    line = lines.get(name, line)
    if isinstance(value, dict):
        pairs = []
        for key, item in value.items():
            below = _build_node(item, f"{name}.{key}", line, lines, depth + 1)
            pairs.append((YamlNode(kind="scalar", line=below.line, text=key), below))
        return YamlNode(kind="table", line=line, pairs=pairs)
    if isinstance(value, list):
        return YamlNode(
            kind="list", line=line, items=[_build_node(x, name, line, lines, depth + 1) for x in value]
        )
    return YamlNode(kind="scalar", line=line, text=_write_value(value), taken_for=_name_type(value))


def _write_value(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _name_type(value: Any) -> str | None:
    """Return the type that TOML gives a value, or None for a string."""
    if isinstance(value, bool):
        return "yes or no"
    if isinstance(value, (int, _Number)):
        return "a number"
    return "a date" if isinstance(value, (dt.date, dt.time)) else None
