"""The tables of the profile files: what each declares, and the strict reader, checker and writer of a file.

A file is YAML with one row per line, and `dump(read_file(f)) == f`.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import re
import string
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, get_args, get_origin

from .. import model
from ..model.values import Value
from ..requirements.nodes import NotReadError, YamlNode, parse_yaml
from ..system import trust, untrusted

Row = dict[str, Any]
TABLE_KEYS = ("table", "framework", "source", "read", "kept", "note")
ROW_EXTRA = ("source", "read", "note")


class Kind(Value, kw_only=False):
    """A kind of table, and the class of its rows, which says what its columns hold.

    `key` identifies a row. `also` are columns that are required beside the fields without a default. `lists` are columns
    written as a list of strings; all other tuples are one string of `words`, and a bool is "yes" or absent. `into` is the
    field of Profiles where that is not the name of the table. A kind without a class is read by
    scripts/update_profiles.py only, which adds documented facts to measured ones: its columns are `also` and `more`.
    """

    cls: type[Any] | None
    key: tuple[str, ...]
    lists: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    more: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    into: str = ""

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """The columns in their order."""
        if self.cls:
            return tuple(self.cls.__annotations__)
        return tuple(c for c in (*self.also, *self.more) if c not in ROW_EXTRA)

    @cached_property
    def _types(self) -> dict[str, Any]:
        return self.cls.__annotations__ if self.cls else {}

    @cached_property
    def required(self) -> tuple[str, ...]:
        """The columns without which a row says nothing."""
        optional = {"framework", *(self.cls._field_defaults if self.cls else ())}
        stated = [
            c for c, kind in self._types.items() if c not in optional and type(None) not in get_args(kind)
        ]
        return (*stated, *self.also)

    @cached_property
    def flags(self) -> frozenset[str]:
        """The columns that are "yes" or absent."""
        return frozenset(c for c, kind in self._types.items() if kind is bool)

    @cached_property
    def word_columns(self) -> frozenset[str]:
        """The columns that are one string of words."""
        tuples = (c for c, kind in self._types.items() if get_origin(kind) is tuple and c not in self.lists)
        return frozenset((*self.words, *tuples))


_OF_BUILD, _OF_RELEASE = {"version", "label"}, {"release"}

PAGE_TABLES = {
    "indexes": Kind(model.IndexAddress, ("index",)),
    "pages": Kind(model.WheelPage, ("framework", "packages")),
    # wheels of pages that cannot be read everywhere, as documents list them
    "listed_wheels": Kind(model.ListedWheels, ("package", "url"), also=("source", "read")),
    "abis": Kind(model.CxxAbi, ("framework", "versions", "cuda", "platform")),
    "wheel_glibc": Kind(model.WheelGlibc, ("package", "versions"), also=("source", "read")),
}


def find_page_problems(row: Mapping[str, object]) -> Iterator[str]:
    """Yield the mistakes in the placeholders of a page's row."""
    url, rule = row.get("url"), row.get("local")
    if not isinstance(url, str):
        return
    try:
        names = {name for _, name, _, _ in string.Formatter().parse(url) if name is not None}
    except ValueError as error:
        yield f"url: {error}"
        return
    if unknown := sorted(names - _OF_BUILD - _OF_RELEASE):
        yield f"url: {{{unknown[0]}}} is not one of {{version}}, {{label}} and {{release}}"
    if names & _OF_RELEASE and names & _OF_BUILD:
        yield "url: a page is of one release or of one build, not of both"
    known = ("{minor}", "{digits}", "{cuda}", "{label}")
    if isinstance(rule, str) and (not any(n in rule for n in known) or all(n in rule for n in known[:2])):
        yield "local: expected {minor} or {digits}, the release of the framework, or only {cuda} or {label}"


SATELLITE_TABLES = {
    "satellites": Kind(model.Satellite, ("package", "version", "platform", "cuda"), lists=("needs",)),
    # a package whose releases are measured, one per series; `parts` is the count of numbers in a series
    "satellite_packages": Kind(None, ("package",), also=("package",), more=("parts",)),
    # the documented framework of releases whose metadata names none; `version` is a prefix. `cuda` is the release
    # ("13.0") that the package compares with the framework's when it is imported
    "satellite_frameworks": Kind(
        None,
        ("package", "version"),
        also=("package", "version", "built_for", "source", "read"),
        more=("cuda",),
    ),
    "satellite_optional": Kind(
        model.OptionalLibraries, ("package",), also=("source", "read"), into="optional_libraries"
    ),
    # the extras without which releases of a package lack libraries
    "satellite_extras": Kind(
        None,
        ("package", "versions"),
        also=("package", "versions", "extras", "source", "read"),
        words=("extras",),
    ),
    "traps": Kind(model.PackageTrap, ("package",), also=("read",)),
}


