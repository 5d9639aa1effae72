"""A project's folder -> its requirements: pyproject.toml, else setup.cfg and setup.py, nothing of it run."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from provision.errors import UsageError

from . import poetry, setuptools_files, uv_sources
from .files import Reading, read
from .folders import folder_name, table_at, toml
from .requirement import Line
from .words import requirement, shown

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_RUN_IT = "only running the project's code tells its requirements: name a requirements file with -r"


@dataclass(kw_only=True, slots=True)
class Stated:
    """What a project's files say, as texts with their origins. `extras` and `groups` are those there are."""

    name: str | None = None
    requires: list[tuple[str, str]] = field(default_factory=list)
    extras: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    requires_python: str = ""
    python_origin: str | None = None
    installable: bool = False


class Places:
    """Where in a TOML text a value stands: the line of its quoted text below a header, each once."""

    def __init__(self, name: str, text: str) -> None:
        self.name, self.lines = name, text.split("\n")
        self.taken: set[tuple[int, str]] = set()

    def header(self, section: str) -> int:
        """The index of a [section] line; -1 where there is none."""
        wanted = f"[{section}]"
        rows = (re.sub(r"\s|\"|'", "", line.partition("#")[0]) for line in self.lines)
        return next((i for i, row in enumerate(rows) if row == wanted), -1)

    def quoted(self, value: str, section: str, fallback: str) -> str:
        """The origin of a quoted value: file and line, else file and `fallback`, a path of keys."""
        start = max(self.header(section), 0)
        for i in range(start, len(self.lines)):
            if any(f"{quote}{value}{quote}" in self.lines[i] for quote in "\"'"):
                if (i, value) in self.taken:
                    continue
                self.taken.add((i, value))
                return f"{self.name} line {i + 1}"
        return f"{self.name} [{fallback}]"

    def key(self, key: str, section: str) -> str:
        """The origin of a key of a section."""
        start = self.header(section)
        pattern = re.compile(rf"\s*[\"']?{re.escape(key)}[\"']?\s*=")
        for i in range(start + 1, len(self.lines)):
            if start < 0 or self.lines[i].lstrip().startswith("["):
                break
            if pattern.match(self.lines[i]):
                return f"{self.name} line {i + 1}"
        return f"{self.name} [{section}.{key}]"


def read_project(reading: Reading, folder: Path, extras: Sequence[str], groups: Sequence[str]) -> Stated:
    """Read a project's folder into `reading`. Raises UsageError naming file and line."""
    path = folder / "pyproject.toml"
    data: dict[str, Any] = {}
    places = Places("pyproject.toml", "")
    if path.is_file():
        name = reading.name(path)
        data, text = toml(path, name)
        places = Places(name, text)
        reading.files[str(path)] = None
    stated = _stated(reading, folder, data, places, groups)
    stated.name = stated.name or folder_name(folder)
    listed = [*stated.requires, *_extras(stated, extras)]
    for group in groups:
        listed += _group(data, places, group)
    sources = table_at(data, "tool", "uv", "sources")
    for text, origin in listed:
        line = Line(text=text, origin=origin, folders=(folder,))
        reading.lines.append(uv_sources.placed(line, sources, reading.notes))
    poetry_off = table_at(data, "tool", "poetry").get("package-mode") is False
    uv_off = table_at(data, "tool", "uv").get("package") is False
    builds = "build-system" in data or (folder / "setup.py").is_file()
    stated.installable = builds and not poetry_off and not uv_off
    return stated


def _stated(
    reading: Reading, folder: Path, data: dict[str, Any], places: Places, groups: Sequence[str]
) -> Stated:
    if "project" in data:
        return _standard(reading, folder, data, places)
    if "dependencies" in table_at(data, "tool", "poetry"):
        return _poetry(data, places)
    if any((folder / name).is_file() for name in ("setup.cfg", "setup.py")):
        return _setuptools(reading, folder)
    if not data:
        raise UsageError(
            f"{folder} has no pyproject.toml, setup.cfg or setup.py",
            hint="name a folder that has one with --project, or a requirements file with -r",
        )
    if groups:
        return Stated()
    raise UsageError(
        f"{places.name} has no [project] table", hint="name a requirements file with -r, or groups"
    )


