"""Read what a Python project declares: pyproject.toml, its groups, setup.cfg and setup.py, without running code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import UsageError
from ..model import normalize_name, requirement_name
from ..system.toml import Table, table_at
from . import poetry, uv
from .files import ReadingState, read_requirements_file
from .lines import SourceLine
from .quote import parse_requirement, quote_text
from .toml import (
    ComputedValue,
    TomlFile,
    find_project_name,
    read_located,
    read_setup_arguments,
    read_setup_cfg,
    read_toml,
)
from .tree import find_root, refuse_outside

Listed = list[tuple[str, str]]  # requirements as (text, origin)
_MOST_DEEP = 40


def collect_extras(project: str | None, extras: Mapping[str, Listed], wanted: Sequence[str]) -> Listed:
    """Return the requirements of extras, and of the extras that those include on Linux. Raises UsageError."""
    known = {normalize_name(extra): listed for extra, listed in extras.items()}
    requirements: Listed = []
    todo, seen = [normalize_name(extra) for extra in wanted], set[str]()
    while todo:
        extra = todo.pop(0)
        if extra in seen:
            continue
        seen.add(extra)
        if extra not in known:
            raise UsageError(
                f"the project has no extra {quote_text(extra)!r}", hint=_list_choices(known, "extras")
            )
        for text, origin in known[extra]:
            itself = project is not None and requirement_name(text) == normalize_name(project)
            try:
                included = parse_requirement(text) if itself else None
            except ValueError:
                itself, included = False, None  # the parser of the line names the mistake
            if included and uv.may_apply_on_linux(str(included.marker or "")):
                todo += sorted(map(normalize_name, included.extras))
            requirements += [] if itself else [(text, origin)]
    return requirements


def _list_choices(known: Mapping[str, Any], what: str) -> str:
    return f"choose from: {', '.join(sorted(known))}" if known else f"the project defines no {what}"


@dataclass(kw_only=True, slots=True)
class StatedRequirements:
    """The texts that a project's files state, with their origins. `extras` are all of the project's.

    `computed` is the place where code computes the requirements, or None. uv runs it when it builds the folder.
    """

    name: str | None = None
    requires: Listed = field(default_factory=list)
    extras: dict[str, Listed] = field(default_factory=dict)
    requires_python: str = ""
    python_origin: str | None = None
    computed: str | None = None
    unread_extras: Sequence[str] = ()
    installable: bool = False
    planned_sources: bool = False


def read_project(
    reading: ReadingState, folder: Path, extras: Sequence[str], groups: Sequence[str], *, install: bool = True
) -> StatedRequirements:
    """Read a project's folder into `reading`. Raises UsageError with file and line.

    Without `install` the files need no project: settings of tools are enough.
    """
    project = _Folder(reading, folder)
    members = {} if "project" in project.file.data else uv.list_members(folder, project.file.data)
    stated = project.stated(install=install, may_be_empty=bool(groups) or not install or bool(members))
    stated.name = stated.name or find_project_name(folder)
    keys = uv.UvKeys(reading=reading)
    keys.read(folder, project.file)
    wanted = {normalize_name(extra) for extra in extras}
    if stated.computed:
        stated.unread_extras, wanted, extras = sorted(wanted), set(), ()
    for name, place in members.items():  # `uv sync` installs them all where the root is no project
        wanted -= _read_member(_Folder(reading, place), name, stated, keys, wanted, install=install)
    listed = [
        *stated.requires,
        *collect_extras(stated.name, stated.extras, [e for e in extras if normalize_name(e) in wanted]),
        *project.collect_groups(groups),
    ]
    project.add_lines(listed, keys)
    reading.lines += [keys.apply_source(line, []) for line in keys.lines]
    reading.find_links += keys.used
    stated.planned_sources = keys.name_planned and not stated.computed
    return stated


def _read_member(
    member: _Folder, name: str, root: StatedRequirements, keys: uv.UvKeys, wanted: set[str], *, install: bool
) -> set[str]:
    """Add a member of a workspace to what its root states, and return those of the wanted extras that it has."""
    reading, folder = member.reading, member.folder
    stated = member.stated(install=install, may_be_empty=True)
    root.computed = root.computed or stated.computed
    extras = wanted & {normalize_name(extra) for extra in stated.extras}
    own = keys.of_member(folder, member.file)
    member.add_lines([*stated.requires, *collect_extras(name, stated.extras, sorted(extras))], own)
    if stated.installable:
        reading.lines.append(
            SourceLine(text=f"{name} @ {folder.as_uri()}", origin=member.file.name, folders=(folder,), roots=reading.roots,
                       editable=True, stated=own.name_planned and not stated.computed)
        )  # fmt: skip
    root.extras |= stated.extras
    root.requires_python = ",".join(filter(None, (root.requires_python, stated.requires_python)))
    root.python_origin = root.python_origin or stated.python_origin
    return extras


@dataclass(slots=True)
class _Folder:
    """The folder of a project, with its pyproject.toml, which is empty if there is none."""

    reading: ReadingState
    folder: Path
    file: TomlFile = field(init=False)

    def __post_init__(self) -> None:
        found = self._find_file("pyproject.toml")
        self.file = read_toml(*found) if found else TomlFile("pyproject.toml")

    def _find_file(self, name: str) -> tuple[Path, str] | None:
        """Return the path of a file of the folder and its name for origins, if it exists."""
        path = self.folder / name
        if not path.is_file():
            return None
        self.reading.files[str(path)] = None
        return path, self.reading.name_file(path)

    def add_lines(self, listed: Listed, keys: uv.UvKeys) -> None:
        for written, origin in listed:
            text = keys.find_override(written) or written
            line = SourceLine(text=text, origin=origin, folders=(self.folder,), roots=self.reading.roots)
            self.reading.lines.append(keys.apply_source(line, self.reading.notes))

    def stated(self, *, install: bool, may_be_empty: bool) -> StatedRequirements:
        """Return what the files state. Raises UsageError, also where only a build can tell it and none is made."""
        stated = self._read_stated(may_be_empty=may_be_empty)
        off = (self.file.at("tool", "poetry").get("package-mode"), self.file.at("tool", "uv").get("package"))
        built = "build-system" in self.file.data or (self.folder / "setup.py").is_file()
        stated.installable = install and built and False not in off
        if stated.computed and not stated.installable:
            raise UsageError(
                f"{stated.computed} computes its requirements in code",
                hint="pass a requirements file with -r: gpuenv cannot read the requirements without running the project's code",
            )
        return stated

    def _read_stated(self, *, may_be_empty: bool) -> StatedRequirements:
        if "project" in self.file.data:
            return self._read_standard()
        if "dependencies" in self.file.at("tool", "poetry"):
            return self._read_poetry()
        if self._has_setup():
            return self._read_setuptools()
        if not self.file.data:
            raise UsageError(
                f"{self.folder} has no pyproject.toml, setup.cfg or setup.py, or an empty one",
                hint="name a folder that has one with --project, or a requirements file with -r",
            )
        if may_be_empty:
            return StatedRequirements()
        raise UsageError(
            f"{self.file.name} has no [project] table",
            hint="name a requirements file with -r, or groups; in gpuenv.yaml write project: {path: ., install: false}",
        )

    def _has_setup(self) -> bool:
        return any((self.folder / name).is_file() for name in ("setup.cfg", "setup.py"))

    def _read_standard(self) -> StatedRequirements:
        """Read the [project] table of the packaging specification."""
        project = self.file.at("project")
        dynamic = [t for t, _ in self._read_listed(project.get("dynamic", []), "project", "project.dynamic")]
        stated = StatedRequirements(name=_read_name(project))
        requires = project.get("dependencies", [])
        stated.requires = self._read_listed(requires, "project", "project.dependencies")
        for extra, value in table_at(project, "optional-dependencies").items():
            table = "project.optional-dependencies"
            stated.extras[extra] = self._read_listed(value, table, f"{table}.{extra}")
        python = project.get("requires-python")
        if isinstance(python, str):
            stated.requires_python = python
            stated.python_origin = self.file.locate_key("requires-python", "project")
        elif "requires-python" in dynamic:
            setup = self._read_setuptools(only_python=True)
            stated.requires_python, stated.python_origin = setup.requires_python, setup.python_origin
        if "dependencies" in dynamic:
            self._read_dynamic(stated)
        if "optional-dependencies" in dynamic:
            stated.extras |= self._read_dynamic_extras()
        return stated

    def _read_dynamic(self, to: StatedRequirements) -> None:
        """Read the dependencies that pyproject.toml declares dynamic, from the file that states them."""
        where = self.file.at("tool", "setuptools", "dynamic").get("dependencies")
        hatch = self.file.at("tool", "hatch", "metadata", "hooks", "requirements_txt").get("files")
        files = where.get("file") if isinstance(where, dict) else hatch
        if files is not None:
            to.requires = self._read_named_files(files)
        elif "dependencies" in self.file.at("tool", "poetry"):
            to.requires = self._read_poetry().requires
        elif self._has_setup():
            setup = self._read_setuptools()
            to.requires, to.computed = setup.requires, setup.computed
        else:
            to.computed = self.file.locate_key("dynamic", "project")

    def _read_dynamic_extras(self) -> dict[str, Listed]:
        where = self.file.at("tool", "setuptools", "dynamic", "optional-dependencies")
        if where:
            return {
                extra: self._read_named_files(value.get("file"))
                for extra, value in where.items()
                if isinstance(value, dict) and value.get("file") is not None
            }
        if self._has_setup():
            return self._read_setuptools().extras
        return {}

    def _read_named_files(self, files: Any) -> Listed:
        """Return the requirements of the requirements files that pyproject.toml names."""
        listed = [files] if isinstance(files, str) else files
        if not isinstance(listed, list) or not all(isinstance(f, str) for f in listed):
            raise UsageError(
                "pyproject.toml: the key `file` (`files` of Hatch) must be a path or a list of paths",
                hint="correct that line",
            )
        apart = ReadingState(
            environ=self.reading.environ, base=self.reading.base, roots=self.reading.roots, files=self.reading.files,
            skip_missing=self.reading.skip_missing, missing=self.reading.missing,
        )  # fmt: skip
        for file in listed:
            name = "pyproject.toml" if (self.folder / "pyproject.toml").exists() else "setup.cfg"
            refuse_outside(
                self.folder / file, [find_root(self.folder)], name, "name it on the command line with -r"
            )
            read_requirements_file(apart, self.folder / file, by=name)
        return [(line.text, line.origin) for line in apart.lines]

    def _read_setuptools(self, *, only_python: bool = False) -> StatedRequirements:
        """Read [options] of setup.cfg, and what is missing there from the literal arguments of setup() in setup.py."""
        stated = StatedRequirements()
        options: dict[str, str] = {}
        if found := self._find_file("setup.cfg"):
            name, sections = found[1], read_setup_cfg(*found)
            options = sections.get("options", {})
            stated.requires = _split_rows(
                options.get("install_requires", ""), f"{name} [options.install_requires]"
            )
            for extra, text in sections.get("options.extras_require", {}).items():
                stated.extras[extra] = _split_rows(text, f"{name} [options.extras_require]")
            if python := options.get("python_requires", "").strip():
                stated.requires_python, stated.python_origin = python, f"{name} [options.python_requires]"
        if found := self._find_file("setup.py"):
            words = read_setup_arguments(*found) or {}
            _add_setup_arguments(stated, words, read_located(*found), stated="install_requires" in options)
        if only_python:
            return stated
        stated.requires = self._read_rows(stated.requires)
        stated.extras = {extra: self._read_rows(rows) for extra, rows in stated.extras.items()}
        return stated

    def _read_rows(self, rows: Listed) -> Listed:
        """Return requirements with those of the files that "file:" names."""
        requirements: Listed = []
        for text, origin in rows:
            if text.startswith("file:"):
                files = [f.strip() for f in text.removeprefix("file:").split(",")]
                requirements += self._read_named_files(files)
            else:
                requirements.append((text, origin))
        return requirements

    def _read_poetry(self) -> StatedRequirements:
        table, keys = self.file.at("tool", "poetry"), ("tool", "poetry", "dependencies")
        dependencies = poetry.read_dependencies(self.file, *keys)
        stated = StatedRequirements(name=_read_name(table))
        stated.requires = [(t, o) for t, o, optional in dependencies if not optional]
        stated.requires_python, stated.python_origin = poetry.read_python(self.file, *keys)
        named = {requirement_name(t): (t, o) for t, o, _ in dependencies}
        for extra, names in table_at(table, "extras").items():
            if isinstance(names, list):
                stated.extras[extra] = [named[n] for n in map(normalize_name, names) if n in named]
        return stated

    def collect_groups(self, wanted: Sequence[str]) -> Listed:
        """Return the requirements of dependency groups (PEP 735) and of Poetry groups. Raises UsageError."""
        requirements: Listed = []
        seen: set[str] = set()
        for name in wanted:
            self._add_group(normalize_name(name), (), seen, requirements)
        return requirements

    def _add_group(self, key: str, within: tuple[str, ...], seen: set[str], requirements: Listed) -> None:
        """Add the requirements of a group and of the groups that it includes, each group once."""
        if key in within:
            raise UsageError(
                f"{self.file.name}: dependency groups include each other: {' -> '.join((*within, key))}",
                hint="remove one include-group",
            )
        if len(within) > _MOST_DEEP:
            raise UsageError(
                f"{self.file.name}: dependency groups include each other more than {_MOST_DEEP} deep",
                hint="include fewer groups",
            )
        if key in seen:
            return
        seen.add(key)
        groups = {
            normalize_name(name): (name, value) for name, value in self.file.at("dependency-groups").items()
        }
        if key not in groups:
            requirements += self._read_poetry_group(key, groups)
            return
        name, value = groups[key]
        where = f"dependency-groups.{name}"
        if not isinstance(value, list):
            raise UsageError(f"{self.file.name} [{where}]: expected a list", hint="see PEP 735")
        for entry in value:
            if isinstance(entry, str):
                requirements.append((entry, self.file.locate_value(entry, "dependency-groups", where)))
            elif isinstance(entry, dict) and list(entry) == ["include-group"]:
                self._add_group(
                    normalize_name(str(entry["include-group"])), (*within, key), seen, requirements
                )
            else:
                raise UsageError(
                    f"{self.file.name} [{where}]: {quote_text(str(entry))} is neither a requirement nor an include-group",
                    hint="see PEP 735",
                )

    def _read_poetry_group(self, key: str, others: Mapping[str, Any]) -> Listed:
        """Return the requirements of a Poetry group. The old table "dev-dependencies" is the group "dev"."""
        table = self.file.at("tool", "poetry")
        groups = {normalize_name(name): name for name in table_at(table, "group")}
        if key in groups:
            where: tuple[str, ...] = ("group", groups[key], "dependencies")
        elif key == "dev" and "dev-dependencies" in table:
            where = ("dev-dependencies",)
        else:
            raise UsageError(
                f"the project has no dependency group {quote_text(key)!r}",
                hint=_list_choices({**others, **groups}, "groups"),
            )
        dependencies = poetry.read_dependencies(self.file, "tool", "poetry", *where)
        return [(text, origin) for text, origin, _ in dependencies]

    def _read_listed(self, value: Any, table: str, at: str) -> Listed:
        """Return the texts of a list at a path of keys, each with its origin. Raises UsageError."""
        if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
            raise UsageError(f"{self.file.name} [{at}]: expected a list of strings", hint="correct that key")
        return [(text, self.file.locate_value(text, table, at)) for text in value]


def _read_name(table: Table) -> str | None:
    name = table.get("name")
    return name if isinstance(name, str) else None


def _split_rows(text: str, origin: str) -> Listed:
    if text.strip().startswith("file:"):
        return [(text.strip(), origin)]
    rows = [row.partition(" #")[0].strip() for row in text.splitlines()]
    return [(row, origin) for row in rows if row and not row.startswith("#")]


def _add_setup_arguments(
    to: StatedRequirements, words: dict[str, Any], places: TomlFile, *, stated: bool
) -> None:
    requires = words.get("install_requires", words.get("**"))
    if not stated and isinstance(requires, ComputedValue):
        to.computed = f"{places.name} line {requires.line}"
    elif not stated and requires is not None:
        to.requires = _list_rows(requires, places, "install_requires")
    extras = words.get("extras_require")
    if isinstance(extras, dict) and not to.extras:
        to.extras = {str(e): _list_rows(value, places, "extras_require") for e, value in extras.items()}
    python = words.get("python_requires")
    if isinstance(python, str) and not to.requires_python:
        to.requires_python = python
        to.python_origin = places.locate_value(python, "", "python_requires")


def _list_rows(value: Any, places: TomlFile, key: str) -> Listed:
    rows = value.splitlines() if isinstance(value, str) else value
    if not isinstance(rows, (list, tuple, set)):
        return []
    return [(str(row).strip(), places.locate_value(str(row), "", key)) for row in rows if str(row).strip()]
