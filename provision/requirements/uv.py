"""The keys of uv in pyproject.toml, and projects of uv."""

from __future__ import annotations

import dataclasses
import datetime as dt
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from packaging.markers import InvalidMarker, Marker
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from ..errors import UsageError
from ..model import PROJECT_FRAMEWORKS, TORCH_COMPANIONS, normalize_name, requirement_name
from ..system import trust
from ..system.toml import Table, table_at
from .files import ReadingState
from .folder import FolderFindings
from .lines import SourceLine, may_apply
from .poetry import find_address
from .quote import parse_requirement, quote_text
from .toml import TomlFile, find_project_name, read_pyproject, read_toml
from .tree import find_root, refuse_outside

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
    """The keys as lines. `indexes` maps the name of an index to its address.

    `sources` has what a package's name stands for, `members` the folders of the workspace by normalized name. `pages`
    maps the name of a flat index that only sources use to its place, `used` has the places of those that are used.
    """

    reading: ReadingState
    lines: list[SourceLine] = field(default_factory=list)
    indexes: dict[str, str] = field(default_factory=dict)
    sources: Table = field(default_factory=dict)
    members: dict[str, Path] = field(default_factory=dict)
    pages: dict[str, str] = field(default_factory=dict)
    used: list[str] = field(default_factory=list)

    @property
    def name_planned(self) -> bool:
        """Whether the sources name a package whose index the plan chooses."""
        return any(normalize_name(name) in _PLANNED for name in self.sources)

    def find_override(self, text: str) -> str | None:
        """Return the override of a requirement, or None."""
        name = requirement_name(text)
        overrides = (line.text for line in self.lines if line.override)
        return next((other for other in overrides if requirement_name(other) == name), None)

    def read(self, folder: Path, file: TomlFile) -> None:
        """Read the supported keys, and record indexes and dates in `reading`. Raises UsageError."""
        table, reading = file.at("tool", "uv"), self.reading
        self.members = _find_members(folder, file.data, find_root(folder))
        for key in ("constraint-dependencies", "override-dependencies"):
            texts = table.get(key, [])
            if not isinstance(texts, list) or not all(
                isinstance(text, str) and requirement_name(text) for text in texts
            ):
                raise _describe_mistake(file, key, "a list of requirements")
            self.lines += [
                SourceLine(
                    text=text, origin=file.locate_value(text, "tool.uv", f"tool.uv.{key}"), folders=(folder,),
                    roots=reading.roots, constraint=True, override=key.startswith("override"),
                )
                for text in texts
            ]  # fmt: skip
        reading.exclude_newer = _read_date(table.get("exclude-newer"), file)
        self.read_indexes(folder, file)
        if others := sorted(quote_text(key) for key in table if key not in SUPPORTED_KEYS | _IRRELEVANT_KEYS):
            reading.notes.append(f"[tool.uv] of {file.name}: {', '.join(others)} ignored")

    def of_member(self, folder: Path, file: TomlFile) -> UvKeys:
        """Return the keys of the root of a workspace with the sources of a member, which come first."""
        keys = dataclasses.replace(self, indexes=dict(self.indexes), pages=dict(self.pages))
        keys.read_indexes(folder, file)
        return keys

    def read_indexes(self, folder: Path, file: TomlFile) -> None:
        """Read sources and indexes."""
        table, reading = file.at("tool", "uv"), self.reading
        self.sources = self.sources | table_at(table, "sources")
        rows = table.get("index", [])
        if not isinstance(rows, list):
            raise _describe_mistake(file, "index", "a list of tables")
        for row in rows:
            if not isinstance(row, dict) or not isinstance(row.get("url"), str):
                raise _describe_mistake(file, "index", "a url in each")
            origin = file.locate_value(row["url"], "tool.uv.index", "tool.uv.index")
            url = reading.expand(row["url"], origin)
            page = url
            if "://" not in url or url.startswith("file:"):
                path = (folder / unquote(url.removeprefix("file://"))).resolve()
                refuse_outside(path, reading.roots, origin, "name it on the command line with --find-links")
                page, url = str(path), path.as_uri()
            explicit = row.get("explicit") is True
            if row.get("format") == "flat":
                if explicit:
                    self.pages.setdefault(str(row.get("name")), page)
                else:
                    reading.find_links.append(page)
                continue
            if isinstance(row.get("name"), str):
                self.indexes.setdefault(row["name"], url)
            if not explicit and row.get("default") is True:
                reading.index_url = reading.index_url or url
            elif not explicit:
                reading.extra_index_urls.append(url)

    def apply_source(self, line: SourceLine, notes: list[str]) -> SourceLine:
        """Return a dependency with the commit, folder, address or index that the sources name for it.

        The plan chooses the index of a framework. A source with a marker is ignored with a note.
        """
        try:
            need = parse_requirement(line.text) if self.sources else None
        except ValueError:
            return line  # the parser reports it
        sources = {normalize_name(name): value for name, value in self.sources.items()}
        name = normalize_name(need.name) if need else ""
        if need is None or need.url or name not in sources:
            return line
        source = sources[name] if isinstance(sources[name], dict) else {}  # a list is for several markers
        marked, index, is_planned = source.get("marker"), str(source.get("index")), name in _PLANNED
        if index in self.indexes and not (marked or is_planned):
            return dataclasses.replace(line, index=self.indexes[index])
        if index in self.pages:
            self.used.append(self.pages[index])
            return line
        place = None if marked else find_address(source)
        in_workspace = source.get("workspace") is True
        if in_workspace and name in self.members:
            place = self.members[name].as_uri()
        if place is None:
            reason = ": gpuenv selects the index of this package" if is_planned else " is ignored"
            notes.append(f"tool.uv.sources of {quote_text(need.name)} ({line.origin}){reason}")
            return line
        need.url, need.specifier = place, SpecifierSet()
        editable = in_workspace or (source.get("editable") is True and "path" in source)
        return dataclasses.replace(line, text=str(need), editable=editable)


