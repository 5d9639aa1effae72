"""Declarations and checks of the tables in profile files, with the model value of each row.

A table has known keys, values of the right kinds, and no duplicate rows. The file is longer than 300 lines,
because all declarations are in one place.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any

from provision import model

from .index_tables import PAGE_TABLES, find_page_problems
from .satellite_tables import SATELLITE_TABLES
from .table_mapping import Kind

Row = dict[str, Any]

TABLE_KEYS = ("table", "framework", "source", "read", "kept", "note")
ROW_EXTRA = ("source", "read", "note")


@dataclass(frozen=True, kw_only=True, slots=True)
class Tested:
    """The CUDA and cuDNN that a release without pins was tested with. `version` is a prefix."""

    version: str
    cuda: str
    cudnn: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Floor:
    """The oldest drivers that documents give for all packages of one CUDA major."""

    cuda: str
    driver_linux: str
    driver_windows: str


KINDS = {
    "builds": Kind(
        model.Build,
        "builds",
        ("framework", "version", "cuda", "platform", "index"),
        ("version", "platform", "index", "python"),
        words=("python", "kernels", "searched"),
        lists=("requires", "companions", "unresolvable"),
        flags=("yanked",),
    ),
    "cudnn": Kind(
        model.CudnnRelease,
        "cudnn",
        ("package", "version", "platform"),
        ("package", "version", "cuda", "platform"),
        words=("kernels",),
        lists=("libraries",),
        flags=("yanked",),
    ),
    "conda": Kind(
        model.CondaBuild,
        "conda",
        ("framework", "channel", "package", "device", "version", "build"),
        ("channel", "package", "device", "build"),
        lists=("along",),
    ),
    "toolkits": Kind(model.ToolkitRelease, "toolkits", ("version",), ("version", "parts"), lists=("parts",)),
    "compilers": Kind(
        model.CudaCompiler, "compilers", ("cuda",), ("cuda", "gcc", "source", "read"), words=("extras",)
    ),
    "gpus": Kind(
        model.GpuModel,
        "gpus",
        ("capability",),
        ("capability", "generation"),
        lists=("boards",),
        flags=("tegra",),
    ),
    "cuda": Kind(model.CudaRelease, "cuda", ("cuda",), ("cuda", "linux")),
    **PAGE_TABLES,
    "imports": Kind(
        model.ImportName, "imports", ("module",), ("module", "package"), words=("also",), flags=("common",)
    ),
    "conda_names": Kind(model.CondaName, "conda_names", ("conda",), ("conda",)),
    "system_libraries": Kind(model.SystemLibrary, "system_libraries", ("soname",), ("soname", "deb")),
    "opened_libraries": Kind(
        model.DlopenedLibrary, "opened_libraries", ("package", "library"), ("package", "library")
    ),
    "optional_libraries": Kind(
        model.OptionalLibraries,
        "optional_libraries",
        ("package",),
        ("package", "libraries", "source"),
        words=("libraries",),
    ),
    "replacements": Kind(
        model.Replacement,
        "replacements",
        ("package",),
        ("package", "instead", "without"),
        words=("without",),
    ),
    "majors": Kind(model.CudaMajor, "majors", ("major",), ("major", "linux", "windows")),
    "branches": Kind(model.DriverBranch, "branches", ("branch",), ("branch", "cuda")),
    "tested": Kind(Tested, "", ("version",), ("version", "cuda", "cudnn")),
    "floors": Kind(Floor, "", ("cuda",), ("cuda", "driver_linux", "driver_windows")),
    "known_bad": Kind(
        model.KnownBadRelease,
        "known_bad",
        ("package", "version"),
        ("package", "version", "effect", "why", "source"),
    ),
    **SATELLITE_TABLES,
    "images": Kind(model.BaseImage, "images", ("use", "image"), ("use", "image"), words=("platform", "apt")),
    "causes": Kind(
        model.FailureCause,
        "causes",
        ("cause",),
        ("cause", "layer", "title", "fix", "decides"),
        flags=("about_gpu", "of_jobs"),
    ),
    "findings": Kind(model.FindingText, "findings", ("finding",), ("finding", "cause")),
    "messages": Kind(
        model.FailureMessage, "messages", ("name",), ("name", "says", "example", "source"), lists=("says",)
    ),
    "failures": Kind(
        model.FailureRule,
        "failures",
        ("name",),
        ("name", "cause", "says", "example", "source", "confidence", "weight"),
        lists=("says", "wants", "lacks"),
    ),
    "catalogue": Kind(
        model.CatalogueMessage,
        "catalogue",
        ("name",),
        ("name", "program", "says", "causes", "releases", "source"),
        lists=("says", "causes", "absent", "lacks"),
    ),
}

FILES: dict[str, tuple[str, ...]] = {
    "drivers.yaml": ("cuda", "majors", "branches"),
    "gpus.yaml": ("gpus",),
    "cudnn.yaml": ("cudnn", "floors"),
    "toolkits.yaml": ("toolkits", "compilers"),
    "torch.yaml": ("builds", "tested"),
    "tensorflow.yaml": ("builds", "tested"),
    "jax.yaml": ("builds",),
    "onnxruntime.yaml": ("builds", "tested"),
    "known_bad.yaml": ("known_bad",),
    "conda.yaml": ("conda",),
    "images.yaml": ("images",),
    "satellites.yaml": tuple(SATELLITE_TABLES),
    "indexes.yaml": tuple(PAGE_TABLES),
    "package_names.yaml": ("imports", "conda_names"),
    "system_libraries.yaml": ("system_libraries", "opened_libraries", "optional_libraries", "replacements"),
    "failures.yaml": ("causes", "findings", "messages", "failures", "catalogue"),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """A table of a file: `head` are its scalars, `rows` its rows as plain data.

    `lines` has the line of each row, from 1. It is empty for a table that is not from a file.
    """

    head: dict[str, str]
    rows: tuple[Row, ...]
    lines: tuple[int, ...] = ()


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


def row_key(kind: Kind, head: dict[str, str], row: Row) -> tuple[str | None, ...]:
    """Return the key of a row. A wrong row has one too: its values may be lists."""
    values = [head.get("framework") if k == "framework" else row.get(k) for k in kind.key]
    return tuple([v if v is None else str(v) for v in values])
