"""Extras and dependency groups of a project, also those that they include."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from provision.errors import UsageError

from ..quoted_text import requirement, shown
from . import poetry
from .project_folder import Places, table_at

Listed = list[tuple[str, str]]  # requirements as (text, origin)
_MOST_DEEP = 40


def folded(name: object) -> str:
    """A name as names of distributions, extras and groups are compared."""
    from packaging.utils import canonicalize_name

    return canonicalize_name(str(name))


def requirement_name(text: str) -> str:
    """The folded name in front of a requirement."""
    found = re.match(r"[A-Za-z0-9._-]+", text)
    return folded(found[0]) if found else ""


def of_extras(project: str | None, extras: Mapping[str, Listed], wanted: Sequence[str]) -> Listed:
    """The requirements of extras, and of those that they name of their own project. Raises UsageError."""
    known = {folded(extra): listed for extra, listed in extras.items()}
    found: Listed = []
    todo, done = [folded(extra) for extra in wanted], set[str]()
    while todo:
        extra = todo.pop(0)
        if extra in done:
            continue
        done.add(extra)
        if extra not in known:
            raise UsageError(f"the project has no extra {shown(extra)!r}", hint=_those(known, "extras"))
        for text, origin in known[extra]:
            if project and requirement_name(text) == folded(project):
                todo += _own_extras(text)
            else:
                found.append((text, origin))
    return found


def _own_extras(text: str) -> list[str]:
    try:
        return sorted(folded(extra) for extra in requirement(text).extras)
    except ValueError:
        return []


def _those(known: Mapping[str, Any], what: str) -> str:
    return f"its {what}: {', '.join(sorted(known))}" if known else f"it states no {what}"


def of_groups(data: dict[str, Any], places: Places, wanted: Sequence[str]) -> Listed:
    """The requirements of dependency groups (PEP 735) and of poetry's. Raises UsageError."""
    found: Listed = []
    done: set[str] = set()
    for name in wanted:
        _group(data, places, folded(name), (), done, found)
    return found


def _group(
    data: dict[str, Any], places: Places, key: str, within: tuple[str, ...], done: set[str], found: Listed
) -> None:
    """Add a group's requirements, and those of the groups that it includes, each group once."""
    if key in within:
        raise UsageError(
            f"{places.name}: dependency groups include each other: {' -> '.join((*within, key))}",
            hint="take one include-group out",
        )
    if len(within) > _MOST_DEEP:
        raise UsageError(
            f"{places.name}: dependency groups include each other more than {_MOST_DEEP} deep",
            hint="include fewer",
        )
    if key in done:
        return
    done.add(key)
    groups = {folded(name): (name, value) for name, value in table_at(data, "dependency-groups").items()}
    if key not in groups:
        found += _of_poetry(data, places, key, groups)
        return
    name, value = groups[key]
    at = f"dependency-groups.{name}"
    if not isinstance(value, list):
        raise UsageError(f"{places.name} [{at}]: expected a list", hint="see PEP 735")
    for entry in value:
        if isinstance(entry, str):
            found.append((entry, places.quoted(entry, "dependency-groups", at)))
        elif isinstance(entry, dict) and list(entry) == ["include-group"]:
            _group(data, places, folded(entry["include-group"]), (*within, key), done, found)
        else:
            raise UsageError(
                f"{places.name} [{at}]: {shown(str(entry))} is no requirement and no include-group",
                hint="see PEP 735",
            )


def _of_poetry(data: dict[str, Any], places: Places, key: str, others: Mapping[str, Any]) -> Listed:
    """The requirements of a group of poetry's, older ones ("dev-dependencies") among them."""
    table = table_at(data, "tool", "poetry")
    groups = {folded(name): name for name in table_at(table, "group")}
    if key in groups:
        of_group = table_at(table, "group", groups[key]).get("dependencies")
        found = poetry.dependencies(of_group, places, f"tool.poetry.group.{groups[key]}.dependencies")
    elif key == "dev" and "dev-dependencies" in table:
        found = poetry.dependencies(table["dev-dependencies"], places, "tool.poetry.dev-dependencies")
    else:
        raise UsageError(
            f"the project has no dependency group {shown(key)!r}", hint=_those({**others, **groups}, "groups")
        )
    return [(text, origin) for text, origin, _ in found.listed]
