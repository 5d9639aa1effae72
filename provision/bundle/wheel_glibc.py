"""The glibc that the wheels of a bundle need, by their names."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import PurePosixPath

from packaging.utils import parse_wheel_filename


def find_newer_glibc(files: Iterable[str], glibc: str | None) -> str | None:
    """Return the first wheel of a bundle whose tags need a newer glibc, or None. A plan for the CPU has no other say
    in it."""
    if glibc is None:
        return None
    mine = tuple(int(n) for n in glibc.split("."))
    for path in (f for f in files if f.startswith("wheels/") and f.endswith(".whl")):
        tags = parse_wheel_filename(PurePosixPath(path).name)[3]
        wanted = [re.match(r"manylinux_(\d+)_(\d+)_", t.platform) for t in tags]
        if all(w and (int(w[1]), int(w[2])) > mine for w in wanted):
            return path
    return None
