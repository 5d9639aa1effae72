"""Load and check profiles/*.yaml: drivers, GPUs, cuDNN and framework builds.

A file is a list of tables. The keys of a table are the kind of its rows (`table`), for builds the `framework`, the
origin of the rows (`source`), their date (`read`), their maintainer (`kept`: "measured" by
scripts/update_profiles.py, or "by hand"), and `rows`, one per line. Every scalar is a quoted string: an unquoted
12.10 would be the number 12.1. All mistakes are reported at once.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from provision import model
from provision.errors import DataError
from provision.system import trust

from .files import read_bytes, read_file
from .tables import FILES, KINDS, Kind, Row, Table, row_key

_PACKAGE = Path(__file__).resolve().parent.parent


def directory() -> Path:
    """Return the folder of gpuenv's profiles: in the wheel, otherwise beside the package."""
    shipped = _PACKAGE / "profiles_data"
    return shipped if shipped.is_dir() else _PACKAGE.parent / "profiles"


def load(overlays: Sequence[Path] = (), *, cache_dir: Path | None = None) -> model.Profiles:
    """Return gpuenv's profiles with the rows of `overlays`, applied in order.

    A row of an overlay replaces the row of equal key, or is added. `cache_dir`
    caches the parsed profiles as JSON, named by the sha256 of the files. Raises DataError with every mistake of
    every file.
    """
    folders = [directory(), *overlays]
    if known := _load_kept(folders, cache_dir, KINDS.values()):
        return known
    plain = parse(folders)
    if cache_dir:
        _write_cache(_get_cache_path(folders, cache_dir), plain)
    return construct(plain, KINDS.values())


def prepare() -> None:
    """Write gpuenv's parsed profiles beside this package, for a faster first run. Raises DataError.

    The build of gpuenv calls this.
    """
    folders = [directory()]
    cache = _get_cache_path(folders, _PACKAGE)
    _write_cache(cache, parse(folders))
    with contextlib.suppress(OSError):  # another user's checkout: only slower
        cache.chmod(0o644)  # all users read what root installed
        for stale in set(_PACKAGE.glob("profiles-*.json")) - {cache}:
            stale.unlink()


def load_parts(
    parts: Sequence[str], overlays: Sequence[Path] = (), *, cache_dir: Path | None = None
) -> model.Profiles:
    """Return some fields of Profiles, as from `load`, for commands that have no time to load all."""
    kinds = [k for k in KINDS.values() if k.into in parts]
    return _load_kept([directory(), *overlays], cache_dir, kinds) or load(overlays, cache_dir=cache_dir)


def load_own_parts(file: str, parts: Sequence[str]) -> model.Profiles:
    """Return some tables of one shipped file. Without a cache of parsed profiles only this file is parsed."""
    kinds = [k for k in KINDS.values() if k.into in parts]
    if known := _load_kept([directory()], None, kinds):
        return known
    merged: dict[str, dict[tuple[Any, ...], list[Any]]] = {k.into: {} for k in kinds}
    tables = read_file(directory() / file)[0]
    _merge([(file, t) for t in tables if t.head.get("table") in parts], merged)
    return construct({into: list(rows.values()) for into, rows in merged.items()}, kinds)


def _load_kept(
    folders: Sequence[Path], cache_dir: Path | None, kinds: Iterable[Kind]
) -> model.Profiles | None:
    """Return the parsed rows of these files from the package or the user's cache, or None."""
    name, wanted = _get_cache_path(folders, _PACKAGE).name, list(kinds)
    places = [folder / name for folder in (_PACKAGE, cache_dir) if folder]
    return next((known for place in places if (known := _read_cache(place, wanted))), None)


def _get_cache_path(folders: Sequence[Path], cache_dir: Path) -> Path:
    """Return the cache file of these folders."""
    return cache_dir / f"profiles-{_hash_folders(folders)}.json"


def digest(overlays: Sequence[Path] = ()) -> str:
    """Return the sha256 of the files that `load` reads. Raises DataError."""
    return _hash_folders([directory(), *overlays])


