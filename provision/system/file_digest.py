"""Digests of files, read in pieces."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

_PIECE = 1 << 22


def hash_file(path: str | Path, names: Sequence[str] = ("sha256",)) -> dict[str, str]:
    """Return the digests of a file in hexadecimal, by the name of the algorithm. Raises OSError."""
    states = {name: hashlib.new(name, usedforsecurity=False) for name in names}
    with open(path, "rb", buffering=0) as file:  # noqa: PTH123  # thousands of files
        while piece := file.read(_PIECE):
            for state in states.values():
                state.update(piece)
    return {name: state.hexdigest() for name, state in states.items()}


def hash_readable(path: str | Path) -> str | None:
    """Return the sha256 of a file in hexadecimal; None for a file that cannot be read."""
    try:
        return hash_file(path)["sha256"]
    except OSError:
        return None
