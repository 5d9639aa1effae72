"""The modules that a project imports, looked up in an environment without running code."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ..environment.distributions import list_distributions
from ..model import Evidence, Finding, StageResult
from ..profiles.findings import make_finding
from ..system.redaction import clean_line

_EXTENSION = re.compile(r"\.(?:py|pyc|so|(?:cpython|pypy|abi)[\w-]*\.so)")
_MAPPING = re.compile(r"^MAPPING[^=\n]*= (\{.*?\})$", re.MULTILINE | re.DOTALL)
_MOST_BYTES = 1 << 20
_SHOWN = 20


@dataclass(frozen=True, slots=True)
class ProjectImport:
    """A module that a project's programs cannot run without, the first of them, and the package that brings the module."""

    module: str
    file: str
    package: str | None = None


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


def _list_modules(site: str) -> set[str]:
    """Return the names that Python can import from a folder, with those of its path files and editable installs."""
    names: set[str] = set()
    for entry in _list_names(site):
        stem, dot, rest = entry.partition(".")
        if not dot:
            names.add(entry)
        elif _EXTENSION.fullmatch(dot + rest):
            names.add(stem)
        if entry.endswith(".pth"):
            lines = _read(f"{site}/{entry}").splitlines()
            for folder in (line.strip() for line in lines if not line.startswith(("import ", "#"))):
                names.update(n.partition(".")[0] for n in _list_names(os.path.join(site, folder)) if folder)
        elif entry.startswith("__editable__") and (match := _MAPPING.search(_read(f"{site}/{entry}"))):
            try:
                names.update(name.partition(".")[0] for name in ast.literal_eval(match[1]))
            except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
                continue
    return names


def _list_names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except (OSError, ValueError):
        return []


def _read(path: str) -> str:
    try:
        with Path(path).open("rb") as file:
            return file.read(_MOST_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""


def add_missing(
    stage: StageResult, findings: Sequence[Finding], missing: Sequence[ProjectImport]
) -> tuple[StageResult, tuple[Finding, ...]]:
    """Return the stage `packages` and its findings with a warning about missing modules."""
    if not missing:
        return stage, tuple(findings)
    first, more = missing[0], len(missing) - 1
    problem = f"{clean_line(first.module, 60)}, imported in {clean_line(first.file, 100)}, is not installed"
    packages = list(dict.fromkeys(one.package for one in missing if one.package))
    unknown = [clean_line(one.module, 60) for one in missing if not one.package][:_SHOWN]
    steps = [f"`gpuenv add {' '.join(packages[:_SHOWN])}`"] if packages else []
    if unknown:
        what = ", ".join(unknown)
        steps.append(
            f"find the {'package' if len(unknown) == 1 else 'packages'} that the project means by {what}"
        )
    evidence = tuple(
        Evidence(
            f"import {clean_line(one.module, 60)}: {one.package or 'unknown package'} is not installed",
            one.file,
        )
        for one in missing[:_SHOWN]
    )
    finding = make_finding(
        "project_imports_missing", evidence, problem=problem, more=more or None,
        noun="module" if more == 1 else "modules", steps="; ".join(steps), confidence="certain",
    )  # fmt: skip
    status = "warn" if stage.status in ("pass", "skip") else stage.status
    extra = f"{problem}; {more} more" if more else problem
    detail = extra if status == "warn" and stage.status != "warn" else f"{stage.detail}; {extra}"
    changed = replace(stage, status=status, detail=detail, evidence=(*stage.evidence, *evidence))
    return changed, (*findings, finding)


def order(seen: Mapping[str, Sequence[str]], packages: Mapping[str, str | None]) -> list[ProjectImport]:
    """Return imports with their first program, those of programs near the top first."""
    ordered = sorted(
        seen, key=lambda module: (packages.get(module) is None, seen[module][0].count("/"), module.lower())
    )
    return [ProjectImport(module, seen[module][0], packages.get(module)) for module in ordered]
