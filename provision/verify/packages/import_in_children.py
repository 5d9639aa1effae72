"""Imports nominated packages in children of the environment's Python."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from ...model import Evidence
from ...system.redaction import clean
from .. import run_probe
from .compiled_files import Package
from .loader_search import OF_FRAMEWORK
from .nominate_packages import Nominated

SECONDS = 120.0
_MOST_MODULES = 24
_AT_ONCE = 4
# Messages of glibc's loader, of Python and of packages about a library that they cannot load.
_OF_A_LIBRARY = re.compile(
    r"cannot open shared object file|undefined symbol|version `[^']*' not found|file too short|invalid ELF header|"
    r"ELF load command|ELF file|cannot read file data|wrong ELF class|object file has no|"
    r"cannot (?:load|find|locate) (?:library|shared)|library .{0,80}not found|could not load .{0,80}lib",
    re.IGNORECASE,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Attempt:
    """The import of a nominated package. `top` are its top-level modules, `errors` the errors by module.

    `death` says how the child ended, if it ended badly.
    """

    nominated: Nominated
    top: tuple[str, ...]
    errors: Mapping[str, str]
    death: str | None = None

    @property
    def refused(self) -> str | None:
        """The error of a top-level module that names a missing library, or None."""
        return next((e for m, e in self.errors.items() if m in self.top and self._names_library(e)), None)

    @property
    def loads(self) -> bool:
        """Whether every nominated module can be imported after all."""
        built_for_other = all(p.kind in OF_FRAMEWORK for p in self.nominated.problems)
        return (bool(self.nominated.modules) or built_for_other) and not self.errors and not self.death

    def _names_library(self, error: str) -> bool:
        stems = {p.library[3:].partition(".so")[0].lower() for p in self.nominated.problems}
        return bool(_OF_A_LIBRARY.search(error)) or any(s and s in error.lower() for s in stems)

    def evidence(self) -> tuple[Evidence, ...]:
        """Return the errors of the imports as evidence, by the line that names a library."""
        by_line: dict[str, Evidence] = {}
        for module, error in self.errors.items():
            lines = clean(error).splitlines()
            line = next((x for x in lines if _OF_A_LIBRARY.search(x)), lines[0] if lines else "")[:500]
            by_line.setdefault(line, Evidence(text=line, source=f"import {module}"))
        return tuple(by_line.values())[:8] + (
            (Evidence(text=self.death, source="import"),) if self.death else ()
        )


def import_packages(
    python: str, nominated: Sequence[Nominated], environ: Mapping[str, str], seconds: float
) -> tuple[Attempt, ...]:
    """Import each nominated package in a child of its own, `seconds` at the longest."""

    def one(package: Nominated) -> Attempt:
        return _run_attempt(python, package, environ, min(seconds, SECONDS))

    if not nominated:
        return ()
    with ThreadPoolExecutor(min(_AT_ONCE, len(nominated), os.cpu_count() or 1)) as pool:
        return tuple(pool.map(one, nominated))


def _run_attempt(python: str, package: Nominated, environ: Mapping[str, str], seconds: float) -> Attempt:
    top = list_top_modules(package)
    modules = tuple(dict.fromkeys((*top, *package.modules)))[:_MOST_MODULES]
    report = run_probe.run_probe(python, ("report", "imports"), {"first": list(package.frameworks), "modules": list(modules)}, run_probe.ChildSettings(environ=environ, timeout=seconds))  # fmt: skip
    said = {r["module"]: r["error"] for r in report.all("imported") if r["module"] in modules}
    return Attempt(
        nominated=package, top=top, errors={m: e for m, e in said.items() if e}, death=report.death
    )


def list_top_modules(nominated: Nominated) -> tuple[str, ...]:
    """Return the top-level modules of a package that its users import.

    These are the modules with the files concerned, and the module with the package's name.
    """
    package = nominated.package
    tops = [m.partition(".")[0] for m in nominated.modules]
    named = [m for m in package.modules if m.lower().replace("_", "-") == package.name]
    if not tops and not named:
        folders = {f for p in nominated.problems if (f := _get_top_name(p.file, package))}
        named = [m for m in package.modules if m in folders] or [*package.modules[:3]]
    return tuple(dict.fromkeys((*named, *tops)))


def _get_top_name(path: str, package: Package) -> str | None:
    inside = path.startswith(f"{package.site}/")
    return path[len(package.site) + 1 :].partition("/")[0] if inside else None
