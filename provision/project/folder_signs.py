"""What a folder shows of the frameworks that its project uses: its files, and what its programs import."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from provision.errors import UsageError
from provision.model import FRAMEWORKS

from . import kinds
from .demanded import demands
from .imports import imported
from .strict import Node, NotReadError, decode, tree
from .text import read_bytes
from .words import shown

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from provision.model import Demands

_ENVIRONMENT_FILES = ("environment.yml", "environment.yaml", "conda.yml", "conda.yaml")
# conda's names of the frameworks, where they differ from the wheels'
_CONDA_NAMES = {"pytorch-gpu": "torch", "pytorch-cpu": "torch", "tensorflow-base": "tensorflow"}


@dataclass(kw_only=True, slots=True)
class Signs:
    """What was found: frameworks with where they are named, the files to list in gpuenv.yaml, and remarks."""

    frameworks: dict[str, str] = field(default_factory=dict)
    requirements: list[str] = field(default_factory=list)
    project: str | None = None
    python: str | None = None
    remarks: list[str] = field(default_factory=list)


def signs(
    folder: Path, companions: Mapping[str, str], stack: frozenset[str], environ: Mapping[str, str]
) -> Signs:
    """Look at a folder; nothing of it is run. `companions` maps names that imply a framework to it."""
    found = Signs()
    covered: set[str] = set()
    for name, listed in _candidates(folder):
        try:
            asked = _read(folder, name, companions, stack, environ)
        except UsageError as error:
            found.remarks.append(f"{name or 'the project'} is not listed: {error.message}")
            continue
        if name and str((folder / name).absolute()) in covered:
            continue
        covered |= set(asked.files)
        if not listed:
            found.remarks.append(f"{name} is there too and not listed")
            continue
        if name is None:
            found.project = "."
        else:
            found.requirements.append(name)
        for framework in asked.frameworks:
            found.frameworks.setdefault(framework, _where(asked, framework, companions))
    _conda(folder, found)
    _imports(folder, companions, found)
    return found


def _candidates(folder: Path) -> list[tuple[str | None, bool]]:
    """The project's own files (None) and requirements files, and whether each is to be listed: of
    several requirements files the one named requirements.txt, else the only one."""
    found: list[tuple[str | None, bool]] = []
    if any((folder / n).is_file() for n in ("setup.py", "setup.cfg")) or _is_project(
        folder / "pyproject.toml"
    ):
        found.append((None, True))
    names = sorted(p.name for p in folder.glob("requirements*.txt") if p.is_file())
    if not names:
        names = [f"requirements/{p.name}" for p in sorted(folder.glob("requirements/*.txt")) if p.is_file()]
    main = next(
        (n for n in ("requirements.txt", "requirements/base.txt", "requirements/main.txt") if n in names),
        None,
    )
    only = names[0] if len(names) == 1 else None
    return found + [(name, name in (main, only)) for name in names]


def _is_project(path: Path) -> bool:
    """Whether a pyproject.toml states a project, and is not there for a tool's settings only."""
    from .folders import table_at, toml

    if not path.is_file():
        return False
    try:
        data, _ = toml(path, path.name)
    except UsageError:
        return True  # reading it as one says what is wrong
    return "project" in data or "dependencies" in table_at(data, "tool", "poetry")


def _read(
    folder: Path,
    name: str | None,
    companions: Mapping[str, str],
    stack: frozenset[str],
    environ: Mapping[str, str],
) -> Demands:
    files = [folder / name] if name else []
    return demands(
        files, None if name else folder, environ=environ, markers={}, stack=stack, companions=companions
    )


def _where(asked: Demands, framework: str, companions: Mapping[str, str]) -> str:
    """Where a framework is named first."""
    for bound in asked.bounds:
        if bound.name == framework:
            return bound.origin
    for need in asked.needs:
        if companions.get((need.name or "").lower()) == framework:
            return f"{need.name} in {need.origin}"
    return ", ".join(sorted({path.rpartition("/")[2] for path in asked.files}))


# --- conda's environment.yml -------------------------------------------------------------------


def _conda(folder: Path, found: Signs) -> None:
    """What a conda environment file names of frameworks and Python; the rest of it is only counted."""
    name = next((n for n in _ENVIRONMENT_FILES if (folder / n).is_file()), None)
    if name is None:
        return
    try:
        root = tree(decode(read_bytes(folder / name, name)))
    except (NotReadError, UsageError) as error:
        found.remarks.append(f"{name} is not read: {error}")
        return
    listed = next((v for k, v in root.pairs if k.text == "dependencies"), None) if root else None
    others = 0
    for item in listed.items if listed else []:
        for text, is_wheel in _entries(item):
            package = re.split(r"[\s=<>!~\[;@]", text.rpartition("::")[2], maxsplit=1)[0].lower()
            framework = _CONDA_NAMES.get(package, kinds.ALIASES.get(package, package))
            version = re.search(r"=+\s*(3\.\d+)", text)
            if framework in FRAMEWORKS:
                found.frameworks.setdefault(framework, f"{name} line {item.line}")
            elif package == "python" and version and not is_wheel:
                found.python = found.python or version[1]
            else:
                others += 1
    if others:
        found.remarks.append(
            f"{name} names {others} package{'s' * (others > 1)} more; those that you need go under packages, "
            "as wheels are named"
        )


def _entries(item: Node) -> list[tuple[str, bool]]:
    """The texts of one entry: a conda package, or the wheels of its pip section."""
    if item.kind == "scalar":
        return [(item.text, False)]
    nested = [v for k, v in item.pairs if k.text == "pip" and v.kind == "list"]
    return [(wheel.text, True) for v in nested for wheel in v.items if wheel.kind == "scalar"]


# --- imports ---------------------------------------------------------------------------------


def _imports(folder: Path, companions: Mapping[str, str], found: Signs) -> None:
    """What the programs import, where no file names a framework; else only remarked."""
    by_module = imported(folder, [*FRAMEWORKS, *(name.replace("-", "_") for name in companions)])
    users: dict[str, list[str]] = {}
    for module, files in by_module.items():
        users.setdefault(companions.get(module, module), []).extend(files)
    ranked = sorted(users, key=lambda name: (-len(set(users[name])), FRAMEWORKS.index(name)))
    if not found.frameworks and ranked:
        first = ranked.pop(0)
        found.frameworks[first] = f"imported in {_some(users[first])}"
    for name in ranked:
        if name not in found.frameworks:
            found.remarks.append(f"{name} is imported in {_some(users[name])}, and not listed")


def _some(files: list[str]) -> str:
    unique = list(dict.fromkeys(files))
    more = f" and {len(unique) - 1} more" if len(unique) > 1 else ""
    return shown(unique[0]) + more
