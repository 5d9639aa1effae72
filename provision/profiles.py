"""profiles/*.yaml -> model, strictly: what is known of drivers, GPUs, cuDNN and framework builds.

A file is a list of tables. A table says what its rows are (`table`), for builds which `framework`,
where the rows come from (`source`), when they were read (`read`), who keeps them (`kept`: measured
by scripts/update_profiles.py, or by hand), and holds `rows`, one line each. Every scalar is a
quoted string: an unquoted 12.10 would be the number 12.1. All mistakes are reported at once.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import re
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

from . import model
from .errors import DataError

Row = dict[str, Any]

CACHE_FORMAT = "1"
TABLE_KEYS = ("table", "framework", "source", "read", "kept", "note")
ROW_EXTRA = ("source", "read", "note")
OTHER_FILES = ("conda.yaml", "failures.yaml")
"""Data of the same folder that other modules read."""


class Kind(NamedTuple):
    """How one kind of table maps to a class: `words` are fields written as one string of words,
    `lists` as a list of strings, `flags` as "yes" or absent; `key` tells rows apart."""

    cls: type[Any]
    into: str
    key: tuple[str, ...]
    required: tuple[str, ...]
    words: tuple[str, ...] = ()
    lists: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()


KINDS = {
    "builds": Kind(
        model.Build,
        "builds",
        ("framework", "version", "cuda", "platform", "index"),
        ("version", "platform", "index", "python"),
        words=("python", "kernels"),
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
    "gpus": Kind(
        model.GpuModel,
        "gpus",
        ("capability",),
        ("capability", "generation"),
        lists=("boards",),
        flags=("tegra",),
    ),
    "cuda": Kind(model.CudaRelease, "cuda", ("cuda",), ("cuda", "linux")),
    "majors": Kind(model.CudaMajor, "majors", ("major",), ("major", "linux", "windows")),
    "branches": Kind(model.DriverBranch, "branches", ("branch",), ("branch", "cuda")),
    "known_bad": Kind(
        model.KnownBad,
        "known_bad",
        ("package", "version"),
        ("package", "version", "effect", "why", "source"),
    ),
}

FILES: dict[str, tuple[str, ...]] = {
    "drivers.yaml": ("cuda", "majors", "branches"),
    "gpus.yaml": ("gpus",),
    "cudnn.yaml": ("cudnn",),
    "torch.yaml": ("builds",),
    "tensorflow.yaml": ("builds",),
    "jax.yaml": ("builds",),
    "known_bad.yaml": ("known_bad",),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """A table as its file has it: `head` are its scalars, `rows` its rows as plain data, and
    `lines` the 1-based line of each row (empty for a table that was not read from a file)."""

    head: dict[str, str]
    rows: tuple[Row, ...]
    lines: tuple[int, ...] = ()


# --- reading one file ----------------------------------------------------------------------


def read_file(path: Path) -> tuple[list[Table], list[str]]:
    """The tables of a file, and every mistake in it as "file:line: row, key: what"."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        root = yaml.compose(path.read_text(encoding="utf-8"), Loader=loader)
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
        if key != "rows":
            head[key] = _plain(file, value_node, key, problems)
            continue
        for i, item in enumerate(value_node.value if value_node.id == "sequence" else [], start=1):
            if item.id != "mapping":
                problems.append(f'{file}:{item.start_mark.line + 1}: row {i}: expected {{key: "value", ...}}')
                continue
            rows.append(_plain(file, item, f"row {i}", problems))
            lines.append(item.start_mark.line + 1)
    return Table(head=head, rows=tuple(rows), lines=tuple(lines))


# --- checking ------------------------------------------------------------------------------

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
    "read": re.compile(r"\d{4}-\d\d-\d\d"),
    "platform": re.compile("|".join(model.PLATFORMS)),
    "effect": re.compile("refuse|avoid"),
    "python": re.compile(r"3\.\d+"),
    "kernels": re.compile(r"\d+\.\d[af]?(\+PTX)?"),
}


@functools.lru_cache(maxsize=None)
def _requirement_problem(text: str, bare: bool) -> str | None:
    from packaging.requirements import InvalidRequirement, Requirement
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    try:
        SpecifierSet(text) if bare else Requirement(text)
    except (InvalidRequirement, InvalidSpecifier):
        return f"{text!r} is not a PEP 440 specifier" if bare else f"{text!r} is not a PEP 508 requirement"
    return None


