"""Find CUDA errors that a text gives by number only, in the wording of any program."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from .lines import Line

_NUMBERED = re.compile(
    r"\b(?:lib)?cu(?:da|Init|dart)\w{0,40}(?:\(\w{0,20}\))?(?:[\w ,:'\"./-]{0,40}?"
    r"(?:error|failure|failed|returned|code|status)\b[ :=#(]{1,4}|(?<=\)) ?(?:=|->|:) ?)"
    r"(\d{1,3})\b(?! ?(?:mi?b|gi?b|%|\.\d))",
    re.IGNORECASE,
)
_SHOWN = 3


def find_numbered(lines: Sequence[Line], codes: Collection[str]) -> dict[str, list[Line]]:
    """Return the first lines of each numbered CUDA error, such as "cudaGetDeviceCount returned 35"."""
    where: dict[str, list[Line]] = {}
    for line in lines:
        for match in _NUMBERED.finditer(line.text):
            known = where.setdefault(match.group(1), []) if match.group(1) in codes else None
            if known is not None and len(known) < _SHOWN:
                known.append(line)
    return where
