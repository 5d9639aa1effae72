"""Shows what a command would do: paths, sizes and changes of packages."""

from __future__ import annotations

import os
from pathlib import Path

from ..model import PackageChange, Preview, format_bytes
from .terminal_output import Screen

_LISTED = 6
"""More files than these are counted."""


def show_preview(screen: Screen, preview: Preview) -> None:
    """Show one line for each path and package, then the sizes, and that nothing was changed."""
    for package in preview.packages:
        screen.wrapped(_describe_change(package), indent="      ", first="  ")
    for verb, paths in (("write", preview.writes), ("remove", preview.removes)):
        if len(paths) > _LISTED and preview.path:
            screen.line(f"would {verb} {len(paths)} files in {_shorten_path(preview.path)}")
            continue
        for path in paths:
            screen.line(f"would {verb} {_shorten_path(path)}")
    counted = len(preview.writes) > _LISTED
    if preview.path and not counted and preview.path not in (*preview.writes, *preview.removes):
        changed = "would change" if preview.packages else "would not change"
        screen.line(f"{changed} {_shorten_path(preview.path)}")
    if preview.download_bytes:
        free = f"; {format_bytes(preview.free_bytes)} free" if preview.free_bytes is not None else ""
        screen.line(f"would download up to {format_bytes(preview.download_bytes)}{free}")
    if preview.freed_bytes is not None:
        screen.line(f"would free {format_bytes(preview.freed_bytes)}")
    for note in preview.notes:
        screen.wrapped(f"note: {note}", indent="  ", first="")
    screen.line("dry run: nothing was changed")


def _describe_change(package: PackageChange) -> str:
    size = f" ({format_bytes(package.size)})" if package.size else ""
    if package.before is None:
        return f"+ {package.name} {package.after}{size}"
    if package.after is None:
        return f"- {package.name} {package.before}"
    if package.before == package.after:
        return f"~ {package.name} {package.after}, installed again{size}"
    return f"~ {package.name} {package.before} -> {package.after}{size}"


def _shorten_path(path: str) -> str:
    """Return a path relative to the current folder if it is below it."""
    here = str(Path.cwd())
    return os.path.relpath(path, here) if path.startswith(here + os.sep) else path