def check_table(file: str, table: Table) -> list[str]:
    """Every mistake of a table that reads as YAML: its keys, their kinds, and doubled rows."""
    problems = []
    name = table.head.get("table", "")
    kind = KINDS.get(name)
    if kind is None:
        return [f"{file}: table: {name!r} is not one of {', '.join(KINDS)}"]
    if name not in FILES.get(file, tuple(KINDS)):
        problems.append(f"{file}: table: {name!r} does not belong into this file")
    problems += [f"{file}: {name}: unknown key {k!r}" for k in table.head if k not in TABLE_KEYS]
    wanted = ("source", "read", "framework") if name == "builds" else ("source", "read")
    problems += [f"{file}: {name}: {k}: missing" for k in wanted if not table.head.get(k)]
    if name == "builds" and table.head.get("framework") not in (*model.FRAMEWORKS, None):
        problems.append(
            f"{file}: framework: {table.head['framework']!r} is not one of {', '.join(model.FRAMEWORKS)}"
        )
    seen: dict[tuple[Any, ...], int] = {}
    for i, row in enumerate(table.rows):
        line = table.lines[i] if table.lines else 0
        where = f"{file}:{line}: row {i + 1}" if line else f"{file}: row {i + 1}"
        problems += [f"{where}, {p}" for p in _check_row(kind, row)]
        key = row_key(kind, table.head, row)
        if key in seen:
            problems.append(f"{where}: the same {', '.join(kind.key)} as row {seen[key] + 1}")
        seen.setdefault(key, i)
    return problems


def _known(kind: Kind) -> frozenset[str]:
    return frozenset(f.name for f in fields(kind.cls)) - {"framework"}


def _check_row(kind: Kind, row: Row) -> Iterable[str]:
    known = _known(kind)
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
                yield from (f"{key}: {p}" for v in value if (p := _requirement_problem(v, False)))
        elif not isinstance(value, str):
            yield f"{key}: expected a quoted string"
        elif key in kind.flags:
            if value != "yes":
                yield f'{key}: "yes", or no such key; got {value!r}'
        elif key == "cudnn":
            if problem := _requirement_problem(value, True):
                yield f"{key}: {problem}"
        elif pattern := _PATTERNS.get(key):
            for word in value.split(" ") if key in kind.words else [value]:
                if not pattern.fullmatch(word):
                    yield f"{key}: {word!r} is not a {key}"


def row_key(kind: Kind, head: dict[str, str], row: Row) -> tuple[Any, ...]:
    """What tells a row from others of its kind."""
    return tuple(head.get("framework") if k == "framework" else row.get(k) for k in kind.key)


# --- writing -------------------------------------------------------------------------------


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


# --- loading -------------------------------------------------------------------------------


def directory() -> Path:
    """The profiles that came with gpuenv: inside the wheel, else beside the package in a checkout."""
    package = Path(__file__).resolve().parent
    shipped = package / "profiles_data"
    return shipped if shipped.is_dir() else package.parent / "profiles"


def load(overlays: Sequence[Path] = (), *, cache_dir: Path | None = None) -> model.Profiles:
    """All that is known: our profiles, with the rows of `overlays` laid over them in order.

    A row of an overlay replaces the row of equal key, or is added. With `cache_dir` the parsed
    profiles are kept there as JSON under the sha256 of the files. Raises DataError with every
    mistake of every file.
    """
    folders = [directory(), *overlays]
    texts = [(i, path, path.read_bytes()) for i, folder in enumerate(folders) for path in _yaml_files(folder)]
    digest = hashlib.sha256(CACHE_FORMAT.encode())
    for i, path, data in texts:
        digest.update(f"\0{i} {path.name} {len(data)}\0".encode() + data)
    cache = cache_dir / f"profiles-{digest.hexdigest()}.json" if cache_dir else None
    plain = _read_cache(cache) if cache else None
    if plain is None:
        plain = parse(folders)
        if cache:
            _write_cache(cache, plain)
    return construct(plain)


