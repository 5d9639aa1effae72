"""What was found in the folder of a project, and which of its programs are the main ones."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from ..model import FRAMEWORKS, PROJECT_FRAMEWORKS, CondaName, ImportName
from ..system import untrusted
from .quote import quote_text


@dataclass(frozen=True, kw_only=True, slots=True)
class PackageFacts:
    """Facts about packages, and the rows of profiles/package_names.yaml by name.

    `companions` maps a package that comes with a framework's build to the framework. `stack` are packages that the plan
    chooses.
    """

    companions: Mapping[str, str] = field(default_factory=dict)
    stack: frozenset[str] = frozenset()
    imports: Mapping[str, ImportName] = field(default_factory=dict)
    conda: Mapping[str, CondaName] = field(default_factory=dict)

    @property
    def wheels(self) -> frozenset[str]:
        """Return the normalized names of packages with a row, frameworks and companions."""
        from packaging.utils import canonicalize_name

        packages = [row.package for row in self.imports.values()]
        packages += [row.package for row in self.conda.values() if row.package]
        return frozenset(map(canonicalize_name, [*packages, *FRAMEWORKS, *self.companions]))


@dataclass(kw_only=True, slots=True)
class FolderFindings:
    """The findings in a folder.

    `frameworks` maps a framework to its origin, `packages` a requirement to its origin, and `suggested` a requirement to
    the reason. `bounds` are bounds of frameworks from files that gpuenv.yaml does not list. `named` maps a normalized name
    to its requirement in a file, `unlisted` a normalized name to the file that gpuenv.yaml does not list. `bounded` are
    frameworks with bounds in a listed file. `cuda_origin` is the origin of
    the CUDA. `not_installed` is the reason for taking dependencies without the project.
    `imported` maps a third-party module to the programs that import it at their top level.
    """

    frameworks: dict[str, str] = field(default_factory=dict)
    bounds: dict[str, str] = field(default_factory=dict)
    requirements: list[str] = field(default_factory=list)
    project: str | None = None
    not_installed: str | None = None
    python: str | None = None
    cuda: str | None = None
    cuda_origin: str = ""
    device: str | None = None
    find_links: list[str] = field(default_factory=list)
    packages: dict[str, str] = field(default_factory=dict)
    suggested: dict[str, str] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)
    named: dict[str, str] = field(default_factory=dict)
    unlisted: dict[str, str] = field(default_factory=dict)
    bounded: set[str] = field(default_factory=set)
    imported: dict[str, str] = field(default_factory=dict)

    def framework_texts(self) -> list[tuple[str, str]]:
        """Return the frameworks as requirements, each with its origin."""
        return [(name + self.bounds.get(name, ""), origin) for name, origin in self.frameworks.items()]


def list_first(files: list[str]) -> str:
    """Return the first of several files and the number of others, as text."""
    unique = list(dict.fromkeys(files))
    more = f" and {len(unique) - 1} more" if len(unique) > 1 else ""
    return quote_text(unique[0]) + more


_DOCUMENTS = re.compile(
    r"(?!(?:change|history|contrib|code_of|security|licen[sc]e)).*\.(?:md|rst)|readme.*", re.IGNORECASE
)
_NEEDS_OF_ITS_OWN = re.compile(
    r"readme.*|install.*\.(?:md|rst|txt)|requ?ire?me?nt.*\.txt|environment\.ya?ml|setup\.(?:py|cfg)|pyproject\.toml",
    re.IGNORECASE,
)
_PATH = re.compile(r"(?<![\w./:@-])(?:\./)?((?:[\w.-]+/)*[\w.-]+\.(?:py|ipynb))\b")
_MODULE = re.compile(r"\s-m[ =]([A-Za-z_][\w.]*)")
_NO_PACKAGES = {"benchmark", "benchmarks", "demo", "demos", "example", "examples", "exercises"}
_MOST_DOCUMENTS = 20
_MOST_BYTES = 1 << 20


@dataclass(frozen=True, kw_only=True, slots=True)
class Layout:
    """The relative paths of secondary programs.

    `aside` are in side folders, or at the top if a document names only other programs. `apart` are in side folders with
    their own documents or requirements.
    """

    aside: frozenset[str] = frozenset()
    apart: frozenset[str] = frozenset()


def find_secondary_programs(folder: Path, imports: Mapping[str, Collection[str]]) -> Layout:
    """Find the secondary programs. `imports` maps a program to the first parts of its imported modules.

    All programs are main programs if the apparent main programs import no framework.
    """
    named = _list_named_programs(folder, imports)
    at_top = [name for name in imports if "/" not in name]
    first = [n for n in at_top if n in named] or at_top
    packages = {top for name in imports if (top := _top_folder(name)) and _is_package(folder, top)}
    main = {*first, *named, *(name for name in imports if _top_folder(name) in packages)}
    main = _follow_imports(imports, main)
    if not any(set(imports[name]).intersection(PROJECT_FRAMEWORKS) for name in main):
        return Layout()
    folders = {_top_folder(name) for name in main}
    side = {name for name in imports if _top_folder(name) and _top_folder(name) not in folders}
    apart = {top for name in side if (top := _top_folder(name)) and _has_own_requirements(folder / top)}
    return Layout(
        aside=frozenset(side | (set(at_top) - main)),
        apart=frozenset(name for name in side if _top_folder(name) in apart),
    )


def _top_folder(name: str) -> str:
    """Return the top-level folder of a program, or an empty text for a program at the top."""
    return name.partition("/")[0] if "/" in name else ""


def _is_package(folder: Path, top: str) -> bool:
    """Return whether a top-level folder is a package of the project."""
    return top == "src" or (top not in _NO_PACKAGES and (folder / top / "__init__.py").is_file())


def _follow_imports(imports: Mapping[str, Collection[str]], main: set[str]) -> set[str]:
    """Return the programs and everything that they import.

    An import may also be one folder deeper (`src/model`, or `lib/model` with `lib` in the path).
    """
    by_top: dict[str, list[str]] = {}
    for name in imports:
        by_top.setdefault(PurePosixPath(name).with_suffix("").parts[0], []).append(name)
    deeper: dict[str, set[str]] = {}
    for names in by_top.values():
        for part in {PurePosixPath(n).with_suffix("").parts[1] for n in names if "/" in n}:
            deeper.setdefault(part, set()).update(names)
    reached: set[str] = set()
    todo = [n for m in main for n in (by_top[_top_folder(m)] if _top_folder(m) else [m])]
    while todo:
        name = todo.pop()
        if name in reached:
            continue
        reached.add(name)
        for module in imports[name]:
            todo += by_top.get(module) or deeper.get(module) or ()
    return reached


def _list_named_programs(folder: Path, imports: Mapping[str, Collection[str]]) -> set[str]:
    """Return the programs that documents at the top name by path, or as `python -m MODULE`."""
    named: set[str] = set()
    for text in _read_documents(folder):
        named.update(path for path in _PATH.findall(text) if path in imports)
        for module in _MODULE.findall(text):
            path = module.replace(".", "/")
            named.update(n for n in (f"{path}.py", f"{path}/__main__.py") if n in imports)
    return named


def _read_documents(folder: Path) -> Iterator[str]:
    paths = (p for p in sorted(folder.iterdir()) if _DOCUMENTS.fullmatch(p.name))
    for path, _ in zip(paths, range(_MOST_DOCUMENTS), strict=False):
        try:
            yield untrusted.read_text(path, _MOST_BYTES)
        except OSError:
            continue


def _has_own_requirements(folder: Path) -> bool:
    try:
        return any(_NEEDS_OF_ITS_OWN.fullmatch(entry.name) for entry in folder.iterdir())
    except OSError:
        return False
