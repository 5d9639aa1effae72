"""The mapping of a kind of table in a profile file to a class."""

from __future__ import annotations

from typing import Any, NamedTuple


class Kind(NamedTuple):
    """A kind of table and its class.

    `words` are fields written as one string of words, `lists` as a list of strings, `flags` as "yes" or absent.
    `key` identifies a row. `into` is the field of Profiles. A kind without `into` is read by
    scripts/update_profiles.py only, which adds documented facts to measured ones.
    """

    cls: type[Any]
    into: str
    key: tuple[str, ...]
    required: tuple[str, ...]
    words: tuple[str, ...] = ()
    lists: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
