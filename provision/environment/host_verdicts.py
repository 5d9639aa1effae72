"""Verdicts on an environment, one for each host that shares its disk.

`verdict.json` is the last one of any host, which older versions read and write. After verification on several hosts,
`verdicts/` has a file for each.
"""

from __future__ import annotations

import contextlib
import hashlib
import platform
import re
from pathlib import Path
from typing import Any

from ..errors import BuildError
from .draft_and_replace_folder import MARK
from .read_state_files import read as read_file

LAST = "verdict.json"
FOLDER = "verdicts"
"""The folder in MARK with a file for each host. A changed copy of an environment does not get it."""
MOST = 20_000
"""The most verdicts to keep. Containers have a new host name each time."""


def host() -> str:
    """Return the name of this host."""
    return platform.node() or "unknown"


def file_name(name: str) -> str:
    """Return the file name of a host's verdict, relative to MARK."""
    plain = re.sub(r"[^A-Za-z0-9.-]", "_", name).strip(".")[:100]
    if plain != name or not name:  # two hosts must not share a file
        plain = (
            f"{plain or 'host'}-{hashlib.sha256(name.encode('utf-8', 'surrogateescape')).hexdigest()[:12]}"
        )
    return f"{FOLDER}/{plain}.json"


def find(env: Path) -> str:
    """Return the file name of this host's verdict, or else of the last one. Raises BuildError."""
    last, this_host = read_file(env, LAST), file_name(host())
    is_own = last is None or last.get("host") in (None, host())
    return LAST if is_own or not (env / MARK / this_host).is_file() else this_host


def read(env: Path) -> dict[str, Any] | None:
    """Return the document of this host's verdict, else of the last one, or None without any. Raises BuildError."""
    return read_file(env, find(env))


def files_for(env: Path, document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the files of MARK to write for this host's verdict, with their documents. No other verdict is lost."""
    document = {"host": host(), **document}
    files = {LAST: document}
    try:
        last = read_file(env, LAST)
    except BuildError:
        last = None  # the file is damaged, and is replaced
    other = last.get("host") if last else None
    if last and isinstance(other, str) and other != host():
        files = {file_name(other): last, file_name(host()): document, **files}
    elif (env / MARK / FOLDER).is_dir():
        files = {file_name(host()): document, **files}
    return files


def discard_oldest(env: Path) -> None:
    """Remove the oldest verdicts beyond the limit `MOST`."""
    with contextlib.suppress(OSError):  # no folder, or another host removes them too
        files = list((env / MARK / FOLDER).iterdir())
        if len(files) > MOST:
            for old in sorted(files, key=lambda f: f.stat().st_mtime)[: len(files) - MOST]:
                old.unlink(missing_ok=True)
