"""The keys of a project's [tool.uv] that decide versions and indexes.

They have uv's meaning. A constraint bounds what another package requires. An override replaces every requirement of
its name. An explicit index serves only the sources that name it. [tool.uv.sources] names the place of a dependency.
All other keys are listed in one note.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from provision.errors import UsageError
from provision.model import PROJECT_FRAMEWORKS, TORCH_COMPANIONS, normalize_name

from ..quote_for_messages_and_parse_requirement import parse_requirement, quote_text
from ..tree import refuse_outside
from .dependency_groups import leading_name
from .poetry import find_address
from .read_project_toml_and_setup_files import TomlLocations, table_at
from .requirement import SourceLine
from .requirements_files import ReadingState

SUPPORTED_KEYS = {
    "sources",
    "index",
    "exclude-newer",
    "override-dependencies",
    "constraint-dependencies",
    "package",
}
_IRRELEVANT_KEYS = {
    "build-backend", "cache-keys", "check-url", "default-groups", "dev-dependencies", "managed", "preview",
    "publish-url", "required-version", "trusted-publishing", "workspace",
}  # fmt: skip


@dataclass(kw_only=True, slots=True)
class UvKeys:
    """The keys as lines. `indexes` maps the name of an index to its address."""

    lines: list[SourceLine] = field(default_factory=list)
    indexes: dict[str, str] = field(default_factory=dict)

    def find_override(self, text: str) -> str | None:
        """Return the override of a requirement, or None."""
        name = leading_name(text)
        overrides = [line.text for line in self.lines if line.override and leading_name(line.text) == name]
        return overrides[0] if overrides else None


def read_keys(reading: ReadingState, folder: Path, data: dict[str, Any], places: TomlLocations) -> UvKeys:
    """Read the supported keys, and record indexes and dates in `reading`. Raises UsageError."""
    table = table_at(data, "tool", "uv")
    keys = UvKeys()
    for key in ("constraint-dependencies", "override-dependencies"):
        override = key.startswith("override")
        for text in _read_requirements(table, key, places):
            origin = places.locate_value(text, "tool.uv", f"tool.uv.{key}")
            keys.lines.append(
                SourceLine(
                    text=text,
                    origin=origin,
                    folders=(folder,),
                    roots=reading.roots,
                    constraint=True,
                    override=override,
                )
            )
    reading.exclude_newer = _read_date(table.get("exclude-newer"), places)
    _read_indexes(reading, folder, table, keys, places)
    if others := sorted(quote_text(key) for key in table if key not in SUPPORTED_KEYS | _IRRELEVANT_KEYS):
        reading.notes.append(f"[tool.uv] of {places.name}: {', '.join(others)} ignored")
    return keys


def _read_indexes(
    reading: ReadingState, folder: Path, table: dict[str, Any], keys: UvKeys, places: TomlLocations
) -> None:
    rows = table.get("index", [])
    if not isinstance(rows, list):
        raise _describe_mistake(places, "index", "a list of tables")
    for row in rows:
        if not isinstance(row, dict) or not isinstance(row.get("url"), str):
            raise _describe_mistake(places, "index", "a url in each")
        origin = places.locate_value(row["url"], "tool.uv.index", "tool.uv.index")
        url = reading.expand(row["url"], origin)
        path: Path | None = None
        if "://" not in url or url.startswith("file:"):
            path = (folder / unquote(url.removeprefix("file://"))).resolve()
            refuse_outside(path, reading.roots, origin, "name it on the command line with --find-links")
            url = path.as_uri()
        if row.get("format") == "flat":
            reading.find_links.append(str(path or url))
            continue
        if isinstance(row.get("name"), str):
            keys.indexes.setdefault(row["name"], url)
        if row.get("explicit") is True:
            continue
        if row.get("default") is True:
            reading.index_url = reading.index_url or url
        else:
            reading.extra_index_urls.append(url)


def _read_date(value: Any, places: TomlLocations) -> str | None:
    """Return a date or duration in uv's form. Raises UsageError."""
    if isinstance(value, dt.date):
        return value.isoformat()
    if value is None or (isinstance(value, str) and value.strip()):
        return value
    raise _describe_mistake(places, "exclude-newer", "a date or a duration")


def _read_requirements(table: dict[str, Any], key: str, places: TomlLocations) -> list[str]:
    value = table.get(key, [])
    if not isinstance(value, list) or not all(isinstance(v, str) and leading_name(v) for v in value):
        raise _describe_mistake(places, key, "a list of requirements")
    return value


def _describe_mistake(places: TomlLocations, key: str, expected: str) -> UsageError:
    return UsageError(
        f"{places.locate_key(key, 'tool.uv')}: [tool.uv] {key}: expected {expected}",
        hint="see the settings reference of uv",
    )


_PLANNED = (*PROJECT_FRAMEWORKS, *TORCH_COMPANIONS)
"""The packages whose build and index the plan chooses."""


def apply_source(
    line: SourceLine, sources: Mapping[str, Any], indexes: Mapping[str, str], notes: list[str]
) -> SourceLine:
    """Return a dependency with the commit, folder, address or index that the sources name for it.

    The plan chooses the index of a framework. A workspace and a source with a marker are ignored with a note.
    """
    try:
        need = parse_requirement(line.text) if sources else None
    except ValueError:
        return line  # the parser reports it
    by_name = {normalize_name(name): value for name, value in sources.items()}
    source = by_name.get(normalize_name(need.name)) if need else None
    if need is None or source is None or need.url:
        return line
    if index := _find_index(need.name, source, indexes):
        return dataclasses.replace(line, index=index)
    place = find_address(source) if isinstance(source, dict) and not source.get("marker") else None
    if place is None:
        is_planned = normalize_name(need.name) in _PLANNED
        reason = ": gpuenv selects the index of this package" if is_planned else " is ignored"
        notes.append(f"tool.uv.sources of {quote_text(need.name)} ({line.origin}){reason}")
        return line
    extras = f"[{','.join(sorted(need.extras))}]" if need.extras else ""
    marker = f" ; {need.marker}" if need.marker else ""
    editable = source.get("editable") is True and "path" in source
    return dataclasses.replace(line, text=f"{need.name}{extras} @ {place}{marker}", editable=editable)


def _find_index(name: str, source: Any, indexes: Mapping[str, str]) -> str | None:
    """Return the address of the index that a source names, or None."""
    if not isinstance(source, dict) or source.get("marker") or normalize_name(name) in _PLANNED:
        return None
    return indexes.get(str(source.get("index")))
