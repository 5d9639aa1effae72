"""A project's folder -> its requirements: pyproject.toml, else setup.cfg and setup.py, parsed and never run."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from provision.errors import UsageError

from . import poetry, uv_keys
from .dependency_groups import folded, of_extras, of_groups, requirement_name
from .project_folder import Computed, Places, cfg, folder_name, setup_words, table_at, toml
from .requirement import Line
from .requirements_files import Reading, read
from .uv_keys import UvKeys, read_keys

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


def read_project(
    reading: Reading, folder: Path, extras: Sequence[str], groups: Sequence[str], *, install: bool = True
) -> Stated:
    """Read a project's folder into `reading`. Without `install` its files may state no project: settings of tools
    are enough. Raises UsageError naming file and line."""
    path = folder / "pyproject.toml"
    data: dict[str, Any] = {}
    places = Places("pyproject.toml", "")
    if path.is_file():
        name = reading.name(path)
        data, text = toml(path, name)
        places = Places(name, text)
        reading.files[str(path)] = None
    stated = _stated(reading, folder, data, places, may_be_empty=bool(groups) or not install)
    stated.name = stated.name or folder_name(folder)
    listed = [
        *stated.requires,
        *of_extras(stated.name, stated.extras, extras),
        *of_groups(data, places, groups),
    ]
    sources = table_at(data, "tool", "uv", "sources")
    keys = read_keys(reading, folder, data, places)
    for text, origin in listed:
        line = Line(text=keys.replaced(text) or text, origin=origin, folders=(folder,))
        reading.lines.append(_placed(reading, line, sources, keys))
    reading.lines += [_placed(reading, line, sources, keys, noted=False) for line in keys.lines]
    poetry_off = table_at(data, "tool", "poetry").get("package-mode") is False
    uv_off = table_at(data, "tool", "uv").get("package") is False
    builds = "build-system" in data or (folder / "setup.py").is_file()
    stated.installable = install and builds and not poetry_off and not uv_off
    return stated


def _placed(
    reading: Reading, line: Line, sources: dict[str, Any], keys: UvKeys, *, noted: bool = True
) -> Line:
    """Return a line with the place that [tool.uv.sources] names for it and the values of its variables."""
    placed = uv_keys.placed(line, sources, keys.indexes, reading.notes if noted else [])
    return dataclasses.replace(placed, text=reading.expanded(placed.text, line.origin))


def _stated(
    reading: Reading, folder: Path, data: dict[str, Any], places: Places, *, may_be_empty: bool
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
    if may_be_empty:
        return Stated()
    raise UsageError(
        f"{places.name} has no [project] table",
        hint="name a requirements file with -r, or groups; in gpuenv.yaml write project: {path: ., install: false}",
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
    found = read_setup_files(reading, folder)
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
            stated.extras[extra] = [named[n] for n in map(folded, names) if n in named]
    return stated


def _texts(value: Any, at: str, places: Places) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
        raise UsageError(f"{places.name} [{at}]: expected a list of strings", hint="see the file's own guide")
    return value


@dataclass(kw_only=True, slots=True)
class Found:
    """Requirements with origins; a text that begins with "file:" names files. `computed` says where the
    requirements are computed, if they are."""

    requires: list[tuple[str, str]] = field(default_factory=list)
    extras: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    requires_python: str = ""
    python_origin: str | None = None
    computed: str | None = None


def read_setup_files(reading: Reading, folder: Path) -> Found:
    """setup.cfg's [options], and what it leaves out from setup.py. Raises UsageError."""
    found = Found()
    options: dict[str, str] = {}
    if (path := folder / "setup.cfg").is_file():
        name = reading.name(path)
        reading.files[str(path)] = None
        sections = cfg(path, name)
        options = sections.get("options", {})
        found.requires = _listed(options.get("install_requires", ""), f"{name} [options.install_requires]")
        for extra, text in sections.get("options.extras_require", {}).items():
            found.extras[extra] = _listed(text, f"{name} [options.extras_require]")
        if python := options.get("python_requires", "").strip():
            found.requires_python, found.python_origin = python, f"{name} [options.python_requires]"
    if (path := folder / "setup.py").is_file():
        name = reading.name(path)
        reading.files[str(path)] = None
        _from_setup(found, setup_words(path, name) or {}, name, stated="install_requires" in options)
    return found


def _listed(text: str, origin: str) -> list[tuple[str, str]]:
    if text.strip().startswith("file:"):
        return [(text.strip(), origin)]
    rows = [row.partition(" #")[0].strip() for row in text.splitlines()]
    return [(row, origin) for row in rows if row and not row.startswith("#")]


def _from_setup(found: Found, words: dict[str, Any], name: str, *, stated: bool) -> None:
    requires = words.get("install_requires", words.get("**"))
    if not stated and isinstance(requires, Computed):
        found.computed = f"{name} line {requires.line}"
    elif not stated and requires is not None:
        found.requires = _strings(requires, f"{name} [install_requires]")
    extras = words.get("extras_require")
    if isinstance(extras, dict) and not found.extras:
        for extra, value in extras.items():
            found.extras[str(extra)] = _strings(value, f"{name} [extras_require]")
    python = words.get("python_requires")
    if isinstance(python, str) and not found.requires_python:
        found.requires_python, found.python_origin = python, f"{name} [python_requires]"


def _strings(value: Any, origin: str) -> list[tuple[str, str]]:
    rows = value.splitlines() if isinstance(value, str) else value
    if not isinstance(rows, (list, tuple, set)):
        return []
    return [(str(row).strip(), origin) for row in rows if str(row).strip()]
