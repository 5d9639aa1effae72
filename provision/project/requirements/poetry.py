"""[tool.poetry.dependencies] as PEP 508: carets, tildes, tables, several constraints of one name."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from provision.errors import UsageError

from ..quoted_text import shown
from .project_folder import Places

_LONGEST = 1_000


@dataclass(kw_only=True, slots=True)
class Found:
    """Requirements as (text, origin, whether optional), and what stands for Python."""

    listed: list[tuple[str, str, bool]] = field(default_factory=list)
    requires_python: str = ""
    python_origin: str | None = None


def dependencies(table: Any, places: Places, section: str) -> Found:
    """The requirements of one of poetry's tables. Raises UsageError naming file and line."""
    found = Found()
    for name, value in (table if isinstance(table, dict) else {}).items():
        origin = places.key(name, section)
        if name.lower() == "python":
            if isinstance(value, str):
                found.requires_python = _union(value, origin) or ""
                found.python_origin = origin
            continue
        for one in value if isinstance(value, list) else [value]:
            optional = isinstance(one, dict) and one.get("optional") is True
            found.listed.append((_text(name, one, origin), origin, optional))
    return found


def _text(name: str, value: Any, origin: str) -> str:
    if isinstance(value, str):
        return name + (_union(value, origin) or "")
    if not isinstance(value, dict):
        raise UsageError(
            f"{origin}: expected a version or a table", hint="see poetry's dependency specification"
        )
    extras = value.get("extras")
    full = f"{name}[{','.join(map(str, extras))}]" if isinstance(extras, list) and extras else name
    if place := address(value):
        body = f"{full} @ {place}"
    else:
        version = value.get("version", "*")
        body = full + (_union(version, origin) or "" if isinstance(version, str) else "")
    markers = [f"({value['markers']})"] if isinstance(value.get("markers"), str) else []
    if isinstance(python := value.get("python"), str):
        markers += [f"python_version {c}" for c in _clauses_of_python(python, origin)]
    if isinstance(platform := value.get("platform"), str):
        markers.append(f"sys_platform == '{platform}'")
    return f"{body} ; {' and '.join(markers)}" if markers else body


def address(value: dict[str, Any]) -> str | None:
    """Where git, path or url (of poetry, and of uv) say that a package is; None where none does."""
    if isinstance(git := value.get("git"), str):
        if found := re.fullmatch(r"([\w.-]+@[\w.-]+):(?!//)(.+)", git):
            git = f"ssh://{found[1]}/{found[2]}"
        revision = next((str(value[k]) for k in ("rev", "tag", "branch") if k in value), "")
        subdirectory = f"#subdirectory={value['subdirectory']}" if "subdirectory" in value else ""
        return f"git+{git}" + (f"@{revision}" if revision else "") + subdirectory
    for key in ("url", "path"):
        if isinstance(place := value.get(key), str):
            return place
    return None


def _union(text: str, origin: str) -> str | None:
    """A constraint of poetry's in PEP 440; None for any version. Of alternatives (||) the span from the
    first to the last is taken, since PEP 440 has no "or": the solver may pick what lies between."""
    if len(text) > _LONGEST:
        raise UsageError(f"{origin}: a constraint of {len(text)} characters", hint="write fewer bounds")
    parts = [_conjunction(part, origin) for part in text.split("||")]
    if len(parts) == 1:
        return ",".join(parts[0]) or None
    lower = [next((c for c in part if c.startswith((">", "=="))), None) for part in parts]
    if None in lower:
        return None
    return ">=" + min((re.sub(r"^[>=]+", "", str(c)).removesuffix(".*") for c in lower), key=_numbers)


def _clauses_of_python(text: str, origin: str) -> list[str]:
    """A Python constraint as comparisons of python_version, which has two parts."""
    found = []
    for clause in filter(None, (_union(text, origin) or "").split(",")):
        operator, version = re.fullmatch(r"([<>=!~]+)(.*)", clause).groups()  # type: ignore[union-attr]  # a clause of ours
        found.append(f'{operator} "{version}"')
    return found


def _conjunction(text: str, origin: str) -> list[str]:
    found: list[str] = []
    for clause in re.split(r"(?<!\s)\s*,\s*|(?<=[\w*])\s+(?=[<>=!~^])", text.strip()):
        found += _clause(clause.strip(), origin)
    return found


def _clause(clause: str, origin: str) -> list[str]:
    if clause in ("", "*"):
        return []
    match = re.fullmatch(r"(\^|~=|~|===|==|>=|<=|!=|>|<|=)?\s*v?(\d[\w.+!-]*(?:\.\*)?|\d+)", clause)
    if not match:
        raise UsageError(
            f"{origin}: {shown(clause)!r} is no version constraint",
            hint="see poetry's dependency specification",
        )
    operator, version = match[1] or "==", match[2]
    if operator == "^":
        return [f">={version}", f"<{_next_breaking(version)}"]
    if operator == "~":
        return [f">={version}", f"<{_next_of(version, min(len(_numbers(version)), 2))}"]
    return [f"{'==' if operator == '=' else operator}{version}"]


def _numbers(version: str) -> list[int]:
    found = re.match(r"\d{1,18}(\.\d{1,18})*", version)
    return [int(n) for n in found[0].split(".")] if found else [0]


def _next_of(version: str, parts: int) -> str:
    numbers = _numbers(version)[:parts]
    return ".".join(map(str, [*numbers[:-1], numbers[-1] + 1]))


def _next_breaking(version: str) -> str:
    """The next version that a caret leaves out: the first number that is not 0 goes up."""
    numbers = _numbers(version)
    first = next((i for i, n in enumerate(numbers) if n), len(numbers) - 1)
    return _next_of(version, first + 1)
