"""[tool.uv.sources]: where uv takes a dependency from, so that no other package of its name is taken."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from provision.model import FRAMEWORKS

from ..words import requirement, shown
from .poetry import address

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .requirement import Line

_OF_THE_PLAN = (*FRAMEWORKS, "torchvision", "torchaudio")
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
        notes.append(f"tool.uv.sources of {shown(need.name)} ({line.origin}) is not followed")
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
