"""Read CUDA, frameworks and Python of a uv project from its sources and uv.lock."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from packaging.markers import InvalidMarker, Marker
from packaging.utils import canonicalize_name

from provision.errors import UsageError
from provision.model import PROJECT_FRAMEWORKS
from provision.system import trust

from ..quote_for_messages_and_parse_requirement import quote_text
from ..requirements.read_project_toml_and_setup_files import read_toml, table_at

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
    """The findings in a uv project.

    `frameworks` maps a framework that only uv.lock names to its origin. `cuda_origin` names the framework whose index or
    version states `cuda`.
    """

    frameworks: dict[str, str] = field(default_factory=dict)
    cuda: str | None = None
    cuda_origin: str = ""
    device: str | None = None
    python: str | None = None
    remarks: list[str] = field(default_factory=list)


def read_uv(folder: Path, named: set[str]) -> UvProject:
    """Read [tool.uv.sources] and uv.lock of a folder. `named` are the frameworks that its files name.

    A file that is not TOML gives a remark.
    """
    project = UvProject()
    try:
        _read(folder, named, project)
    except UsageError as error:
        project.remarks.append(error.message)
    return project


def _read(folder: Path, named: set[str], project: UvProject) -> None:
    data = (
        read_toml(folder / "pyproject.toml", "pyproject.toml")[0]
        if (folder / "pyproject.toml").is_file()
        else {}
    )
    locked = read_toml(folder / "uv.lock", "uv.lock")[0] if (folder / "uv.lock").is_file() else {}
    if not locked and not table_at(data, "tool", "uv"):
        return
    labels = dict(_read_sources(data, project))
    if rows := _list_rows(locked):
        _add_locked(project, rows, named, labels)
    _choose(project, labels)
    project.python = _read_python(folder)


def _read_sources(data: dict[str, Any], project: UvProject) -> Iterator[tuple[str, str]]:
    """Yield each framework with the label of the build that its source names."""
    indexes = table_at(data, "tool", "uv").get("index", [])
    addresses = {
        row["name"]: row["url"]
        for row in (indexes if isinstance(indexes, list) else [])
        if isinstance(row, dict) and isinstance(row.get("name"), str) and isinstance(row.get("url"), str)
    }
    for name, value in table_at(data, "tool", "uv", "sources").items():
        framework = canonicalize_name(name)
        if framework not in PROJECT_FRAMEWORKS:
            continue
        rows = [row for row in (value if isinstance(value, list) else [value]) if isinstance(row, dict)]
        rows = [row for row in rows if _may_apply_on_linux(row.get("marker"))]
        if any("extra" in row or "group" in row for row in rows):
            project.remarks.append(
                f"[tool.uv.sources] chooses {framework} by extra or group: set cuda for one of them"
            )
            continue
        for row in rows[:1]:
            if label := _find_label(str(addresses.get(str(row.get("index")), row.get("url") or ""))):
                yield framework, label


def _may_apply_on_linux(marker: Any) -> bool:
    """Return whether a marker may apply on Linux. An invalid marker may."""
    if not isinstance(marker, str):
        return True
    try:
        return Marker(marker).evaluate(_LINUX)
    except (InvalidMarker, ValueError):
        return True


def _find_label(text: str) -> str | None:
    """Return the build label in an address or a version: "cu126", "cpu"."""
    match = _LABEL.search(text)
    return None if match is None else f"cu{match[1]}" if match[1] else "cpu"


def _list_rows(locked: dict[str, Any]) -> list[dict[str, Any]]:
    rows = locked.get("package", [])
    return (
        [r for r in rows if isinstance(r, dict) and isinstance(r.get("name"), str)]
        if isinstance(rows, list)
        else []
    )


def _add_locked(
    project: UvProject, rows: list[dict[str, Any]], named: set[str], labels: dict[str, str]
) -> None:
    """Add the frameworks among the project's dependencies, and the builds that uv.lock states."""
    brought = _list_required(rows)
    for framework in PROJECT_FRAMEWORKS:
        locked = [r for r in rows if canonicalize_name(r["name"]) == framework]
        if not locked or framework not in {*brought, *named}:
            continue
        if framework not in named:
            project.frameworks[framework] = f"uv.lock, required by {quote_text(brought[framework])}"
        of_builds = {
            _find_label(f"{r.get('version', '')} {table_at(r, 'source').get('registry', '')}") for r in locked
        }
        if framework not in labels and len(of_builds) == 1 and (label := of_builds.pop()):
            labels[framework] = label
        versions = sorted({str(r.get("version", "")).partition("+")[0] for r in locked} - {""})
        if len(versions) == 1:
            version = quote_text(versions[0])
            project.remarks.append(
                f"uv.lock has {framework} {version}; write {framework}=={version} to keep it"
            )


def _list_required(rows: list[dict[str, Any]]) -> dict[str, str]:
    """Return the required packages, each with a package that requires it, without extras and groups."""
    by_name: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        by_name.setdefault(canonicalize_name(row["name"]), []).append(row)
    roots = [
        n
        for n, same_name in by_name.items()
        for r in same_name
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
            for need in _list_needs(row, extras):
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


def _list_needs(row: dict[str, Any], extras: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    lists = [
        row.get("dependencies", []),
        *(table_at(row, "optional-dependencies").get(e, []) for e in extras),
    ]
    for rows in lists:
        for need in rows if isinstance(rows, list) else []:
            if (
                isinstance(need, dict)
                and isinstance(need.get("name"), str)
                and _may_apply_on_linux(need.get("marker"))
            ):
                yield need


def _choose(project: UvProject, labels: dict[str, str]) -> None:
    """Set the CUDA of the project, or the CPU, if all frameworks have the same."""
    if len(set(labels.values())) > 1:
        builds = ", ".join(f"{framework} for {label}" for framework, label in labels.items())
        project.remarks.append(f"uv uses {builds}: an environment has only one CUDA")
        return
    for label in set(labels.values()):
        if label == "cpu":
            project.device = "cpu"
        else:
            project.cuda = f"{label[2:-1]}.{label[-1]}"
            project.cuda_origin = f"uv uses {next(iter(labels))} for {label}"


def _read_python(folder: Path) -> str | None:
    """Return the minor version in .python-version, or None."""
    try:
        text = trust.read_project(folder / ".python-version", 200).decode().strip()
    except (OSError, UnicodeDecodeError):
        return None
    match = re.fullmatch(r"(?:cpython@)?(3\.\d{1,2})(?:\.\d+)?", text)
    return match[1] if match else None
