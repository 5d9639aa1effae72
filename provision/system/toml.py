"""The reader of TOML: that of the standard library, or tomli on Python 3.10."""

import re
import sys
from collections.abc import Callable
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["Table", "parse_toml", "table_at", "tomllib"]

Table = dict[str, Any]
"""A table of a TOML document."""

_WORDS = {
    "Illegal character '\\n'": "the closing quote is missing",
    "Unterminated string": "the closing quote is missing",
    'Expected "\'"': "the closing quote is missing",
    "Unclosed array": "a comma or the closing ] is missing",
    "Unclosed inline table": "a comma or the closing } is missing",
    "Invalid value": "the value is missing, has no quotes, or its list does not end",
    "Expected '=' after a key": "expected KEY = VALUE",
    "Cannot overwrite a value": "the key is there twice",
}
"""What the reader's words mean, by how they begin."""
_PLACE = re.compile(r"(.*) \(at (.*)\)", re.DOTALL)


def table_at(data: object, *keys: str) -> Table:
    """Return the table at a path of keys, or an empty table."""
    for key in keys:
        data = data.get(key) if isinstance(data, dict) else None
    return data if isinstance(data, dict) else {}


def parse_toml(text: str, parse_float: Callable[[str], Any] = float) -> dict[str, Any]:
    """Return the table of a document. Raises ValueError: "not TOML: line 2, column 10: the closing quote is missing"."""
    try:
        return tomllib.loads(text, parse_float=parse_float)
    except RecursionError as error:
        raise ValueError("not TOML: the values are nested too deeply") from error
    except tomllib.TOMLDecodeError as error:
        reason, place = match.groups() if (match := _PLACE.fullmatch(str(error))) else (str(error), "")
        plain = next((words for start, words in _WORDS.items() if reason.startswith(start)), reason)
        where = f"{place.replace('end of document', 'at the end of the file')}: " if place else ""
        raise ValueError(f"not TOML: {where}{plain}") from error
