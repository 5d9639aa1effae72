"""Describe the files that were changed in a damaged package, as one EnvironmentChange."""

from __future__ import annotations

import os
from collections.abc import Mapping

from ...model import EnvironmentChange

MAX_PATHS = 8
"""Files that a change names."""
_MAX_NAMED = 3
_WORDS = {
    "missing": ("is missing", "are missing"),
    "size": ("has the wrong size", "have the wrong size"),
    "bytes": ("was changed", "were changed"),
    "bytecode": ("was not compiled from its source", "were not compiled from their sources"),
}
"""What a kind of difference is called, for one file and for several."""


def make_change(name: str, version: str, root: str, files: Mapping[str, str]) -> EnvironmentChange:
    """Return the change of a package with different files. `files` is path -> kind of difference."""
    parts: list[str] = []
    for kind, words in _WORDS.items():
        paths = sorted(os.path.relpath(p, root) for p, k in files.items() if k == kind)
        if paths:
            owner = f" of {name} {version}" if not parts else ""
            noun = "file" if len(paths) == 1 else "files"
            more = f" and {len(paths) - _MAX_NAMED} more" if len(paths) > _MAX_NAMED else ""
            named = f"({', '.join(paths[:_MAX_NAMED])}{more})"
            parts.append(f"{len(paths)} {noun}{owner} {words[len(paths) > 1]} {named}")
    return EnvironmentChange(
        kind="modified", name=name, text="; ".join(parts), locked=version, found=version,
        paths=tuple(sorted(files)[:MAX_PATHS]),
    )  # fmt: skip