KINDS = {
    "builds": Kind(
        model.Build,
        ("framework", "version", "cuda", "platform", "index"),
        lists=("requires", "companions", "unresolvable"),
    ),
    "cudnn": Kind(model.CudnnRelease, ("package", "version", "platform"), lists=("libraries",)),
    "conda": Kind(
        model.CondaBuild, ("framework", "channel", "package", "device", "version", "build"), lists=("along",)
    ),
    "toolkits": Kind(model.ToolkitRelease, ("version",), lists=("parts",)),
    "compilers": Kind(model.CudaCompiler, ("cuda",), also=("source", "read")),
    "runtime_compilers": Kind(model.RuntimeCompiler, ("package",), also=("source", "read")),
    "pythons": Kind(model.PythonRelease, ("version",)),
    "gpus": Kind(model.GpuModel, ("capability",), lists=("boards",)),
    "cuda": Kind(model.CudaRelease, ("cuda",), also=("linux",)),
    **PAGE_TABLES,
    "imports": Kind(model.ImportName, ("module",)),
    "removed_names": Kind(model.RemovedNames, ("package", "since")),
    "conda_names": Kind(model.CondaName, ("conda",)),
    "system_libraries": Kind(model.SystemLibrary, ("soname",), also=("deb",)),
    "opened_libraries": Kind(model.DlopenedLibrary, ("package", "library")),
    "optional_libraries": Kind(model.OptionalLibraries, ("package",), also=("source",)),
    "replacements": Kind(model.Replacement, ("package",), also=("without",)),
    "majors": Kind(model.CudaMajor, ("major",)),
    "branches": Kind(model.DriverBranch, ("branch",)),
    # the CUDA and cuDNN that a release without pins was tested with; `version` is a prefix
    "tested": Kind(None, ("version",), also=("version", "cuda", "cudnn")),
    "known_bad": Kind(model.KnownBadRelease, ("package", "version", "gpu", "board", "driver", "companion")),
    "limits": Kind(model.CompanionLimit, ("package", "versions", "requires")),
    **SATELLITE_TABLES,
    "images": Kind(model.BaseImage, ("use", "image")),
    "causes": Kind(model.FailureCause, ("cause",)),
    "fixes": Kind(model.FailureFix, ("name",), lists=("steps", "wants", "lacks")),
    "signs": Kind(model.Sign, ("name",), lists=("says", "lacks")),
    "launchers": Kind(model.Launcher, ("command",), lists=("flags",)),
    "programs": Kind(model.KnownProgram, ("program",), lists=("says",)),
    "findings": Kind(model.FindingText, ("finding",)),
    "messages": Kind(model.FailureMessage, ("name",), lists=("says",)),
    "failures": Kind(model.FailureRule, ("name",), lists=("says", "wants", "lacks")),
    "catalogue": Kind(model.CatalogueMessage, ("name",), lists=("says", "causes", "absent", "lacks")),
}

for _name, _kind in KINDS.items():
    if _kind.cls and not _kind.into:
        KINDS[_name] = dataclasses.replace(_kind, into=_name)

FILES: dict[str, tuple[str, ...]] = {
    "drivers.yaml": ("cuda", "majors", "branches"),
    "gpus.yaml": ("gpus",),
    "cudnn.yaml": ("cudnn",),
    "pythons.yaml": ("pythons",),
    "toolkits.yaml": ("toolkits", "compilers", "runtime_compilers"),
    "torch.yaml": ("builds", "tested"),
    "tensorflow.yaml": ("builds", "tested"),
    "jax.yaml": ("builds",),
    "onnxruntime.yaml": ("builds", "tested"),
    "known_bad.yaml": ("known_bad", "limits"),
    "conda.yaml": ("conda",),
    "images.yaml": ("images",),
    "satellites.yaml": tuple(SATELLITE_TABLES),
    "indexes.yaml": tuple(PAGE_TABLES),
    "package_names.yaml": ("imports", "removed_names", "conda_names"),
    "system_libraries.yaml": ("system_libraries", "opened_libraries", "optional_libraries", "replacements"),
    "failures.yaml": (
        "causes",
        "fixes",
        "signs",
        "launchers",
        "programs",
        "findings",
        "messages",
        "failures",
        "catalogue",
    ),
}


