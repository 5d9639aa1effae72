"""direct_url.json: the address of a wheel or commit that an installer leaves beside it, without secrets.

uv writes the address that it was given, with the values of variables. The file gets the references back, and RECORD
gets the file's new digest.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
from pathlib import Path

from ..environment.installed import normal
from ..errors import BuildError
from ..model import Lock
from ..system import foreign, safe_write
from ..system.redaction import redact_value

_NAME = "direct_url.json"


def redact_installed(lock: Lock, env: Path, target: Path | None = None) -> None:
    """Remove secrets from direct_url.json of a lock's packages, in an environment or in a `target` beside it.
    Raises BuildError."""
    wanted = {normal(p.name) for p in lock.packages if p.index is None}
    root = target or env
    for path in sorted(root.glob(f"{'' if target else 'lib/python3*/site-packages/'}*.dist-info/{_NAME}")):
        if normal(path.parent.name.partition("-")[0]) not in wanted:
            continue
        try:
            found = json.loads(foreign.read_bytes(path))
            if (public := redact_value(found)) != found:
                _replace(path, json.dumps(public).encode(), root)
        except (OSError, ValueError) as error:
            raise BuildError(
                f"{path} may hold the secrets of an address, and they cannot be removed: {error}",
                hint="build it again: gpuenv create --recreate",
            ) from error


def _replace(path: Path, data: bytes, root: Path) -> None:
    """Replace a file, and its digest and size in RECORD."""
    safe_write.write_file(path, data, root=root)
    record = path.with_name("RECORD")
    rows = list(csv.reader(foreign.read_bytes(record).decode("utf-8").splitlines()))
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    inside = f"{path.parent.name}/{_NAME}"
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(
        [inside, f"sha256={digest}", str(len(data))] if row[:1] == [inside] else row for row in rows
    )
    safe_write.write_file(record, text.getvalue(), root=root)
