"""An export for people: the text itself where it was not written to a file."""

from __future__ import annotations

from ..model import Exported
from .screen import Screen, clean


def show_export(screen: Screen, value: Exported) -> None:
    """The text as it is, or the file's path."""
    if value.path is None:
        screen.out.write(clean(value.text))
        screen.out.flush()
    else:
        screen.line(clean(f"{value.path}: written ({value.format})"))
