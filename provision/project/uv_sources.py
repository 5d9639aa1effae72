"""[tool.uv.sources]: where uv takes a dependency from, so that no other package of its name is taken."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from .poetry import address
from .words import requirement, shown

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .requirement import Line


def placed(line: Line, sources: Mapping[str, Any], notes: list[str]) -> Line:
    """A dependency with the commit, folder or address that the sources name for it. A choice among
    indexes, a workspace and sources with markers are not followed, and noted."""
    from packaging.utils import canonicalize_name

    try:
        need = requirement(line.text) if sources else None
    except ValueError:
        return line  # whoever parses it says so
    found = {canonicalize_name(name): value for name, value in sources.items()}
    source = found.get(canonicalize_name(need.name)) if need else None
    if need is None or source is None or need.url:
        return line
    place = address(source) if isinstance(source, dict) and not source.get("marker") else None
    if place is None:
        notes.append(f"tool.uv.sources of {shown(need.name)} ({line.origin}) is not followed")
        return line
    extras = f"[{','.join(sorted(need.extras))}]" if need.extras else ""
    marker = f" ; {need.marker}" if need.marker else ""
    editable = source.get("editable") is True and "path" in source
    return dataclasses.replace(line, text=f"{need.name}{extras} @ {place}{marker}", editable=editable)