def _yaml_files(folder: Path) -> list[Path]:
    try:
        return sorted(
            p for p in folder.iterdir() if p.suffix in (".yaml", ".yml") and p.name not in OTHER_FILES
        )
    except OSError as e:
        raise DataError(
            f"The profiles folder {folder} cannot be read: {e.strerror}.",
            hint="Name an existing folder with --profiles, or install gpuenv again.",
        ) from e


def parse(folders: Sequence[Path]) -> dict[str, list[list[Any]]]:
    """The rows of the folders as plain values in field order, by field of Profiles; later folders
    replace rows of equal key. Raises DataError with every mistake."""
    merged: dict[str, dict[tuple[Any, ...], list[Any]]] = {k.into: {} for k in KINDS.values()}
    problems: list[str] = []
    for i, folder in enumerate(folders):
        files = _yaml_files(folder)
        problems += [f"{p.name}: gpuenv reads no such file" for p in files if p.name not in FILES]
        missing = set(FILES) - {p.name for p in files} if i == 0 else set()
        problems += [f"{name}: missing in {folder}" for name in sorted(missing)]
        tables: list[tuple[str, Table]] = []
        for path in files:
            if path.name in FILES:
                found, wrong = read_file(path)
                tables += [(path.name, t) for t in found if t.head.get("table") in KINDS]
                problems += [f"{folder / p}" for p in wrong] if i else wrong
        problems += _merge(tables, merged)
    if problems:
        raise DataError(
            f"The profiles are invalid: {len(problems)} mistake{'s' * (len(problems) > 1)}.",
            problems=tuple(problems),
            hint="Mend the rows named; `gpuenv profiles check` reads them again.",
        )
    return {into: list(rows.values()) for into, rows in merged.items()}


def _merge(
    tables: list[tuple[str, Table]], merged: dict[str, dict[tuple[Any, ...], list[Any]]]
) -> Iterable[str]:
    """Add one folder's rows; a key that two of its tables hold is a mistake."""
    problems = []
    seen: dict[tuple[Any, ...], str] = {}
    for file, table in tables:
        kind = KINDS[table.head["table"]]
        mine = {(kind.into, *row_key(kind, table.head, row)) for row in table.rows}
        problems += [f"{file}: {' '.join(map(str, k[1:]))} is also in {seen[k]}" for k in mine if k in seen]
        seen.update(dict.fromkeys(mine, file))
        for row in table.rows:
            merged[kind.into][row_key(kind, table.head, row)] = _values(kind, table.head, row)
    return sorted(problems)


def _values(kind: Kind, head: dict[str, str], row: Row) -> list[Any]:
    values: list[Any] = []
    for field in fields(kind.cls):
        key = field.name
        if key == "framework":
            values.append(head.get("framework"))
        elif key in kind.flags:
            values.append(row.get(key) == "yes")
        elif key in kind.words:
            values.append(str(row.get(key, "")).split())
        elif key in kind.lists:
            values.append(row.get(key, []))
        else:
            values.append(row.get(key))
    return values


def construct(plain: dict[str, list[list[Any]]]) -> model.Profiles:
    """The Profiles of plain values as `parse` gives them."""
    parts: dict[str, tuple[Any, ...]] = {}
    for kind in KINDS.values():
        names = [f.name for f in fields(kind.cls)]
        made = []
        for values in plain[kind.into]:
            pairs = zip(names, values, strict=True)
            made.append(kind.cls(**{k: tuple(v) if type(v) is list else v for k, v in pairs}))
        parts[kind.into] = tuple(made)
    return model.Profiles(**parts)


def _read_cache(path: Path) -> dict[str, list[list[Any]]] | None:
    """The cached rows, or None where there is no cache or it is broken (it is then written anew)."""
    try:
        plain = json.loads(path.read_bytes())
        construct(plain)
    except (OSError, ValueError, TypeError, KeyError):
        return None
    return plain if isinstance(plain, dict) else None


def _write_cache(path: Path, plain: dict[str, list[list[Any]]]) -> None:
    """Keep the rows; a cache that cannot be written only costs time, so that is no error."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        fd, name = tempfile.mkstemp(dir=path.parent, prefix=path.stem[:16])
        with os.fdopen(fd, "w", encoding="utf-8") as file:
            json.dump(plain, file, separators=(",", ":"))
        os.replace(name, path)
    except OSError:
        return
