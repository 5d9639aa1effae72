"""What the files of a project's folder say without running any of it: its name, the setuptools files, and where in
a TOML text a value stands, for messages that name a line."""

from __future__ import annotations

import ast
import configparser
import functools
import re
from pathlib import Path
from typing import Any

from provision.errors import UsageError

from .requirements_text import decoded, read_bytes

_MOST_PYTHON = 200_000  # more could go deeper than the interpreter's stack


def toml(path: Path, name: str) -> tuple[dict[str, Any], str]:
    """A TOML file, and its text for line numbers. Raises UsageError."""
    import tomli

    text = decoded(read_bytes(path, name), name).replace("\r\n", "\n")
    try:
        return tomli.loads(text), text
    except (tomli.TOMLDecodeError, RecursionError, ValueError) as error:
        raise UsageError(f"{name} is not TOML: {error}", hint="mend the line named") from error


def cfg(path: Path, name: str) -> dict[str, dict[str, str]]:
    """A setup.cfg as sections. Raises UsageError."""
    parser = configparser.RawConfigParser(strict=False)
    try:
        parser.read_string(decoded(read_bytes(path, name), name))
    except configparser.Error as error:
        said = str(error).replace("\n", " ")
        raise UsageError(f"{name} cannot be read: {said}", hint="mend the line named") from error
    return {s: {k.replace("-", "_"): v or "" for k, v in parser.items(s)} for s in parser.sections()}


def folder_name(folder: Path) -> str | None:
    """The distribution's name where a file of the folder states it, else None."""
    try:
        if (folder / "pyproject.toml").is_file():
            data, _ = toml(folder / "pyproject.toml", "pyproject.toml")
            for table in (table_at(data, "project"), table_at(data, "tool", "poetry")):
                if isinstance(name := table.get("name"), str):
                    return _name(name)
        if (folder / "setup.cfg").is_file():
            stated = cfg(folder / "setup.cfg", "setup.cfg").get("metadata", {}).get("name", "")
            if _name(stated.strip()):
                return stated.strip()
        if (folder / "setup.py").is_file():
            called = (setup_words(folder / "setup.py", "setup.py") or {}).get("name")
            return _name(called) if isinstance(called, str) else None
    except UsageError:
        return None  # whoever reads that project for its own sake is told; here only its name is wanted
    return None


def _name(text: str) -> str | None:
    from packaging.utils import InvalidName, canonicalize_name

    try:
        return text if canonicalize_name(text, validate=True) else None
    except InvalidName:
        return None


def table_at(data: dict[str, Any], *keys: str) -> dict[str, Any]:
    """The table at a path of keys; empty where there is none."""
    for key in keys:
        found = data.get(key)
        if not isinstance(found, dict):
            return {}
        data = found
    return data


class Computed:
    """A value of setup.py that only running it would tell; `line` is where it is computed."""

    def __init__(self, line: int) -> None:
        self.line = line


def setup_words(path: Path, name: str) -> dict[str, Any] | None:
    """The keywords of setup.py's call of setup(): literals, also through a name that is bound once to one,
    else Computed. None where nothing calls it. The code is parsed, never run. Raises UsageError."""
    text = decoded(read_bytes(path, name), name)
    if len(text) > _MOST_PYTHON:
        raise UsageError(f"{name} has {len(text)} characters", hint="name a requirements file")
    try:
        module = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise UsageError(
            f"{name} is no Python that can be read: {type(error).__name__}", hint="name a requirements file"
        ) from error
    calls = [n for n in ast.walk(module) if isinstance(n, ast.Call) and _called(n) == "setup"]
    simple = _bound_once(module)
    if not calls:
        return None
    found: dict[str, Any] = {}
    for keyword in calls[-1].keywords:
        if keyword.arg is None:
            found["**"] = Computed(keyword.value.lineno)
            continue
        value = keyword.value
        if isinstance(value, ast.Name) and value.id in simple:
            value = simple[value.id]
        try:
            found[keyword.arg] = ast.literal_eval(value)
        except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
            found[keyword.arg] = Computed(keyword.value.lineno)
    return found


def _bound_once(module: ast.Module) -> dict[str, ast.expr]:
    """The values of a module's names that are bound once, and on which no method is called."""
    stored: list[str] = []
    for node in ast.walk(module):
        if isinstance(node, ast.Name) and isinstance(node.ctx, (ast.Store, ast.Del)):
            stored.append(node.id)
        elif isinstance(node, (ast.Attribute, ast.Subscript)) and isinstance(node.value, ast.Name):
            stored += [node.value.id] * 2  # may change what the name is bound to
    return {
        target.id: node.value
        for node in module.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name) and stored.count(target.id) == 1
    }


def _called(node: ast.Call) -> str:
    function = node.func
    return function.id if isinstance(function, ast.Name) else getattr(function, "attr", "")


_HEADER = re.compile(r"\s*\[([^\[\]]+)\]\s*(#.*)?")
_QUOTED = re.compile(r'"([^"]*)"|\'([^\']*)\'')


class Places:
    """The lines of a TOML text. A value is looked for below the header of its table, each line once."""

    def __init__(self, name: str, text: str) -> None:
        self.name, self.lines = name, text.split("\n")
        self.taken: set[tuple[int, str]] = set()

    @functools.cached_property
    def headers(self) -> dict[str, int]:
        """The index of the line of each [table]."""
        found: dict[str, int] = {}
        for i, line in enumerate(self.lines):
            if match := _HEADER.fullmatch(line):
                found.setdefault(re.sub(r"[\s\"']", "", match[1]), i)
        return found

    @functools.cached_property
    def strings(self) -> dict[str, list[int]]:
        """The indexes of the lines in which each quoted text stands."""
        found: dict[str, list[int]] = {}
        for i, line in enumerate(self.lines):
            for match in _QUOTED.finditer(line):
                found.setdefault(match[1] or match[2] or "", []).append(i)
        return found

    def quoted(self, value: str, table: str, fallback: str) -> str:
        """The origin of a quoted value: file and line, else file and `fallback`, a path of keys."""
        start = self.headers.get(table, 0)
        for i in self.strings.get(value, ()):
            if i >= start and (i, value) not in self.taken:
                self.taken.add((i, value))
                return f"{self.name} line {i + 1}"
        return f"{self.name} [{fallback}]"

    def key(self, key: str, table: str) -> str:
        """The origin of a key of a table."""
        start = self.headers.get(table)
        pattern = re.compile(rf"\s*[\"']?{re.escape(key)}[\"']?\s*=")
        for i in range(len(self.lines) if start is None else start + 1, len(self.lines)):
            if _HEADER.fullmatch(self.lines[i]):
                break
            if pattern.match(self.lines[i]):
                return f"{self.name} line {i + 1}"
        return f"{self.name} [{table}.{key}]"
