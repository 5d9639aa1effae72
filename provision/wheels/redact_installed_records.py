"""Removes credentials from the records of installed packages.

uv writes the address of a package into direct_url.json, with the values of variables. This module restores the
references to variables. It also writes the file's new digest into RECORD.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
from pathlib import Path

from ..errors import BuildError
from ..model import Lock, normalize_name
from ..system import untrusted, write_inside_folder
from ..system.redaction import redact_value

_NAME = "direct_url.json"


def redact_installed(lock: Lock, env: Path, target: Path | None = None) -> None:
    """Remove secrets from direct_url.json of a lock's packages. Raises BuildError.

    The packages are in an environment, or in a folder `target` beside it.
    """
    wanted = {normalize_name(p.name) for p in lock.packages if p.index is None}
    root = target or env
    for path in sorted(root.glob(f"{'' if target else 'lib/python3*/site-packages/'}*.dist-info/{_NAME}")):
        if normalize_name(path.parent.name.partition("-")[0]) not in wanted:
            continue
        try:
            content = json.loads(untrusted.read_bytes(path))
            if (public := redact_value(content)) != content:
                _replace(path, json.dumps(public).encode(), root)
        except (OSError, ValueError) as error:
            raise BuildError(
                f"{path} may contain credentials of an address, and cannot be changed: {error}",
                hint="build it again: gpuenv create --recreate",
            ) from error


def _replace(path: Path, data: bytes, root: Path) -> None:
    """Replace a file, and its digest and size in RECORD."""
    write_inside_folder.write_file(path, data, root=root)
    record = path.with_name("RECORD")
    rows = list(csv.reader(untrusted.read_bytes(record).decode("utf-8").splitlines()))
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    inside = f"{path.parent.name}/{_NAME}"
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(
        [inside, f"sha256={digest}", str(len(data))] if row[:1] == [inside] else row for row in rows
    )
    write_inside_folder.write_file(record, text.getvalue(), root=root)
