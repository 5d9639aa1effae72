"""A wheel from its contents: the same bytes each time, so that a bundle that is made again keeps it."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import zipfile
from collections.abc import Mapping
from pathlib import Path

from ..system.path_names import check_file_name
from ..system.safe_write import write_file
from . import not_writable

_EPOCH = (2020, 1, 1, 0, 0, 0)


def write(folder: Path, name: str, contents: Mapping[str, bytes], info: str) -> str:
    """Write a wheel in one step, with its RECORD in `info`; returns its name. Raises BuildError, UnsafeNameError."""
    rows = []
    check_file_name(name)
    made = io.BytesIO()
    try:
        with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as wheel:
            for inside, data in contents.items():
                digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
                rows.append((inside, f"sha256={digest}", len(data)))
                wheel.writestr(_member(inside), data)
            text = io.StringIO()
            csv.writer(text, lineterminator="\n").writerows([*rows, (f"{info}/RECORD", "", "")])
            wheel.writestr(_member(f"{info}/RECORD"), text.getvalue())
        write_file(folder / name, made.getvalue(), root=folder.parent)
    except OSError as error:
        raise not_writable(folder, error) from error
    return name


def _member(inside: str) -> zipfile.ZipInfo:
    made = zipfile.ZipInfo(inside, _EPOCH)
    made.compress_type = zipfile.ZIP_DEFLATED
    made.external_attr = (0o755 if ".data/scripts/" in inside else 0o644) << 16
    return made
