"""Edit `packages` of `tool.gpuenv` in the text of a pyproject.toml, with tomlkit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class NotEditableError(Exception):
    """The text cannot be edited automatically."""


def edit_table(text: str, old: Sequence[str], new: Sequence[str | None]) -> str:
    """Return the text with the entries changed from `old` to `new`. None in `new` removes an entry.

    Raises NotEditableError.
    """
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    is_crlf = 0 < text.count("\r\n") == text.count("\n")
    try:
        document: Any = tomlkit.parse(text.replace("\r\n", "\n") if is_crlf else text)
        table = document["tool"]["gpuenv"]
        if "packages" not in table:
            table["packages"] = tomlkit.array()
        entries = table["packages"]
        _change(entries, old, new)
        changed = tomlkit.dumps(document)
    except (TOMLKitError, LookupError, TypeError, ValueError, AttributeError) as error:
        raise NotEditableError from error
    return changed.replace("\n", "\r\n") if is_crlf else changed


def _change(entries: Any, old: Sequence[str], new: Sequence[str | None]) -> None:
    for i in reversed(range(len(old))):
        if new[i] is None:
            del entries[i]
        elif new[i] != old[i]:
            entries[i] = new[i]
    for entry in new[len(old) :]:
        entries.append(entry)
