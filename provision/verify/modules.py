"""The modules that a project imports, looked up in an environment without running code."""

from __future__ import annotations

import ast
import functools
import itertools
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name
from packaging.version import Version

from ..environment.distributions import list_distributions, list_names
from ..model import Evidence, Finding, RemovedNames, StageResult
from ..model.values import Value
from ..profiles.wording import make_finding
from ..system.redaction import clean_line

_EXTENSION = re.compile(r"\.(?:py|pyc|so|(?:cpython|pypy|abi)[\w-]*\.so)")
_MAPPING = re.compile(r"^MAPPING[^=\n]*= (\{.*?\})$", re.MULTILINE | re.DOTALL)
_MOST_BYTES = 1 << 20
_SHOWN = 20


class ProjectImport(Value, kw_only=False):
    """A module that a project's programs cannot run without, the first of them, and the package that brings the module.

    `names` maps what they import of it ("torch.nn:Module", "torch.nn:") to the first of them.
    """

    module: str
    file: str
    package: str | None = None
    names: Mapping[str, str] = field(default_factory=dict)


class AbsentName(Value, kw_only=False):
    """A name that a program imports and that the installed release of its package does not have."""

    name: str
    module: str
    file: str
    release: str


def find_missing(imports: Sequence[ProjectImport], sites: Sequence[str]) -> list[ProjectImport]:
    """Return the modules that are not in the folders `sites`.

    A part of a package ("google.cloud.storage") may be a folder of several distributions, so that of its row counts.
    """
    names = frozenset[str]().union(*map(_list_modules, sites))
    has_parts = any("." in one.module for one in imports)
    installed = {found.name for site in sites for found in list_distributions(site)} if has_parts else set()
    return [
        one
        for one in imports
        if (one.package not in installed if "." in one.module else one.module not in names)
    ]


def find_absent(
    imports: Sequence[ProjectImport], sites: Sequence[str], removed: Sequence[RemovedNames]
) -> list[AbsentName]:
    """Return the names and submodules that are in no file of an installed module, or that a row says it does not have.

    A module that is compiled, or makes its names when it is imported, may have any.
    """
    _text.cache_clear()
    _registers_modules.cache_clear()
    versions: dict[str, str] | None = None
    found = []
    for one, exact, file in ((i, *used) for i in imports for used in i.names.items()):
        since = next((row.since for row in removed if row.has(exact)), None)
        if since is None and _may_define(sites, *exact.split(":", 1)):
            continue
        if versions is None:
            versions = {found.name: found.version for site in sites for found in list_distributions(site)}
        package = str(canonicalize_name(one.package or one.module))
        if since and Version(versions.get(package, "0")) < Version(since):
            continue
        module, _, name = exact.partition(":")
        release = f"{package} {versions[package]}" if package in versions else one.module
        found.append(AbsentName(name, module, file, release))
    return found


_ANY_NAME = re.compile(
    r"import \*|__getattr__|globals\(\)|\bexec\(|sys\.modules\[__name__\]|LazyModule|lazy_loader"
)
_ANY_MODULE = re.compile(r"meta_path|sys\.modules|__path__")
_MOST_FILES = 3_000


def _may_define(sites: Sequence[str], module: str, name: str) -> bool:
    """Return whether a module may have a name, or be there at all for an empty name."""
    first, *rest = module.split(".")
    here = next((p for site in sites for p in _candidates(Path(site), first) if p.is_file()), None)
    if here is None:
        return True
    top = here
    for part in rest:
        below = next((p for p in _candidates(here.parent, part) if p.is_file()), None)
        if here.name != "__init__.py" or below is None:
            return _has_submodule(here, part) or _registers_modules(top)
        here = below
    return (
        name in ("", "*")
        or _has_submodule(here, name)
        or _mentions(here, name)
        or (here.name == "__init__.py" and _registers_modules(top))
    )


def _candidates(folder: Path, name: str) -> tuple[Path, Path]:
    return folder / name / "__init__.py", folder / f"{name}.py"


def _has_submodule(module: Path, name: str) -> bool:
    """Return whether a package has a submodule of any kind, such as a compiled one or a folder without programs."""
    return module.name == "__init__.py" and (
        (module.parent / name).is_dir()
        or any(n.partition(".")[0] == name for n in list_names(str(module.parent)))
    )