class Table(Value):
    """A table of a file: `head` are its scalars, `rows` its rows as plain data.

    `lines` has the line of each row, from 1. It is empty for a table that is not from a file.
    """

    head: dict[str, str]
    rows: tuple[Row, ...]
    lines: tuple[int, ...] = ()


def row_key(kind: Kind, head: dict[str, str], row: Row) -> tuple[str | None, ...]:
    """Return the key of a row. A wrong row has one too: its values may be lists."""
    values = [head.get("framework") if k == "framework" else row.get(k) for k in kind.key]
    return tuple([v if v is None else str(v) for v in values])


# --- reading and writing a file ------------------------------------------------------------------

MAX_BYTES = 16 << 20


def read_bytes(path: Path) -> bytes:
    """Return the bytes of a profile file. One that is not gpuenv's own must be trusted. Raises UntrustedError,
    OSError."""
    is_own = path.is_relative_to(Path(__file__).resolve().parents[2])
    return (untrusted.read_bytes if is_own else trust.read_project)(path, MAX_BYTES)


def read_file(path: Path) -> tuple[list[Table], list[str]]:
    """Return the tables of a file and every mistake in it, as "file:line: row, key: what"."""
    try:
        root = parse_yaml(read_bytes(path).decode())
    except NotReadError as e:
        return [], [f"{path.name}{f':{e.line}' if e.line else ''}: {e.text}"]
    except UnicodeDecodeError as e:
        return [], [f"{path.name}: not YAML: {e}"]
    except OSError as e:
        return [], [f"{path.name}: cannot be read: {e.strerror}"]
    problems: list[str] = []
    if root is None or root.kind != "list":
        return [], [f"{path.name}: expected a list of tables"]
    tables = [t for node in root.items if (t := _parse_table(path.name, node, problems))]
    for table in tables:
        problems += check_table(path.name, table)
    return tables, problems


def _make_plain(file: str, node: YamlNode, where: str, problems: list[str]) -> Any:
    """Return a YAML node as strings, lists and dicts. Any scalar but a quoted string is a mistake."""
    line = node.line
    if node.kind == "scalar":
        if not node.quoted:
            problems.append(f"{file}:{line}: {where}: {node.text!r} must be a quoted string")
        return node.text
    if node.kind == "list":
        return [_make_plain(file, item, where, problems) for item in node.items]
    plain: Row = {}
    for key_node, value_node in node.pairs:
        key = key_node.text
        if key in plain:
            problems.append(f"{file}:{line}: {where}: duplicate key {key!r}")
        plain[key] = _make_plain(file, value_node, f"{where}, {key}" if where else key, problems)
    return plain


def _parse_table(file: str, node: YamlNode, problems: list[str]) -> Table | None:
    line = node.line
    if node.kind != "table":
        problems.append(f"{file}:{line}: expected a table with the keys table, source, read, rows")
        return None
    head: Row = {}
    rows: list[Row] = []
    lines: list[int] = []
    for key_node, value_node in node.pairs:
        key = key_node.text
        where = f"{file}:{value_node.line}"
        if key in head or (key == "rows" and rows):
            problems.append(f"{where}: duplicate key {key!r}")
        if key == "rows" and value_node.kind == "list":
            for i, item in enumerate(value_node.items, start=1):
                if item.kind == "table":
                    rows.append(_make_plain(file, item, f"row {i}", problems))
                    lines.append(item.line)
                else:
                    problems.append(f'{file}:{item.line}: row {i}: expected {{key: "value", ...}}')
        elif key == "rows" or value_node.kind != "scalar":
            problems.append(
                f"{where}: {key}: expected a {'list of rows' if key == 'rows' else 'quoted string'}"
            )
        else:
            head[key] = _make_plain(file, value_node, key, problems)
    return Table(head=head, rows=tuple(rows), lines=tuple(lines))


def dump(tables: Sequence[Table]) -> str:
    """Return tables as the text of a profile file. `dump(read_file(f))` is the file, byte for byte."""
    out = []
    for table in tables:
        kind = KINDS[table.head["table"]]
        order = [k for k in dict.fromkeys((*kind.columns, *ROW_EXTRA)) if k != "framework"]
        lead = "- "
        for key in TABLE_KEYS:
            if key in table.head:
                out.append(f"{lead}{key}: {_quote(table.head[key])}")
                lead = "  "
        out.append("  rows:")
        for row in table.rows:
            pairs = [f"{key}: {_quote(row[key])}" for key in order if key in row]
            out.append(f"  - {{{', '.join(pairs)}}}")
    return "\n".join(out) + "\n"


