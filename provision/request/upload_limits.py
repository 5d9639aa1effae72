"""The limit on uploads that applies: that of `--exclude-newer`, else that of the lock that is there."""

from __future__ import annotations

import dataclasses

from ..errors import UsageError
from ..model import ExcludeNewer, Lock, Sources
from .options import Choices

NONE = "false"


def check(c: Choices) -> None:
    """Raise UsageError for a limit that cannot be read or kept."""
    if c.manager == "conda" and (c.exclude_newer or c.exclude_newer_except):
        raise UsageError(
            "--exclude-newer is for wheels; --manager conda cannot keep it",
            hint="leave it out, or use --manager venv",
        )
    asked_for(c)


def asked_for(c: Choices) -> ExcludeNewer | None:
    """The limit that the options ask for, None without one. Raises UsageError."""
    if c.exclude_newer is None or c.exclude_newer == NONE:
        return None
    from .upload_cutoff import exclude_newer

    return exclude_newer(c.exclude_newer, c.exclude_newer_except)


def applying(c: Choices, held: Lock | None, *, renewed: bool = False) -> ExcludeNewer | None:
    """The limit that applies beside a lock that is there: the lock's own is kept. With `renewed` its duration
    counts back from now. Raises UsageError."""
    if c.exclude_newer is not None:
        return asked_for(c)
    kept = held.exclude_newer if held else None
    if kept is None:
        if c.exclude_newer_except:
            raise UsageError(
                "--exclude-newer-except goes with --exclude-newer", hint="add --exclude-newer DATE"
            )
        return None
    from .upload_cutoff import exclude_newer

    places = (*kept.excepted, *c.exclude_newer_except)
    if renewed and kept.span:
        return exclude_newer(kept.span, places)
    return dataclasses.replace(kept, excepted=exclude_newer(kept.cutoff, places).excepted)


def limited(sources: Sources, limit: ExcludeNewer | None) -> Sources:
    """The sources under a limit; without one, that of the project's own files stays."""
    if limit is None:
        return sources
    return dataclasses.replace(sources, exclude_newer=limit.cutoff, exclude_newer_except=limit.excepted)


def still_holds(c: Choices, held: Lock) -> bool:
    """Whether a lock was made with the limit that the options ask for, or they ask for none."""
    if c.exclude_newer is None:
        return True
    asked, kept = asked_for(c), held.exclude_newer
    if asked is None or kept is None:
        return asked is kept
    return asked.span == kept.span if asked.span or kept.span else asked.cutoff == kept.cutoff