def _read_date(value: Any, file: TomlFile) -> str | None:
    """Return a date or duration in uv's form. Raises UsageError."""
    if isinstance(value, dt.date):
        return value.isoformat()
    if value is None or (isinstance(value, str) and value.strip()):
        return value
    raise _describe_mistake(file, "exclude-newer", "a date or a duration")


def _describe_mistake(file: TomlFile, key: str, expected: str) -> UsageError:
    return UsageError(
        f"{file.locate_key(key, 'tool.uv')}: [tool.uv] {key}: expected {expected}",
        hint="see the settings reference of uv",
    )


_PLANNED = (*PROJECT_FRAMEWORKS, *TORCH_COMPANIONS)
"""The packages whose build and index the plan chooses."""


_MOST_MEMBERS = 200


def _find_members(folder: Path, data: Table, root: Path) -> dict[str, Path]:
    """Return the members of the uv workspace of a folder. Its root may be a folder around it.

    `data` is the content of the folder's pyproject.toml, `root` that of the tree that may be read. Raises UsageError.
    """
    sources = table_at(data, "tool", "uv", "sources").values()
    if members := list_members(folder, data):
        return members
    if not any(isinstance(source, dict) and source.get("workspace") for source in sources):
        return {}
    for place in folder.resolve().parents:
        if place.is_relative_to(root) and (members := list_members(place, read_pyproject(place))):
            return members
    return {}


def list_members(folder: Path, data: Table) -> dict[str, Path]:
    """Return the members of the uv workspace whose root is a folder, by normalized name. Raises UsageError."""
    workspace = table_at(data, "tool", "uv", "workspace")
    root = folder.resolve()
    listed, left = (
        [p for pattern in _list_patterns(workspace, key) for p in sorted(root.glob(pattern))]
        for key in ("members", "exclude")
    )
    inside = (p for p in listed[:_MOST_MEMBERS] if p not in left and p.resolve().is_relative_to(root))
    members = {find_project_name(p): p for p in inside}
    return {normalize_name(name): p for name, p in members.items() if name}


def _list_patterns(workspace: Table, key: str) -> list[str]:
    """Return the patterns that stay in the folder of the workspace."""
    patterns = workspace.get(key)
    return [
        p
        for p in (patterns if isinstance(patterns, list) else [])
        if isinstance(p, str) and p and not p.startswith("/") and ".." not in p.split("/")
    ]


_LABEL = re.compile(r"(?:[/+]|%2B)(?:cu(\d{2,3})|(cpu))(?=$|[-/.\s])", re.IGNORECASE)
"""The build that an address or a version names: "/whl/cu126", "2.7.1+cpu", "torch-2.7.1%2Bcu126-cp312-..."."""
LINUX = {"sys_platform": "linux", "platform_system": "Linux", "os_name": "posix"}


def read_uv(findings: FolderFindings, folder: Path) -> None:
    """Record what [tool.uv.sources] and uv.lock of a folder state. A value from another file has priority.

    A file that is not TOML gives a remark.
    """
    try:
        data = read_pyproject(folder)
        locked = read_toml(folder / "uv.lock", "uv.lock").data if (folder / "uv.lock").is_file() else {}
        if not locked and not table_at(data, "tool", "uv"):
            return
        labels = dict(_read_sources(data, findings))
        for place in list_members(folder, data).values():
            labels |= _read_sources(read_pyproject(place), findings)
        _add_locked(findings, _list_tables(locked.get("package")), labels)
        _choose(findings, labels)
    except UsageError as error:
        if not any(error.message in remark for remark in findings.remarks):
            findings.remarks.append(error.message)
        return
    if not findings.python and (python := _read_python(folder)):
        findings.python, findings.origins["python"] = python, ".python-version"