def _hash_folders(folders: Sequence[Path]) -> str:
    """Return the sha256 of the files and of the code that reads them."""
    code = [*sorted((_PACKAGE / "profiles").glob("*.py")), _PACKAGE / "model" / "catalog.py"]
    read = [code, *map(_list_yaml_files, folders)]
    whole = hashlib.sha256()
    for i, path, data in [(i, path, _read_bytes(path)) for i, paths in enumerate(read) for path in paths]:
        whole.update(f"\0{i} {path.name} {len(data)}\0".encode() + data)
    return whole.hexdigest()


def _read_bytes(path: Path) -> bytes:
    try:
        return read_bytes(path)
    except OSError as error:
        return str(error).encode()  # the reader reports the error


def _list_yaml_files(folder: Path) -> list[Path]:
    try:
        return sorted(p for p in folder.iterdir() if p.suffix in (".yaml", ".yml"))
    except OSError as e:
        raise DataError(
            f"The profiles folder {folder} cannot be read: {e.strerror}.",
            hint="Name an existing folder with --profiles, or install gpuenv again.",
        ) from e


def parse(folders: Sequence[Path]) -> dict[str, list[list[Any]]]:
    """Return the rows of the folders as plain values in field order, by field of Profiles.

    Later folders replace rows of equal key. Raises DataError with every mistake.
    """
    merged: dict[str, dict[tuple[Any, ...], list[Any]]] = {k.into: {} for k in KINDS.values() if k.into}
    problems: list[str] = []
    for i, folder in enumerate(folders):
        files = _list_yaml_files(folder)
        problems += [f"{p.name}: unknown file" for p in files if p.name not in FILES]
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
            hint="Correct these rows, then run `gpuenv profiles check`.",
        )
    return {into: list(rows.values()) for into, rows in merged.items()}


def _merge(
    tables: list[tuple[str, Table]], merged: dict[str, dict[tuple[Any, ...], list[Any]]]
) -> Iterable[str]:
    """Add one folder's rows. A key in two of its tables is a mistake."""
    problems = []
    seen: dict[tuple[Any, ...], str] = {}
    for file, table in tables:
        kind = KINDS[table.head["table"]]
        if not kind.into:
            continue
        rows = {row_key(kind, table.head, row): row for row in table.rows}
        keys = [(kind.into, *k) for k in rows]
        problems += [f"{file}: {' '.join(map(str, k[1:]))} is also in {seen[k]}" for k in keys if k in seen]
        seen.update(dict.fromkeys(keys, file))
        names = [f.name for f in fields(kind.cls)]
        merged[kind.into].update({k: _make_values(kind, names, table.head, row) for k, row in rows.items()})
    return sorted(problems)


def _make_values(kind: Kind, names: list[str], head: dict[str, str], row: Row) -> list[Any]:
    values: list[Any] = []
    for key in names:
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


def construct(plain: dict[str, list[list[Any]]], kinds: Iterable[Kind]) -> model.Profiles:
    """Return Profiles with the rows of these kinds, from the plain values of `parse`."""
    parts: dict[str, tuple[Any, ...]] = {}
    for kind in filter(lambda k: k.into, kinds):
        names = [f.name for f in fields(kind.cls)]
        values_of_kind = []
        for values in plain[kind.into]:
            pairs = zip(names, values, strict=True)
            values_of_kind.append(kind.cls(**{k: tuple(v) if type(v) is list else v for k, v in pairs}))
        parts[kind.into] = tuple(values_of_kind)
    return model.Profiles(**parts)


def _read_cache(path: Path, kinds: Iterable[Kind]) -> model.Profiles | None:
    """Return the cached rows, or None if there is no valid cache. Those beside this package are gpuenv's own."""
    try:
        data = path.read_bytes() if path.parent == _PACKAGE else trust.read_cached(path)
        return construct(json.loads(data), kinds)
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _write_cache(path: Path, plain: dict[str, list[list[Any]]]) -> None:
    trust.write_cached(path, json.dumps(plain, separators=(",", ":")))  # `dump` takes five times as long
