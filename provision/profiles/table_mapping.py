"""How one kind of table of a profile file maps to a class."""

from __future__ import annotations

from typing import Any, NamedTuple


class Kind(NamedTuple):
    """How one kind of table maps to a class: `words` are fields written as one string of words,
    `lists` as a list of strings, `flags` as "yes" or absent; `key` tells rows apart. `into` is the field of
    Profiles; a kind without one is read by scripts/update_profiles.py only, which joins what documents
    say to what it measures."""

    cls: type[Any]
    into: str
    key: tuple[str, ...]
    required: tuple[str, ...]
    words: tuple[str, ...] = ()
    lists: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