def _read_sources(data: Table, findings: FolderFindings) -> Iterator[tuple[str, str]]:
    """Yield each framework with the label of the build that its source names."""
    indexes = _list_tables(table_at(data, "tool", "uv").get("index"))
    addresses = {row["name"]: row["url"] for row in _list_tables(indexes, "url")}
    for name, value in table_at(data, "tool", "uv", "sources").items():
        framework = canonicalize_name(name)
        if framework not in PROJECT_FRAMEWORKS:
            continue
        rows = [row for row in (value if isinstance(value, list) else [value]) if isinstance(row, dict)]
        rows = [row for row in rows if may_apply_on_linux(row.get("marker"))]
        if of_groups := [row for row in rows if row.get("group") in findings.groups]:
            rows = of_groups
        elif any("extra" in row or "group" in row for row in rows):
            findings.remarks.append(
                f"[tool.uv.sources] chooses {framework} by extra or group: set cuda for one of them"
            )
            continue
        for row in rows[:1]:
            if label := _find_label(str(addresses.get(str(row.get("index")), row.get("url") or ""))):
                yield framework, label


def may_apply_on_linux(marker: Any) -> bool:
    """Return whether a marker may apply on Linux. An invalid one may, and an empty one."""
    if not isinstance(marker, str):
        return True
    try:
        return may_apply(Marker(marker), LINUX | {"platform_machine": "x86_64"})
    except InvalidMarker:
        return True


def _find_label(text: str) -> str | None:
    """Return the build label in an address or a version: "cu126", "cpu"."""
    match = _LABEL.search(text)
    return None if match is None else f"cu{match[1]}" if match[1] else "cpu"


def _list_tables(value: Any, key: str = "name") -> list[Table]:
    """Return the tables of a list that have a text at a key."""
    rows = value if isinstance(value, list) else []
    return [r for r in rows if isinstance(r, dict) and isinstance(r.get(key), str)]


def _add_locked(findings: FolderFindings, rows: list[Table], labels: dict[str, str]) -> None:
    """Add the builds that uv.lock states, and where no file names a framework, those that dependencies require."""
    brought, named = _list_required(rows), set(findings.frameworks)
    for framework in PROJECT_FRAMEWORKS:
        locked = [r for r in rows if canonicalize_name(r["name"]) == framework]
        if not locked or framework not in (named or brought):
            continue
        if framework not in named:
            findings.frameworks[framework] = f"uv.lock, required by {quote_text(brought[framework])}"
        of_builds = {
            _find_label(f"{r.get('version', '')} {table_at(r, 'source').get('registry', '')}") for r in locked
        }
        if framework not in labels and len(of_builds) == 1 and (label := of_builds.pop()):
            labels[framework] = label
        versions = sorted({str(r.get("version", "")).partition("+")[0] for r in locked} - {""})
        if len(versions) == 1:
            version = quote_text(versions[0])
            findings.remarks.append(
                f"uv.lock has {framework} {version}; write {framework}=={version} to keep it"
            )


def _list_required(rows: list[Table]) -> dict[str, str]:
    """Return the required packages, each with a package that requires it, without extras and groups."""
    by_name: dict[str, list[Table]] = {}
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
    seen: set[tuple[str, tuple[str, ...]]] = set()
    while waiting:
        name, extras = waiting.pop()
        if (name, extras) in seen:
            continue
        seen.add((name, extras))
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


def _list_needs(row: Table, extras: tuple[str, ...]) -> Iterator[Table]:
    optional = table_at(row, "optional-dependencies")
    for needs in (row.get("dependencies"), *map(optional.get, extras)):
        yield from (n for n in _list_tables(needs) if may_apply_on_linux(n.get("marker")))


def _choose(findings: FolderFindings, labels: dict[str, str]) -> None:
    """Set the CUDA of the project, or the CPU, if all its frameworks have the same."""
    labels = {f: label for f, label in labels.items() if f in (findings.frameworks or labels)}
    if len(set(labels.values())) > 1:
        builds = ", ".join(f"{framework} for {label}" for framework, label in labels.items())
        findings.remarks.append(f"uv uses {builds}: an environment has only one CUDA")
        return
    for label in set(labels.values()) if not (findings.device or findings.cuda) else ():
        if label == "cpu":
            findings.device, findings.origins["device"] = "cpu", "[tool.uv.sources]"
        else:
            findings.cuda = f"{label[2:-1]}.{label[-1]}"
            findings.origins["cuda"] = f"uv uses {next(iter(labels))} for {label}"


def _read_python(folder: Path) -> str | None:
    """Return the minor version in .python-version, or None."""
    try:
        text = trust.read_project(folder / ".python-version", 200).decode().strip()
    except (OSError, UnicodeDecodeError):
        return None
    match = re.fullmatch(r"(?:cpython@)?(3\.\d{1,2})(?:\.\d+)?", text)
    return match[1] if match else None
