"""Digests of a project's files, and a cache of the parsed project file."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path

from provision import __version__
from provision.errors import DataError
from provision.model import ProjectConfig, as_plain, from_plain
from provision.system import trust, untrusted
from provision.system.redaction import find_secrets

from .key_forms import PYPROJECT, YAML_NAMES
from .pyproject_table import TABLE, read_table_of, remove_table
from .yaml_tree import NotReadError

_CACHE_FORMAT = "1"
_TABLE_MARK = f"#{TABLE}"


def name_watched_file(config: Path) -> str:
    """Return the name of a project's file for `digest_files`. Of a pyproject.toml only `tool.gpuenv` counts."""
    return f"{config}{_TABLE_MARK}" if config.name == PYPROJECT else str(config)


def digest_files(files: Sequence[str], *, exact: bool = False) -> str:
    """Return the sha256 of files: their names and bytes in order, and the reason for a file that cannot be read.

    In a project's file only the keys that decide packages count, not comments and checks. With `exact` its bytes
    count, as in earlier versions. In a pyproject.toml with a table `tool.gpuenv` the other tables count. Names are
    relative to the common folder, so that a checkout elsewhere has the same digest.
    """
    total = hashlib.sha256(f"{_CACHE_FORMAT} {len(files)}".encode())
    shared = os.path.commonpath([Path(f).absolute().parent for f in files]) if files else ""
    for file in files:
        name = os.path.relpath(Path(file).absolute(), shared)
        try:
            path = Path(file.removesuffix(_TABLE_MARK))
            data = untrusted.read_bytes(path)
            counted = data if exact else _select_deciding(path, data, of_table=file.endswith(_TABLE_MARK))
            content = hashlib.sha256(counted).hexdigest()
        except (OSError, ValueError) as error:  # a name with a NUL character raises ValueError
            content = type(error).__name__
        total.update(f"\0{name}\0{content}".encode("utf-8", "surrogateescape"))
    return total.hexdigest()


def _select_deciding(path: Path, data: bytes, *, of_table: bool) -> bytes:
    """Return the part of a file that decides packages: in a valid project file every key but the checks."""
    if path.name == PYPROJECT and not of_table:
        return _select_other_tables(data)
    if path.name not in YAML_NAMES and not of_table:
        return data
    try:
        values = as_plain(dataclasses.replace(read_cached_config(path, None, data), checks=()))
    except DataError:
        return data
    nothing = as_plain(ProjectConfig())  # a key of a later version must not change the digest
    stated = {key: value for key, value in values.items() if value != nothing[key]}
    return json.dumps(stated, sort_keys=True).encode()


def _select_other_tables(data: bytes) -> bytes:
    """Return the tables of a pyproject.toml other than `tool.gpuenv`, or all bytes without that table."""
    try:
        if read_table_of(data) is None:
            return data
        return json.dumps(remove_table(data), sort_keys=True, default=str).encode()
    except NotReadError:
        return data


_READ: dict[str, ProjectConfig] = {}
"""The projects that this process has parsed, by the key of their bytes."""


def read_cached_config(path: Path, cache_dir: Path | None, data: bytes | None = None) -> ProjectConfig:
    """Return the project of a file from the cache, or parse the file and cache it. Raises DataError.

    The cache in `cache_dir` is JSON by the hash of the file's bytes, which avoids importing the YAML parser. `data`
    are the bytes if the caller has read them.
    """
    from .gpuenv_yaml import parse_config, read_bytes

    data = read_bytes(path) if data is None else data
    form = PYPROJECT if path.name == PYPROJECT else ""
    key = hashlib.sha256(f"{_CACHE_FORMAT} {__version__}\0{form}".encode() + data).hexdigest()
    # A file with a password must not be copied into the cache.
    has_secret = bool(find_secrets(data.decode("utf-8", "replace")))
    kept = cache_dir / f"project-{key}.json" if cache_dir and not has_secret else None
    config = _READ.get(key) or (_read_cache(kept) if kept else None)
    if config is None:
        config = parse_config(path.name, data)
        if kept:
            trust.write_cached(kept, json.dumps(as_plain(config), separators=(",", ":")))
    _READ[key] = config
    return config


def _read_cache(path: Path) -> ProjectConfig | None:
    """Return the cached project, or None if it is missing or damaged. The caller then writes it again."""
    try:
        return from_plain(ProjectConfig, json.loads(trust.read_cached(path)))
    except (OSError, ValueError, TypeError, RecursionError):
        return None
