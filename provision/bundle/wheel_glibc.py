"""Compare the glibc in the names of a bundle's wheels with the machine's."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import PurePosixPath

from packaging.utils import parse_wheel_filename


def find_newer_glibc(files: Iterable[str], glibc: str | None) -> str | None:
    """Return the first wheel of a bundle whose tags need a newer glibc, or None.

    The plan of a CPU bundle does not check glibc.
    """
    if glibc is None:
        return None
    machine_glibc = tuple(int(n) for n in glibc.split("."))
    for path in (f for f in files if f.startswith("wheels/") and f.endswith(".whl")):
        tags = parse_wheel_filename(PurePosixPath(path).name)[3]
        wanted = [re.match(r"manylinux_(\d+)_(\d+)_", t.platform) for t in tags]
        if all(w and (int(w[1]), int(w[2])) > machine_glibc for w in wanted):
            return path
    return None
