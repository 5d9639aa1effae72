"""Extras and dependency groups of a project, with the ones that they include."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from provision.errors import UsageError
from provision.model import normalize_name

from ..quote_for_messages_and_parse_requirement import parse_requirement, quote_text
from . import poetry
from .read_project_toml_and_setup_files import TomlLocations, table_at

Listed = list[tuple[str, str]]  # requirements as (text, origin)
_MOST_DEEP = 40


def leading_name(text: str) -> str:
    """Return the normalized name at the start of a requirement, or an empty text."""
    match = re.match(r"[A-Za-z0-9._-]+", text)
    return normalize_name(match[0]) if match else ""


def collect_extras(project: str | None, extras: Mapping[str, Listed], wanted: Sequence[str]) -> Listed:
    """Return the requirements of extras, and of the extras that those include. Raises UsageError."""
    known = {normalize_name(extra): listed for extra, listed in extras.items()}
    requirements: Listed = []
    todo, done = [normalize_name(extra) for extra in wanted], set[str]()
    while todo:
        extra = todo.pop(0)
        if extra in done:
            continue
        done.add(extra)
        if extra not in known:
            raise UsageError(
                f"the project has no extra {quote_text(extra)!r}", hint=_list_choices(known, "extras")
            )
        for text, origin in known[extra]:
            if project and leading_name(text) == normalize_name(project):
                todo += _list_own_extras(text)
            else:
                requirements.append((text, origin))
    return requirements


def _list_own_extras(text: str) -> list[str]:
    try:
        return sorted(normalize_name(extra) for extra in parse_requirement(text).extras)
    except ValueError:
        return []


def _list_choices(known: Mapping[str, Any], what: str) -> str:
    return f"choose from: {', '.join(sorted(known))}" if known else f"the project defines no {what}"


def collect_groups(data: dict[str, Any], places: TomlLocations, wanted: Sequence[str]) -> Listed:
    """Return the requirements of dependency groups (PEP 735) and of Poetry groups. Raises UsageError."""
    requirements: Listed = []
    done: set[str] = set()
    for name in wanted:
        _add_group(data, places, normalize_name(name), (), done, requirements)
    return requirements


# Six parameters and 41 lines: the state of one recursion, and one error for each way in which a group can be invalid.
def _add_group(
    data: dict[str, Any],
    places: TomlLocations,
    key: str,
    within: tuple[str, ...],
    done: set[str],
    requirements: Listed,
) -> None:
    """Add the requirements of a group and of the groups that it includes, each group once."""
    if key in within:
        raise UsageError(
            f"{places.name}: dependency groups include each other: {' -> '.join((*within, key))}",
            hint="remove one include-group",
        )
    if len(within) > _MOST_DEEP:
        raise UsageError(
            f"{places.name}: dependency groups include each other more than {_MOST_DEEP} deep",
            hint="include fewer groups",
        )
    if key in done:
        return
    done.add(key)
    groups = {
        normalize_name(name): (name, value) for name, value in table_at(data, "dependency-groups").items()
    }
    if key not in groups:
        requirements += _read_poetry_group(data, places, key, groups)
        return
    name, value = groups[key]
    where = f"dependency-groups.{name}"
    if not isinstance(value, list):
        raise UsageError(f"{places.name} [{where}]: expected a list", hint="see PEP 735")
    for entry in value:
        if isinstance(entry, str):
            requirements.append((entry, places.locate_value(entry, "dependency-groups", where)))
        elif isinstance(entry, dict) and list(entry) == ["include-group"]:
            _add_group(
                data, places, normalize_name(str(entry["include-group"])), (*within, key), done, requirements
            )
        else:
            raise UsageError(
                f"{places.name} [{where}]: {quote_text(str(entry))} is neither a requirement nor an include-group",
                hint="see PEP 735",
            )


def _read_poetry_group(
    data: dict[str, Any], places: TomlLocations, key: str, others: Mapping[str, Any]
) -> Listed:
    """Return the requirements of a Poetry group. The old table "dev-dependencies" is the group "dev"."""
    table = table_at(data, "tool", "poetry")
    groups = {normalize_name(name): name for name in table_at(table, "group")}
    if key in groups:
        of_group = table_at(table, "group", groups[key]).get("dependencies")
        dependencies = poetry.read_dependencies(
            of_group, places, f"tool.poetry.group.{groups[key]}.dependencies"
        )
    elif key == "dev" and "dev-dependencies" in table:
        dependencies = poetry.read_dependencies(
            table["dev-dependencies"], places, "tool.poetry.dev-dependencies"
        )
    else:
        raise UsageError(
            f"the project has no dependency group {quote_text(key)!r}",
            hint=_list_choices({**others, **groups}, "groups"),
        )
    return [(text, origin) for text, origin, _ in dependencies.listed]
