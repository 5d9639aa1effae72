"""What a project of uv asks for beyond its dependencies: CUDA by the index of a framework, frameworks that only
uv.lock names, and the Python. Nothing is run, and no index is asked."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from packaging.markers import InvalidMarker, Marker
from packaging.utils import canonicalize_name

from provision.errors import UsageError
from provision.model import FRAMEWORKS
from provision.system import untrusted_files

from ..quoted_text import shown
from ..requirements.project_folder import table_at, toml

_LABEL = re.compile(r"(?:[/+]|%2B)(?:cu(\d{2,3})|(cpu))(?=$|[-/.\s])", re.IGNORECASE)
"""The build that an address or a version names: "/whl/cu126", "2.7.1+cpu", "torch-2.7.1%2Bcu126-cp312-..."."""
_LINUX = {
    "sys_platform": "linux",
    "platform_system": "Linux",
    "os_name": "posix",
    "platform_machine": "x86_64",
}


@dataclass(kw_only=True, slots=True)
class UvProject:
    """What was found: `frameworks` that only uv.lock names (with where), `cuda` with the framework whose index or
    version names it, `device`, `python`, and remarks."""

    frameworks: dict[str, str] = field(default_factory=dict)
    cuda: str | None = None
    cuda_origin: str = ""
    device: str | None = None
    python: str | None = None
    remarks: list[str] = field(default_factory=list)


def read_uv(folder: Path, named: set[str]) -> UvProject:
    """Read [tool.uv.sources] and uv.lock of a folder. `named` are the frameworks that its files name. A file that is
    not TOML is a remark."""
    found = UvProject()
    try:
        _read(folder, named, found)
    except UsageError as error:
        found.remarks.append(error.message)
    return found


def _read(folder: Path, named: set[str], found: UvProject) -> None:
    data = (
        toml(folder / "pyproject.toml", "pyproject.toml")[0] if (folder / "pyproject.toml").is_file() else {}
    )
    locked = toml(folder / "uv.lock", "uv.lock")[0] if (folder / "uv.lock").is_file() else {}
    if not locked and not table_at(data, "tool", "uv"):
        return
    labels = dict(_of_sources(data, found))
    if rows := _rows(locked):
        _add_locked(found, rows, named, labels)
    _choose(found, labels)
    found.python = _python(folder)


def _of_sources(data: dict[str, Any], found: UvProject) -> Iterator[tuple[str, str]]:
    """Each framework with the label of the build that its source names."""
    indexes = table_at(data, "tool", "uv").get("index", [])
    addresses = {
        row["name"]: row["url"]
        for row in (indexes if isinstance(indexes, list) else [])
        if isinstance(row, dict) and isinstance(row.get("name"), str) and isinstance(row.get("url"), str)
    }
    for name, value in table_at(data, "tool", "uv", "sources").items():
        framework = canonicalize_name(name)
        if framework not in FRAMEWORKS:
            continue
        rows = [row for row in (value if isinstance(value, list) else [value]) if isinstance(row, dict)]
        rows = [row for row in rows if _holds_on_linux(row.get("marker"))]
        if any("extra" in row or "group" in row for row in rows):
            found.remarks.append(
                f"[tool.uv.sources] chooses {framework} by extra or group: set cuda for one of them"
            )
            continue
        for row in rows[:1]:
            if label := _label(str(addresses.get(str(row.get("index")), row.get("url") or ""))):
                yield framework, label


def _holds_on_linux(marker: Any) -> bool:
    """Whether a marker may hold there: what cannot be evaluated may."""
    if not isinstance(marker, str):
        return True
    try:
        return Marker(marker).evaluate(_LINUX)
    except (InvalidMarker, ValueError):
        return True


def _label(text: str) -> str | None:
    """The build in an address or a version: "cu126", "cpu"."""
    match = _LABEL.search(text)
    return None if match is None else f"cu{match[1]}" if match[1] else "cpu"


def _rows(locked: dict[str, Any]) -> list[dict[str, Any]]:
    rows = locked.get("package", [])
    return (
        [r for r in rows if isinstance(r, dict) and isinstance(r.get("name"), str)]
        if isinstance(rows, list)
        else []
    )


def _add_locked(
    found: UvProject, rows: list[dict[str, Any]], named: set[str], labels: dict[str, str]
) -> None:
    """Add the frameworks that the project's dependencies bring, and what uv.lock says of their builds."""
    brought = _closure(rows)
    for framework in FRAMEWORKS:
        mine = [r for r in rows if canonicalize_name(r["name"]) == framework]
        if not mine or framework not in {*brought, *named}:
            continue
        if framework not in named:
            found.frameworks[framework] = f"uv.lock, required by {shown(brought[framework])}"
        of_builds = {
            _label(f"{r.get('version', '')} {table_at(r, 'source').get('registry', '')}") for r in mine
        }
        if framework not in labels and len(of_builds) == 1 and (label := of_builds.pop()):
            labels[framework] = label
        versions = sorted({str(r.get("version", "")).partition("+")[0] for r in mine} - {""})
        if len(versions) == 1:
            version = shown(versions[0])
            found.remarks.append(
                f"uv.lock has {framework} {version}; to stay with it: {framework}=={version}"
            )


def _closure(rows: list[dict[str, Any]]) -> dict[str, str]:
    """The packages that the project requires without its extras and groups, each with one that requires it."""
    by_name: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        by_name.setdefault(canonicalize_name(row["name"]), []).append(row)
    roots = [
        n
        for n, mine in by_name.items()
        for r in mine
        if {"virtual", "editable"} & table_at(r, "source").keys()
    ]
    reached: dict[str, str] = {}
    waiting: list[tuple[str, tuple[str, ...]]] = [(name, ()) for name in roots]
    done: set[tuple[str, tuple[str, ...]]] = set()
    while waiting:
        name, extras = waiting.pop()
        if (name, extras) in done:
            continue
        done.add((name, extras))
        for row in by_name.get(name, ()):
            for need in _needs(row, extras):
                other = canonicalize_name(need["name"])
                reached.setdefault(other, name)
                chosen = need.get("extra", [])
                waiting.append(
                    (
                        other,
                        tuple(e for e in chosen if isinstance(e, str)) if isinstance(chosen, list) else (),
                    )
                )
    return reached


def _needs(row: dict[str, Any], extras: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    lists = [
        row.get("dependencies", []),
        *(table_at(row, "optional-dependencies").get(e, []) for e in extras),
    ]
    for rows in lists:
        for need in rows if isinstance(rows, list) else []:
            if (
                isinstance(need, dict)
                and isinstance(need.get("name"), str)
                and _holds_on_linux(need.get("marker"))
            ):
                yield need


def _choose(found: UvProject, labels: dict[str, str]) -> None:
    """One CUDA for the project, or the CPU, where all frameworks are named for the same."""
    if len(set(labels.values())) > 1:
        told = ", ".join(f"{framework} for {label}" for framework, label in labels.items())
        found.remarks.append(f"uv takes {told}: an environment has one CUDA")
        return
    for label in set(labels.values()):
        if label == "cpu":
            found.device = "cpu"
        else:
            found.cuda = f"{label[2:-1]}.{label[-1]}"
            found.cuda_origin = f"uv takes {next(iter(labels))} for {label}"


def _python(folder: Path) -> str | None:
    """The minor version that .python-version names."""
    try:
        text = untrusted_files.read_bytes(folder / ".python-version", most=200).decode().strip()
    except (OSError, UnicodeDecodeError):
        return None
    match = re.fullmatch(r"(?:cpython@)?(3\.\d{1,2})(?:\.\d+)?", text)
    return match[1] if match else None
