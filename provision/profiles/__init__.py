"""Load and check profiles/*.yaml: drivers, GPUs, cuDNN and framework builds.

A file is a list of tables. The keys of a table are the kind of its rows (`table`), for builds the `framework`, the
origin of the rows (`source`), their date (`read`), their maintainer (`kept`: "measured" by
scripts/update_profiles.py, or "by hand"), and `rows`, one per line. Every scalar is a quoted string: an unquoted
12.10 would be the number 12.1. All mistakes are reported at once.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .. import model
from ..errors import DataError
from ..system import trust
from .tables import FILES, KINDS, Kind, Row, Table, read_bytes, read_file, row_key

_PACKAGE = Path(__file__).resolve().parent.parent
_Merged = dict[str, dict[tuple[Any, ...], list[Any]]]
"""The values of each row by its key, by field of Profiles."""


def directory() -> Path:
    """Return the folder of gpuenv's profiles: in the wheel, otherwise beside the package."""
    shipped = _PACKAGE / "profiles_data"
    return shipped if shipped.is_dir() else _PACKAGE.parent / "profiles"


def load(overlays: Sequence[Path] = (), *, cache_dir: Path | None = None) -> model.Profiles:
    """Return gpuenv's profiles with the rows of `overlays`, applied in order.

    A row of an overlay replaces the row of equal key, or is added. `cache_dir` caches the parsed profiles, named
    by the sha256 of the files. Raises DataError with every mistake of every file.
    """
    folders = [directory(), *overlays]
    name = _name_cache(overlays)
    for folder in filter(None, (_PACKAGE, cache_dir)):
        if known := _read_cache(folder / name):
            return known
    parsed = parse(folders)
    if cache_dir:
        _write_cache(cache_dir / name, parsed)
    return _restore(parsed)


_load_own = functools.cache(load)
current: model.Profiles | None = None
"""The rows of this run: those that its command has loaded last, with the user's."""


def get_current() -> model.Profiles:
    """Return the rows of this run, or gpuenv's own if its command has loaded none."""
    return current or _load_own()


class _LazyProfiles(model.Profiles):
    """Profiles that make the rows of a field when it is asked for: a command needs few of them."""

    __slots__ = ("_parsed",)
    _parsed: Mapping[str, str]

    def __getattr__(self, name: str) -> tuple[Any, ...]:
        kind = next((k for k in KINDS.values() if k.into == name), None)
        if kind is None or kind.cls is None:
            raise AttributeError(name)
        rows = tuple(
            kind.cls(*[tuple(value) if type(value) is list else value for value in values])
            for values in json.loads(self._parsed[name])
        )
        object.__setattr__(self, name, rows)
        return rows


def _restore(parsed: Mapping[str, str]) -> model.Profiles:
    known = object.__new__(_LazyProfiles)
    object.__setattr__(known, "_parsed", parsed)
    return known


def prepare() -> None:
    """Write gpuenv's parsed profiles beside this package, for a faster first run. Raises DataError.

    The build of gpuenv calls this.
    """
    folders = [directory()]
    cache = _PACKAGE / _name_cache(())
    _write_cache(cache, parse(folders))
    with contextlib.suppress(OSError):  # another user's checkout: only slower
        cache.chmod(0o644)  # all users read what root installed
        for stale in set(_PACKAGE.glob("profiles-*.rows")) - {cache}:
            stale.unlink()


def _name_cache(overlays: Sequence[Path]) -> str:
    """Return the name of the cached rows: the sha256 of the files that `load` reads, and of the code that reads them.

    Raises DataError.
    """
    whole = _digest_own(directory()).copy()
    for overlay in overlays:
        _add_files(whole, _list_yaml_files(overlay))
    return f"profiles-{whole.hexdigest()}.rows"


@functools.cache
def _digest_own(folder: Path) -> hashlib._Hash:
    """Return the sha256 of gpuenv's own files, a megabyte."""
    whole = hashlib.sha256()
    _add_files(whole, [*sorted((_PACKAGE / "profiles").glob("*.py")), _PACKAGE / "model" / "catalog.py"])
    _add_files(whole, _list_yaml_files(folder))
    return whole


