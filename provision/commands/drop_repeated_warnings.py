"""Drop the warnings and notes that a search for a lock repeats, because it solves more than once."""

from __future__ import annotations

from ..model import Emit, Event


def drop_repeated_warnings(emit: Emit) -> Emit:
    """Return a function that emits each warning and each note once, and all other events."""
    said: set[tuple[str, str]] = set()

    def emit_new(event: Event) -> None:
        if event.kind in ("warning", "note"):
            if (event.kind, event.text) in said:
                return
            said.add((event.kind, event.text))
        emit(event)

    return emit_new