def _standard(reading: Reading, folder: Path, data: dict[str, Any], places: Places) -> Stated:
    """[project], as the packaging specification has it."""
    project = table_at(data, "project")
    dynamic = _texts(project.get("dynamic", []), "project.dynamic", places)
    stated = Stated(name=project.get("name") if isinstance(project.get("name"), str) else None)
    requires = _texts(project.get("dependencies", []), "project.dependencies", places)
    stated.requires = [(t, places.quoted(t, "project", "project.dependencies")) for t in requires]
    for extra, value in table_at(project, "optional-dependencies").items():
        at = f"project.optional-dependencies.{extra}"
        texts = _texts(value, at, places)
        stated.extras[extra] = [(t, places.quoted(t, "project.optional-dependencies", at)) for t in texts]
    python = project.get("requires-python")
    if isinstance(python, str):
        stated.requires_python, stated.python_origin = python, places.key("requires-python", "project")
    elif "requires-python" in dynamic:
        found = _setuptools(reading, folder, only_python=True)
        stated.requires_python, stated.python_origin = found.requires_python, found.python_origin
    if "dependencies" in dynamic:
        stated.requires = _dynamic(reading, folder, data, places)
    if "optional-dependencies" in dynamic:
        stated.extras |= _dynamic_extras(reading, folder, data)
    return stated


def _dynamic(reading: Reading, folder: Path, data: dict[str, Any], places: Places) -> list[tuple[str, str]]:
    """Dependencies that pyproject.toml leaves to the build backend, where a file states them."""
    where = table_at(data, "tool", "setuptools", "dynamic").get("dependencies")
    hatch = table_at(data, "tool", "hatch", "metadata", "hooks", "requirements_txt").get("files")
    files = where.get("file") if isinstance(where, dict) else hatch
    if files is not None:
        return _from_files(reading, folder, files)
    if "dependencies" in table_at(data, "tool", "poetry"):
        return _poetry(data, places).requires
    if any((folder / name).is_file() for name in ("setup.cfg", "setup.py")):
        return _setuptools(reading, folder).requires
    raise UsageError(f"{places.name} leaves its dependencies to the build backend", hint=_RUN_IT)


def _dynamic_extras(reading: Reading, folder: Path, data: dict[str, Any]) -> dict[str, list[tuple[str, str]]]:
    where = table_at(data, "tool", "setuptools", "dynamic", "optional-dependencies")
    if where:
        return {
            extra: _from_files(reading, folder, value.get("file"))
            for extra, value in where.items()
            if isinstance(value, dict) and value.get("file") is not None
        }
    if any((folder / name).is_file() for name in ("setup.cfg", "setup.py")):
        return _setuptools(reading, folder).extras
    return {}


def _from_files(reading: Reading, folder: Path, files: Any) -> list[tuple[str, str]]:
    """The requirements of files that pyproject.toml names, read as requirements files."""
    listed = [files] if isinstance(files, str) else files
    if not isinstance(listed, list) or not all(isinstance(f, str) for f in listed):
        raise UsageError("pyproject.toml: file = expected a path or a list of paths", hint="mend the line")
    apart = Reading(environ=reading.environ, base=reading.base, files=reading.files)
    for file in listed:
        read(apart, folder / file, by="pyproject.toml")
    return [(line.text, line.origin) for line in apart.lines]


def _setuptools(reading: Reading, folder: Path, *, only_python: bool = False) -> Stated:
    """setup.cfg's [options], else setup.py's call of setup() as far as it is literal."""
    found = setuptools_files.read(reading, folder)
    stated = Stated(
        requires_python=found.requires_python,
        python_origin=found.python_origin,
    )
    if only_python:
        return stated
    if found.computed:
        raise UsageError(f"{found.computed} computes its requirements", hint=_RUN_IT)
    for key, listed in (("", found.requires), *found.extras.items()):
        into = stated.requires if not key else stated.extras.setdefault(key, [])
        for text, origin in listed:
            if text.startswith("file:"):
                files = [f.strip() for f in text.removeprefix("file:").split(",")]
                into += _from_files(reading, folder, files)
            else:
                into.append((text, origin))
    return stated


