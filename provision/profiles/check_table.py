"""Check a table of a profile file: known keys, values of the right kinds, and no duplicate rows."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from dataclasses import fields
from typing import Any

from provision import model

from .index_table_declarations import find_page_problems
from .table_declarations import FILES, KINDS, ROW_EXTRA, TABLE_KEYS, Row, Table, row_key
from .table_mapping import Kind

_VERSION = re.compile(r"\d+(\.\d+)*((a|b|rc)\d+)?(\.post\d+)?(\.dev\d+)?")
_NUMBERS = re.compile(r"\d+(\.\d+)*")
_PATTERNS = {
    "version": _VERSION,
    "cuda": _NUMBERS,
    "glibc": re.compile(r"\d+\.\d+"),
    "capability": re.compile(r"\d+\.\d"),
    "major": re.compile(r"\d+"),
    "branch": re.compile(r"\d+"),
    "first_driver": re.compile(r"\d+"),
    "last_driver": re.compile(r"\d+"),
    "first_cuda": _NUMBERS,
    "last_cuda": _NUMBERS,
    "linux": _NUMBERS,
    "windows": _NUMBERS,
    "driver_linux": _NUMBERS,
    "driver_windows": _NUMBERS,
    "sha256": re.compile(r"[0-9a-f]{64}"),
    "bytes": re.compile(r"\d+"),
    "gcc": re.compile(r"\d+"),
    "index": re.compile("pypi|pytorch"),
    "url": re.compile(r"(https?|file)://[^@\s]+"),  # no password: profiles are printed
    "read": re.compile(r"\d{4}-\d\d-\d\d"),
    "platform": re.compile("|".join(model.PLATFORMS)),
    "effect": re.compile("refuse|avoid"),
    "action": re.compile("warn|replace"),
    "device": re.compile("cuda|cpu"),
    "use": re.compile("container|devcontainer|runner|action"),
    "python": re.compile(r"3\.\d+"),
    "means": re.compile("cuda|cpu|plan|program"),
    "module": re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*"),
    "implies": re.compile("|".join(model.FRAMEWORKS)),
    "kernels": re.compile(r"\d+\.\d[af]?(\+PTX)?"),
    "searched": re.compile(r"[a-z0-9_]+"),
    "form": re.compile("wheel|source|download"),
    "pythons": re.compile(r"3\.\d+\+?"),
    "cuda_by": re.compile("needed|dlopen|name"),
    "cudnn_by": re.compile("needed|dlopen"),
    "abi": re.compile("stable|exact"),
    "cxx11": re.compile("0|1"),
    "parts": re.compile("[1-4]"),
    "extras": re.compile(r"[a-z0-9]+(-[a-z0-9]+)*"),
    "listing": re.compile(r"(https?|file)://[^@\s]+"),
    "local": re.compile(r"([a-z0-9.]|\{(minor|digits|label|cuda|abi)\})+"),
}

_FORM = {"url": "http(s)://... or file:///... without user and password", "index": "pypi or pytorch"}


@functools.cache
def _check_requirement(text: str, bare: bool) -> str | None:
    from packaging.requirements import InvalidRequirement, Requirement
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    try:
        SpecifierSet(text) if bare else Requirement(text)
    except (InvalidRequirement, InvalidSpecifier):
        return f"{text!r} is not a PEP 440 specifier" if bare else f"{text!r} is not a PEP 508 requirement"
    return None


def check_table(file: str, table: Table) -> list[str]:
    """Return every mistake of a table: keys, kinds of values, duplicate rows."""
    problems = []
    name = table.head.get("table", "")
    kind = KINDS.get(name)
    if kind is None:
        return [f"{file}: table: {name!r} is not one of {', '.join(KINDS)}"]
    if name not in FILES.get(file, tuple(KINDS)):
        problems.append(f"{file}: table: {name!r} does not belong in this file")
    problems += [f"{file}: {name}: unknown key {k!r}" for k in table.head if k not in TABLE_KEYS]
    of_one = name in ("builds", "conda")
    wanted = ("source", "read", "framework") if of_one else ("source", "read")
    problems += [f"{file}: {name}: {k}: missing" for k in wanted if not table.head.get(k)]
    if of_one and table.head.get("framework") not in (*model.FRAMEWORKS, None):
        problems.append(
            f"{file}: framework: {table.head['framework']!r} is not one of {', '.join(model.FRAMEWORKS)}"
        )
    if not _PATTERNS["read"].fullmatch(table.head.get("read", "0000-00-00")):
        problems.append(f"{file}: {name}: read: {table.head['read']!r} is not a date like 2026-11-20")
    seen: dict[tuple[Any, ...], int] = {}
    for i, row in enumerate(table.rows):
        line = table.lines[i] if table.lines else 0
        where = f"{file}:{line}: row {i + 1}" if line else f"{file}: row {i + 1}"
        problems += [f"{where}, {p}" for p in _check_row(kind, row)]
        problems += [f"{where}, {p}" for p in find_page_problems(row)] if name == "pages" else []
        key = row_key(kind, table.head, row)
        if key in seen:
            problems.append(f"{where}: the same {', '.join(kind.key)} as row {seen[key] + 1}")
        seen.setdefault(key, i)
    return problems


@functools.cache
def _list_known_keys(kind: Kind) -> frozenset[str]:
    return frozenset(f.name for f in fields(kind.cls)) - {"framework"}


def _check_row(kind: Kind, row: Row) -> Iterable[str]:
    known = _list_known_keys(kind)
    for key in kind.required:
        if not row.get(key):
            yield f"{key}: missing"
    for key, value in row.items():
        if key not in known and key not in ROW_EXTRA:
            yield f"{key}: unknown key"
        elif key in kind.lists:
            if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
                yield f"{key}: expected a list of quoted strings"
            elif key in ("requires", "companions"):
                yield from (f"{key}: {p}" for v in value if (p := _check_requirement(v, False)))
        elif not isinstance(value, str):
            yield f"{key}: expected a quoted string"
        elif key in kind.flags:
            if value != "yes":
                yield f'{key}: expected "yes" or no such key, got {value!r}'
        elif key in ("cudnn", "versions", "built_for"):
            if problem := _check_requirement(value, key != "built_for"):
                yield f"{key}: {problem}"
        elif pattern := _PATTERNS.get(key):
            for word in value.split(" ") if key in kind.words else [value]:
                if not pattern.fullmatch(word):
                    shown = "an address" if key == "url" else repr(word)  # it may hold a password
                    yield f"{key}: {shown} is not {_FORM.get(key, f'a {key}')}"
