"""What makes a second run cheap: digests of a project's files, and the project's own file kept as JSON."""

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
from provision.system import untrusted_files
from provision.system.redaction import secrets_in

from .key_forms import PYPROJECT, YAML_NAMES
from .pyproject_table import TABLE, read_table_of, without_table
from .yaml_tree import NotReadError

_CACHE_FORMAT = "1"
_TABLE_MARK = f"#{TABLE}"


def watched_name(config: Path) -> str:
    """Return the name of a project's file for `digest`: of a pyproject.toml only its table `tool.gpuenv` counts."""
    return f"{config}{_TABLE_MARK}" if config.name == PYPROJECT else str(config)


def digest(files: Sequence[str], *, exact: bool = False) -> str:
    """The sha256 over files, their names and bytes, in the order given; a missing file counts as missing. Of a
    project's file only what decides packages counts, not its comments and checks; with `exact` its bytes do, as they
    did in earlier versions. Of a pyproject.toml that has a table `tool.gpuenv` the other tables count.

    Names are taken below the folder that all files share, so that a checkout elsewhere has the same
    digest. Never fails: a file that cannot be read counts with the reason.
    """
    total = hashlib.sha256(f"{_CACHE_FORMAT} {len(files)}".encode())
    shared = os.path.commonpath([Path(f).absolute().parent for f in files]) if files else ""
    for file in files:
        name = os.path.relpath(Path(file).absolute(), shared)
        try:
            path = Path(file.removesuffix(_TABLE_MARK))
            data = untrusted_files.read_bytes(path)
            counted = data if exact else _deciding(path, data, of_table=file.endswith(_TABLE_MARK))
            content = hashlib.sha256(counted).hexdigest()
        except (OSError, ValueError) as error:  # a name with a NUL is no file
            content = type(error).__name__
        total.update(f"\0{name}\0{content}".encode("utf-8", "surrogateescape"))
    return total.hexdigest()


def _deciding(path: Path, data: bytes, *, of_table: bool) -> bytes:
    """What of a file decides packages: of a project's file that can be read all keys but the checks."""
    if path.name == PYPROJECT and not of_table:
        return _beside_table(data)
    if path.name not in YAML_NAMES and not of_table:
        return data
    try:
        asked = as_plain(dataclasses.replace(cached_config(path, None, data), checks=()))
    except DataError:
        return data
    nothing = as_plain(ProjectConfig())  # keys that later versions know change no digest
    said = {key: value for key, value in asked.items() if value != nothing[key]}
    return json.dumps(said, sort_keys=True).encode()


def _beside_table(data: bytes) -> bytes:
    """Return what a pyproject.toml says beside the table `tool.gpuenv`; all of its bytes where it has none."""
    try:
        if read_table_of(data) is None:
            return data
        return json.dumps(without_table(data), sort_keys=True, default=str).encode()
    except NotReadError:
        return data


_READ: dict[str, ProjectConfig] = {}
"""What this process has read, by the key of its bytes."""


def cached_config(path: Path, cache_dir: Path | None, data: bytes | None = None) -> ProjectConfig:
    """`read_config`, with what was read kept in `cache_dir` as JSON under the hash of the file's bytes, so
    that an unchanged file is read without YAML. `data` are its bytes, where they were read. Raises DataError."""
    from .gpuenv_yaml import parse_config, read_bytes

    data = read_bytes(path) if data is None else data
    form = PYPROJECT if path.name == PYPROJECT else ""
    key = hashlib.sha256(f"{_CACHE_FORMAT} {__version__}\0{form}".encode() + data).hexdigest()
    # What holds a password is kept nowhere but where the user wrote it.
    secret = next(secrets_in(data.decode("utf-8", "replace")), None)
    kept = cache_dir / f"project-{key}.json" if cache_dir and not secret else None
    found = _READ.get(key) or (_kept(kept) if kept else None)
    if found is None:
        found = parse_config(path.name, data)
        if kept:
            _keep(kept, found)
    _READ[key] = found
    return found


def _kept(path: Path) -> ProjectConfig | None:
    """The cached project, or None where there is none or it is broken (it is then written anew)."""
    try:
        return from_plain(ProjectConfig, json.loads(path.read_bytes()))
    except (OSError, ValueError, TypeError, RecursionError):
        return None


def _keep(path: Path, project: ProjectConfig) -> None:
    """Write the cache; one that cannot be written only costs time, so that is no error."""
    import tempfile

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        fd, name = tempfile.mkstemp(dir=path.parent, prefix=path.stem[:16])
        with os.fdopen(fd, "w", encoding="utf-8") as file:
            json.dump(as_plain(project), file, separators=(",", ":"))
        Path(name).replace(path)
    except OSError:
        return