def _quote(value: str | list[str]) -> str:
    if isinstance(value, list):
        return "[" + ", ".join(_quote(v) for v in value) + "]"
    return json.dumps(value, ensure_ascii=False)


def documents(tables: Sequence[Table]) -> dict[str, list[Row]]:
    """Return the tables kept by hand, by name, to be joined with the measured rows."""
    return {t.head["table"]: list(t.rows) for t in tables if t.head.get("kept") == "by hand"}


def find_difference(tables: Sequence[Table], rows: Sequence[Row], head: dict[str, str]) -> Table | None:
    """Return the new or changed measured rows as a table for an overlay, or None."""
    kind = KINDS[head["table"]]
    known = {
        row_key(kind, t.head, row): row
        for t in tables
        if t.head.get("table") == head["table"]
        for row in t.rows
    }
    fresh = tuple(row for row in rows if known.get(row_key(kind, head, row)) != row)
    return Table(head={**head, "kept": "measured"}, rows=fresh) if fresh else None


_NUMBERS = ("cuda", "first_cuda", "last_cuda", "linux", "windows")
_PATTERNS = {
    **dict.fromkeys(_NUMBERS, r"\d+(\.\d+)*"),
    **dict.fromkeys(("major", "branch", "first_driver", "last_driver", "bytes", "gcc"), r"\d+"),
    **dict.fromkeys(("url", "listing"), r"(https?|file)://[^@\s]+"),  # no password: profiles are printed
    "version": r"\d+(\.\d+)*((a|b|rc)\d+)?(\.post\d+)?(\.dev\d+)?",
    "glibc": r"\d+\.\d+",
    "capability": r"\d+\.\d",
    "sha256": r"[0-9a-f]{64}",
    "digest": r"sha256:[0-9a-f]{64}",
    "index": "pypi|pytorch",
    **dict.fromkeys(("read", "pushed"), r"\d{4}-\d\d-\d\d"),
    "platform": "|".join(model.PLATFORMS),
    "effect": "refuse|avoid",
    "action": "warn|replace",
    "device": "cuda|cpu",
    "use": "container|devcontainer|runner|action",
    "python": r"3\.\d+",
    "means": "cuda|cpu|plan|program",
    "module": r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*",
    "implies": "|".join(model.FRAMEWORKS),
    "kernels": r"\d+\.\d[af]?(\+PTX)?",
    "searched": r"[a-z0-9_]+",
    "form": "wheel|source|download",
    "pythons": r"3\.\d+\+?",
    "built_by": "document",
    "cuda_by": "needed|dlopen|name",
    "cudnn_by": "needed|dlopen",
    "abi": "stable|exact",
    "cxx11": "0|1",
    "parts": "[1-4]",
    "extras": r"[a-z0-9]+(-[a-z0-9]+)*",
    "confidence": "|".join(model.CONFIDENCES),
    "weight": r"[1-9]\d?|100",
    "local": r"([a-z0-9.]|\{(minor|digits|label|cuda|abi)\})+",
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
    if not re.fullmatch(_PATTERNS["read"], table.head.get("read", "0000-00-00")):
        problems.append(f"{file}: {name}: read: {table.head['read']!r} is not a date like 2026-11-20")
    known = {*kind.columns, *ROW_EXTRA} - {"framework"}
    seen: dict[tuple[Any, ...], int] = {}
    for i, row in enumerate(table.rows):
        line = table.lines[i] if table.lines else 0
        where = f"{file}:{line}: row {i + 1}" if line else f"{file}: row {i + 1}"
        problems += [f"{where}, {p}" for p in _check_row(kind, known, row)]
        problems += [f"{where}, {p}" for p in find_page_problems(row)] if name == "pages" else []
        key = row_key(kind, table.head, row)
        if key in seen:
            problems.append(f"{where}: the same {', '.join(kind.key)} as row {seen[key] + 1}")
        seen.setdefault(key, i)
    return problems


def _check_row(kind: Kind, known: set[str], row: Row) -> Iterable[str]:
    for key in kind.required:
        if not row.get(key):
            yield f"{key}: missing"
    for key, value in row.items():
        if key not in known:
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
            for word in value.split(" ") if key in kind.word_columns else [value]:
                if not re.fullmatch(pattern, word):
                    shown = "an address" if key == "url" else repr(word)  # it may hold a password
                    yield f"{key}: {shown} is not {_FORM.get(key, f'a {key}')}"
