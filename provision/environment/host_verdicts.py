"""The verdicts in an environment, one for each host: a disk that many hosts share has one environment for all of them.

`verdict.json` is the last one of any host, which older versions read and write. Where more than one host verified the
environment, `verdicts/` has a file for each.
"""

from __future__ import annotations

import contextlib
import hashlib
import platform
import re
from pathlib import Path
from typing import Any

from ..errors import BuildError
from .place import MARK
from .state_files import read as read_file

LAST = "verdict.json"
FOLDER = "verdicts"
"""The folder in MARK with a file for each host. A changed copy of an environment does not get it."""
MOST = 20_000
"""Verdicts of so many hosts are kept. Containers have a new name each time."""


def host() -> str:
    """The name of this host."""
    return platform.node() or "unknown"


def file_name(name: str) -> str:
    """The name in MARK of a host's verdict."""
    plain = re.sub(r"[^A-Za-z0-9.-]", "_", name).strip(".")[:100]
    if plain != name or not name:  # two names must not be one file
        plain = (
            f"{plain or 'host'}-{hashlib.sha256(name.encode('utf-8', 'surrogateescape')).hexdigest()[:12]}"
        )
    return f"{FOLDER}/{plain}.json"


def find(env: Path) -> str:
    """The name in MARK of this host's verdict, or of the last one where this host has none. Raises BuildError."""
    last, own = read_file(env, LAST), file_name(host())
    is_own = last is None or last.get("host") in (None, host())
    return LAST if is_own or not (env / MARK / own).is_file() else own


def read(env: Path) -> dict[str, Any] | None:
    """The document of this host's verdict, else of the last one; None without any. Raises BuildError."""
    return read_file(env, find(env))


def files_for(env: Path, document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The files of MARK to write, with their documents, so that this host's verdict is kept and no other one is lost."""
    document = {"host": host(), **document}
    files = {LAST: document}
    try:
        last = read_file(env, LAST)
    except BuildError:
        last = None  # it is damaged, and replaced
    other = last.get("host") if last else None
    if last and isinstance(other, str) and other != host():
        files = {file_name(other): last, file_name(host()): document, **files}
    elif (env / MARK / FOLDER).is_dir():
        files = {file_name(host()): document, **files}
    return files


def discard_oldest(env: Path) -> None:
    """Remove the oldest verdicts where there are too many."""
    with contextlib.suppress(OSError):  # none, or another host removes them too
        files = list((env / MARK / FOLDER).iterdir())
        if len(files) > MOST:
            for old in sorted(files, key=lambda f: f.stat().st_mtime)[: len(files) - MOST]:
                old.unlink(missing_ok=True)
