"""Read the requirements of a Poetry project."""

from __future__ import annotations

import re
from typing import Any

from ..errors import UsageError
from ..system.toml import Table
from .quote import quote_text
from .toml import TomlFile

_LONGEST = 1_000


def read_dependencies(file: TomlFile, *keys: str) -> list[tuple[str, str, bool]]:
    """Return the requirements of the dependency table at a path of keys, each with its origin and whether it is optional.

    The bounds on Python are left out. Raises UsageError with file and line.
    """
    return [
        (_write_requirement(name, one, origin), origin, isinstance(one, dict) and one.get("optional") is True)
        for name, value in file.at(*keys).items()
        if name.lower() != "python" and (origin := file.locate_key(name, ".".join(keys)))
        for one in (value if isinstance(value, list) else [value])
    ]


def read_python(file: TomlFile, *keys: str) -> tuple[str, str | None]:
    """Return the bounds on Python of a dependency table, and their origin. Raises UsageError."""
    for name, value in file.at(*keys).items():
        if name.lower() == "python" and isinstance(value, str):
            origin = file.locate_key(name, ".".join(keys))
            return _convert_constraint(value, origin) or "", origin
    return "", None


def _write_requirement(name: str, value: Any, origin: str) -> str:
    if isinstance(value, str):
        return name + (_convert_constraint(value, origin) or "")
    if not isinstance(value, dict):
        raise UsageError(
            f"{origin}: expected a version or a table", hint="see Poetry's dependency specification"
        )
    extras = value.get("extras")
    full = f"{name}[{','.join(map(str, extras))}]" if isinstance(extras, list) and extras else name
    if place := find_address(value):
        body = f"{full} @ {place}"
    else:
        version = value.get("version", "*")
        body = full + (_convert_constraint(version, origin) or "" if isinstance(version, str) else "")
    markers = [f"({value['markers']})"] if isinstance(value.get("markers"), str) else []
    if isinstance(python := value.get("python"), str):
        markers += [f"python_version {c}" for c in _compare_python(python, origin)]
    if isinstance(platform := value.get("platform"), str):
        markers.append(f"sys_platform == '{platform}'")
    return f"{body} ; {' and '.join(markers)}" if markers else body


def find_address(value: Table) -> str | None:
    """Return the address that git, path or url states, in a table of Poetry or uv. None without these keys."""
    if isinstance(git := value.get("git"), str):
        if match := re.fullmatch(r"([\w.-]+@[\w.-]+):(?!//)(.+)", git):
            git = f"ssh://{match[1]}/{match[2]}"
        revision = next((str(value[k]) for k in ("rev", "tag", "branch") if k in value), "")
        subdirectory = f"#subdirectory={value['subdirectory']}" if "subdirectory" in value else ""
        return f"git+{git}" + (f"@{revision}" if revision else "") + subdirectory
    for key in ("url", "path"):
        if isinstance(place := value.get(key), str):
            return place
    return None


def _convert_constraint(text: str, origin: str) -> str | None:
    """Return a Poetry constraint as PEP 440, or None for any version. Raises UsageError.

    PEP 440 has no "or". For alternatives (||) the result spans from the first to the last, and the solver may choose
    a version between them.
    """
    if len(text) > _LONGEST:
        raise UsageError(
            f"{origin}: the constraint is too long ({len(text)} characters)", hint="write fewer bounds"
        )
    parts = [_convert_clauses(part, origin) for part in text.split("||")]
    if len(parts) == 1:
        return ",".join(parts[0]) or None
    lower = [next((c for c in part if c.startswith((">", "=="))), None) for part in parts]
    if None in lower:
        return None
    return ">=" + min((re.sub(r"^[>=]+", "", str(c)).removesuffix(".*") for c in lower), key=_parse_numbers)


def _compare_python(text: str, origin: str) -> list[str]:
    """Return a constraint on Python as comparisons with python_version, which has two parts."""
    bounds = []
    for clause in filter(None, (_convert_constraint(text, origin) or "").split(",")):
        operator, version = re.fullmatch(r"([<>=!~]+)(.*)", clause).groups()  # type: ignore[union-attr]  # _union wrote it
        bounds.append(f'{operator} "{version}"')
    return bounds


def _convert_clauses(text: str, origin: str) -> list[str]:
    bounds: list[str] = []
    for clause in re.split(r"(?<!\s)\s*,\s*|(?<=[\w*])\s+(?=[<>=!~^])", text.strip()):
        bounds += _convert_clause(clause.strip(), origin)
    return bounds


def _convert_clause(clause: str, origin: str) -> list[str]:
    if clause in ("", "*"):
        return []
    match = re.fullmatch(r"(\^|~=|~|===|==|>=|<=|!=|>|<|=)?\s*v?(\d[\w.+!-]*(?:\.\*)?|\d+)", clause)
    if not match:
        raise UsageError(
            f"{origin}: {quote_text(clause)!r} is not a version constraint",
            hint="see Poetry's dependency specification",
        )
    operator, version = match[1] or "==", match[2]
    if operator == "^":
        return [f">={version}", f"<{_find_next_breaking(version)}"]
    if operator == "~":
        return [f">={version}", f"<{_increase(version, min(len(_parse_numbers(version)), 2))}"]
    return [f"{'==' if operator == '=' else operator}{version}"]


def _parse_numbers(version: str) -> list[int]:
    match = re.match(r"\d{1,18}(\.\d{1,18})*", version)
    return [int(n) for n in match[0].split(".")] if match else [0]


def _increase(version: str, parts: int) -> str:
    numbers = _parse_numbers(version)[:parts]
    return ".".join(map(str, [*numbers[:-1], numbers[-1] + 1]))


def _find_next_breaking(version: str) -> str:
    """Return the next version outside of a caret: increase the first number that is not 0."""
    numbers = _parse_numbers(version)
    first = next((i for i, n in enumerate(numbers) if n), len(numbers) - 1)
    return _increase(version, first + 1)