def _poetry(data: dict[str, Any], places: Places) -> Stated:
    table = table_at(data, "tool", "poetry")
    found = poetry.dependencies(table.get("dependencies"), places, "tool.poetry.dependencies")
    stated = Stated(name=table.get("name") if isinstance(table.get("name"), str) else None)
    stated.requires = [(t, o) for t, o, optional in found.listed if not optional]
    stated.requires_python, stated.python_origin = found.requires_python, found.python_origin
    named = {requirement_name(t): (t, o) for t, o, _ in found.listed}
    for extra, names in table_at(table, "extras").items():
        if isinstance(names, list):
            stated.extras[extra] = [named[n] for n in map(_folded, names) if n in named]
    return stated


def requirement_name(text: str) -> str:
    """The folded name in front of a requirement."""
    found = re.match(r"[A-Za-z0-9._-]+", text)
    return _folded(found[0]) if found else ""


def _folded(name: object) -> str:
    from packaging.utils import canonicalize_name

    return canonicalize_name(str(name))


# --- extras and groups ---------------------------------------------------------------------------


def _extras(stated: Stated, wanted: Sequence[str]) -> list[tuple[str, str]]:
    """The requirements of the extras, and of the extras that they name of their own project."""
    known = {_folded(extra): listed for extra, listed in stated.extras.items()}
    found: list[tuple[str, str]] = []
    todo, done = [_folded(extra) for extra in wanted], set[str]()
    while todo:
        extra = todo.pop(0)
        if extra in done:
            continue
        done.add(extra)
        if extra not in known:
            raise UsageError(f"the project has no extra {extra!r}", hint=_those(known, "extras"))
        for text, origin in known[extra]:
            if stated.name and requirement_name(text) == _folded(stated.name):
                todo += _own_extras(text)
            else:
                found.append((text, origin))
    return found


def _own_extras(text: str) -> list[str]:
    try:
        return sorted(_folded(extra) for extra in requirement(text).extras)
    except ValueError:
        return []


def _those(known: dict[str, Any], what: str) -> str:
    return f"its {what}: {', '.join(sorted(known))}" if known else f"it states no {what}"


def _group(
    data: dict[str, Any], places: Places, wanted: str, within: tuple[str, ...] = ()
) -> list[tuple[str, str]]:
    """The requirements of a dependency group (PEP 735), or of one of poetry's."""
    groups = {_folded(name): (name, value) for name, value in table_at(data, "dependency-groups").items()}
    older = table_at(data, "tool", "poetry")
    poetry_groups = {_folded(n): (n, v) for n, v in table_at(older, "group").items()}
    key = _folded(wanted)
    if key in within:
        raise UsageError(
            f"{places.name}: dependency groups include each other: {' -> '.join((*within, key))}",
            hint="take one include-group out",
        )
    if key not in groups:
        if key in poetry_groups and isinstance(poetry_groups[key][1], dict):
            name, value = poetry_groups[key]
            section = f"tool.poetry.group.{name}.dependencies"
            listed = poetry.dependencies(value.get("dependencies"), places, section).listed
            return [(t, o) for t, o, _ in listed]
        if key == "dev" and "dev-dependencies" in older:
            section = "tool.poetry.dev-dependencies"
            return [
                (t, o) for t, o, _ in poetry.dependencies(older["dev-dependencies"], places, section).listed
            ]
        raise UsageError(
            f"the project has no dependency group {shown(wanted)!r}",
            hint=_those({**groups, **poetry_groups}, "groups"),
        )
    name, value = groups[key]
    at = f"dependency-groups.{name}"
    if not isinstance(value, list):
        raise UsageError(f"{places.name} [{at}]: expected a list", hint="see PEP 735")
    found: list[tuple[str, str]] = []
    for entry in value:
        if isinstance(entry, str):
            found.append((entry, places.quoted(entry, "dependency-groups", at)))
        elif isinstance(entry, dict) and list(entry) == ["include-group"]:
            found += _group(data, places, str(entry["include-group"]), (*within, key))
        else:
            raise UsageError(
                f"{places.name} [{at}]: {shown(str(entry))} is no requirement and no include-group",
                hint="see PEP 735",
            )
    return found


def _texts(value: Any, at: str, places: Places) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
        raise UsageError(f"{places.name} [{at}]: expected a list of strings", hint="see the file's own guide")
    return value
