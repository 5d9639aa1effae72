"""The programs in probes/ as text, and the records that they write."""

from __future__ import annotations

import contextlib
import json
import pkgutil
from typing import Any

Record = dict[str, Any]


def join_sources(*names: str) -> str:
    """Return the text of some probes as one program. They share code because they are in one file."""
    parts = [pkgutil.get_data("provision", f"probes/{name}.py") or b"" for name in names]
    return "\n".join(part.decode("utf-8") for part in parts)


def parse_records(report: bytes, word: str | None = None) -> tuple[Record, ...]:
    """Return the records of a report that contain the run's word.

    A crash may cut the last line short, and the size limit the first.
    """
    records = []
    for line in report.split(b"\n"):
        with contextlib.suppress(ValueError, RecursionError):
            record = json.loads(line)
            is_record = isinstance(record, dict) and isinstance(record.get("kind"), str)
            if is_record and record.pop("run", None) == word:
                records.append(record)
    return tuple(records)
