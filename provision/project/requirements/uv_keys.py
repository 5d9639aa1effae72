"""[tool.uv] of a project: the keys that decide versions and indexes. Other keys are named once.

The keys have uv's meaning: a constraint bounds what something else requires, an override replaces every requirement
of its name, an explicit index is for sources alone. [tool.uv.sources] says where uv takes a dependency from, so that
no other package of its name is taken."""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from provision.errors import UsageError
from provision.model import FRAMEWORKS, TORCH_COMPANIONS

from ..quoted_text import requirement, shown
from .dependency_groups import requirement_name
from .poetry import address
from .project_folder import Places, table_at
from .requirement import Line
from .requirements_files import Reading

HONOURED = {
    "sources",
    "index",
    "exclude-newer",
    "override-dependencies",
    "constraint-dependencies",
    "package",
}
_DECIDE_NOTHING = {
    "build-backend", "cache-keys", "check-url", "default-groups", "dev-dependencies", "managed", "preview",
    "publish-url", "required-version", "trusted-publishing", "workspace",
}  # fmt: skip


@dataclass(kw_only=True, slots=True)
class UvKeys:
    """The keys as lines. `indexes` maps the name of an index to its address."""

    lines: list[Line] = field(default_factory=list)
    indexes: dict[str, str] = field(default_factory=dict)

    def replaced(self, text: str) -> str | None:
        """Return what overrides a requirement, None where nothing does."""
        name = requirement_name(text)
        found = [line.text for line in self.lines if line.override and requirement_name(line.text) == name]
        return found[0] if found else None


def read_keys(reading: Reading, folder: Path, data: dict[str, Any], places: Places) -> UvKeys:
    """Read the honoured keys; what they say of indexes and dates goes into `reading`. Raises UsageError."""
    table = table_at(data, "tool", "uv")
    keys = UvKeys()
    for key in ("constraint-dependencies", "override-dependencies"):
        override = key.startswith("override")
        for text in _texts(table, key, places):
            origin = places.quoted(text, "tool.uv", f"tool.uv.{key}")
            keys.lines.append(
                Line(text=text, origin=origin, folders=(folder,), constraint=True, override=override)
            )
    reading.exclude_newer = _date(table.get("exclude-newer"), places)
    _read_indexes(reading, folder, table, keys, places)
    if others := sorted(shown(key) for key in table if key not in HONOURED | _DECIDE_NOTHING):
        reading.notes.append(f"[tool.uv] of {places.name}: {', '.join(others)} not followed")
    return keys


def _read_indexes(
    reading: Reading, folder: Path, table: dict[str, Any], keys: UvKeys, places: Places
) -> None:
    rows = table.get("index", [])
    if not isinstance(rows, list):
        raise _wrong(places, "index", "a list of tables")
    for row in rows:
        if not isinstance(row, dict) or not isinstance(row.get("url"), str):
            raise _wrong(places, "index", "a url in each")
        written = reading.expanded(row["url"], places.key("index", "tool.uv"))
        url = written if "://" in written else (folder / written).resolve().as_uri()
        if row.get("format") == "flat":
            reading.find_links.append(url if "://" in written else str((folder / written).resolve()))
            continue
        if isinstance(row.get("name"), str):
            keys.indexes.setdefault(row["name"], url)
        if row.get("explicit") is True:
            continue
        if row.get("default") is True:
            reading.index_url = reading.index_url or url
        else:
            reading.extra_index_urls.append(url)


def _date(value: Any, places: Places) -> str | None:
    """Return a date or duration in uv's form. Raises UsageError."""
    if isinstance(value, dt.date):
        return value.isoformat()
    if value is None or (isinstance(value, str) and value.strip()):
        return value
    raise _wrong(places, "exclude-newer", "a date or a duration")


def _texts(table: dict[str, Any], key: str, places: Places) -> list[str]:
    value = table.get(key, [])
    if not isinstance(value, list) or not all(isinstance(v, str) and requirement_name(v) for v in value):
        raise _wrong(places, key, "a list of requirements")
    return value


def _wrong(places: Places, key: str, expected: str) -> UsageError:
    return UsageError(
        f"{places.key(key, 'tool.uv')}: [tool.uv] {key}: expected {expected}",
        hint="see uv's reference of settings",
    )


_OF_THE_PLAN = (*FRAMEWORKS, *TORCH_COMPANIONS)
"""The distributions of which the plan picks build and index."""


def placed(line: Line, sources: Mapping[str, Any], indexes: Mapping[str, str], notes: list[str]) -> Line:
    """Return a dependency with the commit, folder, address or index that the sources name for it. The index of a
    framework is left to the plan; a workspace and sources with markers are not followed. Both are noted."""
    from packaging.utils import canonicalize_name

    try:
        need = requirement(line.text) if sources else None
    except ValueError:
        return line  # whoever parses it says so
    found = {canonicalize_name(name): value for name, value in sources.items()}
    source = found.get(canonicalize_name(need.name)) if need else None
    if need is None or source is None or need.url:
        return line
    if index := _index(need.name, source, indexes):
        return dataclasses.replace(line, index=index)
    place = address(source) if isinstance(source, dict) and not source.get("marker") else None
    if place is None:
        by_plan = canonicalize_name(need.name) in _OF_THE_PLAN
        said = ": the plan chooses its index" if by_plan else " is not followed"
        notes.append(f"tool.uv.sources of {shown(need.name)} ({line.origin}){said}")
        return line
    extras = f"[{','.join(sorted(need.extras))}]" if need.extras else ""
    marker = f" ; {need.marker}" if need.marker else ""
    editable = source.get("editable") is True and "path" in source
    return dataclasses.replace(line, text=f"{need.name}{extras} @ {place}{marker}", editable=editable)


def _index(name: str, source: Any, indexes: Mapping[str, str]) -> str | None:
    """Return the address of the index that a source names."""
    from packaging.utils import canonicalize_name

    if not isinstance(source, dict) or source.get("marker") or canonicalize_name(name) in _OF_THE_PLAN:
        return None
    return indexes.get(str(source.get("index")))
