"""Read pyproject.toml and setup files without running code, with the line of each key."""

from __future__ import annotations

import ast
import configparser
import functools
import re
from pathlib import Path
from typing import Any

from ..errors import UsageError
from ..system import untrusted
from ..system.toml import Table, parse_toml, table_at
from .tree import read_bytes

_MOST_PYTHON = 200_000  # deeper nesting could exceed the interpreter's stack


def read_toml(path: Path, name: str) -> TomlFile:
    """Read a TOML file. Raises UsageError."""
    file = read_located(path, name)
    try:
        file.data = parse_toml("\n".join(file.lines))
    except ValueError as error:
        raise UsageError(f"{name} is {error}", hint="correct that line") from error
    return file


def read_pyproject(folder: Path) -> Table:
    """Read the pyproject.toml of a folder, or return an empty table without one. Raises UsageError."""
    path = folder / "pyproject.toml"
    return read_toml(path, path.name).data if path.is_file() else {}


def read_setup_cfg(path: Path, name: str) -> dict[str, dict[str, str]]:
    """Read the sections of a setup.cfg. Raises UsageError."""
    parser = configparser.RawConfigParser(strict=False)
    try:
        parser.read_string(untrusted.decode(read_bytes(path, name), name))
    except configparser.Error as error:
        reason = str(error).replace("\n", " ")
        raise UsageError(f"{name} cannot be read: {reason}", hint="correct that line") from error
    return {s: {k.replace("-", "_"): v or "" for k, v in parser.items(s)} for s in parser.sections()}


def find_project_name(folder: Path) -> str | None:
    """Return the project's name if a file of the folder states it, else None."""
    try:
        data = read_pyproject(folder)
        for table in (table_at(data, "project"), table_at(data, "tool", "poetry")):
            if isinstance(name := table.get("name"), str):
                return _validate_name(name)
        if (folder / "setup.cfg").is_file():
            stated = read_setup_cfg(folder / "setup.cfg", "setup.cfg").get("metadata", {}).get("name", "")
            if _validate_name(stated.strip()):
                return stated.strip()
        if (folder / "setup.py").is_file():
            called = (read_setup_arguments(folder / "setup.py", "setup.py") or {}).get("name")
            return _validate_name(called) if isinstance(called, str) else None
    except UsageError:
        return None  # reading the project itself reports the mistake; only its name is needed here
    return None


def _validate_name(text: str) -> str | None:
    from packaging.utils import InvalidName, canonicalize_name

    try:
        return text if canonicalize_name(text, validate=True) else None
    except InvalidName:
        return None


class ComputedValue:
    """A value that code in setup.py computes. `line` is the line of the computation."""

    def __init__(self, line: int) -> None:
        self.line = line


def read_setup_arguments(path: Path, name: str) -> dict[str, Any] | None:
    """Return the arguments of the call of setup() in setup.py, or None without a call. Raises UsageError.

    A value is a literal, directly or through a name that is assigned once, and Computed otherwise. The code is
    parsed and never run.
    """
    text = untrusted.decode(read_bytes(path, name), name)
    if len(text) > _MOST_PYTHON:
        raise UsageError(f"{name} is too long ({len(text)} characters)", hint="name a requirements file")
    try:
        module = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise UsageError(
            f"{name} cannot be parsed as Python: {type(error).__name__}", hint="name a requirements file"
        ) from error
    calls = [n for n in ast.walk(module) if isinstance(n, ast.Call) and _name_function(n) == "setup"]
    simple = _find_constants(module)
    if not calls:
        return None
    arguments: dict[str, Any] = {}
    for keyword in calls[-1].keywords:
        if keyword.arg is None:
            arguments["**"] = ComputedValue(keyword.value.lineno)
            continue
        value = keyword.value
        if isinstance(value, ast.Name) and value.id in simple:
            value = simple[value.id]
        try:
            arguments[keyword.arg] = ast.literal_eval(value)
        except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
            arguments[keyword.arg] = ComputedValue(keyword.value.lineno)
    return arguments


def _find_constants(module: ast.Module) -> dict[str, ast.expr]:
    """Return the values of a module's names that are assigned once and have no method called on them."""
    stored: list[str] = []
    for node in ast.walk(module):
        if isinstance(node, ast.Name) and isinstance(node.ctx, (ast.Store, ast.Del)):
            stored.append(node.id)
        elif isinstance(node, (ast.Attribute, ast.Subscript)) and isinstance(node.value, ast.Name):
            stored += [node.value.id] * 2  # may change the value of the name
    return {
        target.id: node.value
        for node in module.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name) and stored.count(target.id) == 1
    }


def _name_function(node: ast.Call) -> str:
    function = node.func
    return function.id if isinstance(function, ast.Name) else getattr(function, "attr", "")


_HEADER = re.compile(r"\s*\[\[?([^\[\]]+)\]")
_KEY = re.compile(r"\s*([\w.\"'-]+)\s*=")
_QUOTED = re.compile(r'"([^"]*)"|\'([^\']*)\'')


def read_located(path: Path, name: str) -> TomlFile:
    """Return the lines of a text with quoted values, such as setup.py. Raises UsageError."""
    return TomlFile(name, untrusted.decode(read_bytes(path, name), name).replace("\r\n", "\n"))


class TomlFile:
    """A TOML file with the lines of its keys and values, or another text with quoted values.

    The search for a value starts at the header of its table, and takes each line once.
    """

    def __init__(self, name: str, text: str = "") -> None:
        self.name, self.lines = name, text.split("\n")
        self.data: Table = {}
        self.taken: set[tuple[int, str]] = set()

    def at(self, *keys: str) -> Table:
        """Return the table at a path of keys, or an empty table."""
        return table_at(self.data, *keys)

    @functools.cached_property
    def keys(self) -> dict[str, int]:
        """Return the line of each table and key by its dotted name."""
        lines_of_keys: dict[str, int] = {}
        table = ""
        for number, line in enumerate(self.lines, 1):
            if header := _HEADER.match(line):
                table = _unquote(header[1])
                lines_of_keys.setdefault(table, number)
            elif key := _KEY.match(line):
                lines_of_keys.setdefault(f"{table}.{_unquote(key[1])}", number)
        return lines_of_keys

    @functools.cached_property
    def strings(self) -> dict[str, list[int]]:
        """Return the line indexes of each quoted text."""
        lines_of_values: dict[str, list[int]] = {}
        for i, line in enumerate(self.lines):
            for match in _QUOTED.finditer(line):
                lines_of_values.setdefault(match[1] or match[2] or "", []).append(i)
        return lines_of_values

    def locate_value(self, value: str, table: str, fallback: str) -> str:
        """Return the origin of a quoted value: file and line, else file and `fallback`, a path of keys."""
        start = self.keys.get(table, 0)
        for i in self.strings.get(value, ()):
            if i + 1 >= start and (i, value) not in self.taken:
                self.taken.add((i, value))
                return f"{self.name} line {i + 1}"
        return f"{self.name} [{fallback}]"

    def locate_key(self, key: str, table: str) -> str:
        """Return the origin of a key of a table."""
        number = self.keys.get(f"{table}.{key}")
        return f"{self.name} line {number}" if number else f"{self.name} [{table}.{key}]"


def _unquote(dotted: str) -> str:
    return re.sub(r"[\s\"']", "", dotted)