def _add_files(whole: hashlib._Hash, paths: Sequence[Path]) -> None:
    whole.update(f"\0{len(paths)}\0".encode())
    for path in paths:
        try:
            data = read_bytes(path)
        except OSError as error:
            data = str(error).encode()  # the reader reports the error
        whole.update(f"\0{path.name} {len(data)}\0".encode() + data)


def _list_yaml_files(folder: Path) -> list[Path]:
    try:
        return sorted(p for p in folder.iterdir() if p.suffix in (".yaml", ".yml"))
    except OSError as e:
        raise DataError(
            f"The profiles folder {folder} cannot be read: {e.strerror}.",
            hint="Name an existing folder with --profiles, or install gpuenv again.",
        ) from e


def read_tables(folders: Sequence[Path]) -> list[tuple[Path, Table]]:
    """Return the tables of the folders, each with its file. Raises DataError with every mistake."""
    tables: list[tuple[Path, Table]] = []
    problems: list[str] = []
    for folder in folders:
        files, own = _list_yaml_files(folder), folder == directory()
        problems += [f"{p.name}: unknown file" for p in files if p.name not in FILES]
        missing = set(FILES) - {p.name for p in files} if own else set()
        problems += [f"{name}: missing in {folder}" for name in sorted(missing)]
        seen: dict[tuple[Any, ...], str] = {}
        for path in (path for path in files if path.name in FILES):
            found, wrong = read_file(path)
            problems += wrong if own else [f"{folder / p}" for p in wrong]
            for table in (t for t in found if t.head.get("table") in KINDS):
                tables.append((path, table))
                kind = KINDS[table.head["table"]]
                keys = {(kind.into, *row_key(kind, table.head, row)) for row in table.rows if kind.into}
                problems += sorted(
                    f"{path.name}: {' '.join(map(str, k[1:]))} is also in {seen[k]}"
                    for k in keys & seen.keys()
                )
                seen |= dict.fromkeys(keys, path.name)
    if problems:
        raise DataError(
            f"the profiles are invalid: {len(problems)} mistake{'s' * (len(problems) > 1)}",
            problems=tuple(problems),
            hint="correct these rows, then run `gpuenv profiles check`",
        )
    return tables


def parse(folders: Sequence[Path]) -> dict[str, str]:
    """Return the rows of the folders as JSON, values in field order, by field of Profiles.

    Later folders replace rows of equal key. Raises DataError with every mistake.
    """
    merged: _Merged = {k.into: {} for k in KINDS.values() if k.into}
    for _, table in read_tables(folders):
        kind = KINDS[table.head["table"]]
        for row in table.rows if kind.into else ():
            values = [_value(kind, name, table.head, row) for name in kind.columns]
            merged[kind.into][row_key(kind, table.head, row)] = values
    return {into: json.dumps([*rows.values()], separators=(",", ":")) for into, rows in merged.items()}


def _value(kind: Kind, name: str, head: dict[str, str], row: Row) -> Any:
    if name == "framework":
        return head.get("framework")
    if name in kind.flags:
        return row.get(name) == "yes"
    if name in kind.word_columns:
        return str(row.get(name, "")).split()
    return row.get(name, [] if name in kind.lists else None)


def _read_cache(path: Path) -> model.Profiles | None:
    """Return the cached rows, or None if there is no valid cache. Those beside this package are gpuenv's own."""
    try:
        data = path.read_bytes() if path.parent == _PACKAGE else trust.read_cached(path)
    except OSError:
        return None
    digest, _, text = data.partition(b"\n")
    if digest != hashlib.sha256(text).hexdigest().encode():
        return None
    return _restore(dict(line.split(" ", 1) for line in text.decode().splitlines()))


def _write_cache(path: Path, parsed: Mapping[str, str]) -> None:
    """Write the rows, those of a field of Profiles as one line, below the digest of all."""
    text = "".join(f"{into} {rows}\n" for into, rows in parsed.items())
    trust.write_cached(path, f"{hashlib.sha256(text.encode()).hexdigest()}\n{text}")