def _mentions(module: Path, name: str) -> bool:
    """Return whether a module's text has a name, or makes names when it is imported."""
    text = _text(str(module))
    at = text.find(name)
    while at >= 0:
        around = text[at - 1 : at] + text[at + len(name) : at + len(name) + 1]
        if not any(c.isalnum() or c == "_" for c in around):  # faster than a pattern for each name
            return True
        at = text.find(name, at + 1)
    return len(text) >= _MOST_BYTES or _ANY_NAME.search(text) is not None


@functools.lru_cache(maxsize=64)
def _text(path: str) -> str:
    """Return a file's text. Names that follow each other are mostly of one module."""
    return _read(path)


@functools.lru_cache(maxsize=256)
def _registers_modules(top: Path) -> bool:
    """Return whether any file of a package may register modules that have no file of their own, as six.py does."""
    below = top.parent.rglob("*.py") if top.name == "__init__.py" else ()
    files = itertools.islice(below, _MOST_FILES)
    return any(_ANY_MODULE.search(_read(str(file))) for file in itertools.chain([top], files))


def _list_modules(site: str) -> set[str]:
    """Return the names that Python can import from a folder, with those of its path files and editable installs."""
    names: set[str] = set()
    for entry in list_names(site):
        stem, dot, rest = entry.partition(".")
        if not dot:
            names.add(entry)
        elif _EXTENSION.fullmatch(dot + rest):
            names.add(stem)
        if entry.endswith(".pth"):
            lines = _read(f"{site}/{entry}").splitlines()
            for folder in (line.strip() for line in lines if not line.startswith(("import ", "#"))):
                names.update(n.partition(".")[0] for n in list_names(os.path.join(site, folder)) if folder)
        elif entry.startswith("__editable__") and (match := _MAPPING.search(_read(f"{site}/{entry}"))):
            try:
                names.update(name.partition(".")[0] for name in ast.literal_eval(match[1]))
            except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
                continue
    return names


def _read(path: str) -> str:
    try:
        with Path(path).open("rb") as file:
            return file.read(_MOST_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""


def explain_missing(missing: Sequence[ProjectImport]) -> Finding | None:
    """Return a finding about missing modules."""
    if not missing:
        return None
    packages = list(dict.fromkeys(one.package for one in missing if one.package))
    unknown = [clean_line(one.module, 60) for one in missing if not one.package][:_SHOWN]
    steps = [f"`gpuenv add {' '.join(packages[:_SHOWN])}`, or remove the import"] if packages else []
    if unknown:
        noun = "package" if len(unknown) == 1 else "packages"
        steps.append(f"find the {noun} that the project means by {', '.join(unknown)}")
    name = clean_line(missing[0].module, 60)
    lines = [
        (f"import {clean_line(m.module, 60)}: {m.package or 'unknown package'} is not installed", m.file)
        for m in missing
    ]
    return _make_finding(
        "project_imports_missing", name, "is not installed", lines, noun="module", steps="; ".join(steps)
    )


def explain_absent(absent: Sequence[AbsentName]) -> Finding | None:
    """Return a finding about names that installed releases lack."""
    if not absent:
        return None
    first = absent[0]
    what = clean_line(f"{first.name} of {first.module}" if first.name else first.module, 100)
    typed = [f"from {a.module} import {a.name}" if a.name else f"import {a.module}" for a in absent]
    lines = [
        (f"{clean_line(text, 160)}: not in {clean_line(a.release, 60)}", a.file)
        for text, a in zip(typed, absent, strict=True)
    ]
    packages = " and ".join(dict.fromkeys(clean_line(a.release.split()[0], 60) for a in absent))
    state = f"is not in {clean_line(first.release, 60)}"
    return _make_finding("project_names_absent", what, state, lines, noun="name", packages=packages)


def _make_finding(
    row: str, what: str, state: str, lines: Sequence[tuple[str, str]], *, noun: str, **slots: Any
) -> Finding:
    """Return the finding of a row: its first problem, and all lines (text, file) as its evidence."""
    more = len(lines) - 1
    return make_finding(
        row, tuple(Evidence(text, file) for text, file in lines[:_SHOWN]),
        problem=f"{what}, imported in {clean_line(lines[0][1], 100)}, {state}", more=more or None,
        noun=noun if more == 1 else f"{noun}s", **slots,
    )  # fmt: skip


def add_warning(stage: StageResult, finding: Finding) -> StageResult:
    """Return a stage with the warning of a finding, after what it says already."""
    quiet = stage.status in ("pass", "skip")
    return replace(
        stage, status="warn" if quiet else stage.status, evidence=(*stage.evidence, *finding.evidence),
        detail=finding.title if quiet else f"{stage.detail}; {finding.title}",
    )  # fmt: skip
