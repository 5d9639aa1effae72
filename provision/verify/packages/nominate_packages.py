"""Nominates installed packages that need a library which the loader does not find.

Only their files are read.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ...model import PROJECT_FRAMEWORKS, DlopenedLibrary, OptionalLibraries, Satellite
from ...system.elf import Elf, ElfError
from ..explain_unopened_nvidia_libraries import name_nvidia_wheel
from .compiled_files import Package, list_packages, parse_module
from .fitting_measured_release import find_other_framework
from .framework_symbols import find_undefined
from .loader_search import LoadedFile, Loader, Problem, list_names_of, list_reached

if TYPE_CHECKING:
    from ..python_paths import PythonPaths

_TAGGED = re.compile(r"\.cpython-[\w-]+\.so$|\.pypy[\w-]+\.so$")
"""The names of extension modules, which are not opened as libraries."""
_LINKED = re.compile(r"lib(torch|c10|tensorflow)")
"""The libraries of frameworks that packages are linked with."""
_PATHFINDER = "cuda-pathfinder"
"""NVIDIA's package that loads the libraries of its wheels by name."""
_PLUGINS = re.compile(r"/(?:plugins|qml)(?:/|$)")


@dataclass(frozen=True, kw_only=True, slots=True)
class Nominated:
    """A package that may not load. `modules` are the extension modules concerned.

    `modules` is empty if the package opens the libraries. `frameworks` are imported before it.
    """

    package: Package
    problems: tuple[Problem, ...]
    modules: tuple[str, ...] = ()
    frameworks: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Reading:
    """The packages, the number of files read, and the nominated packages. `unread` says why nothing was read."""

    packages: tuple[Package, ...] = ()
    files: int = 0
    nominated: tuple[Nominated, ...] = ()
    unread: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class LibraryRows:
    """Rows of the profiles about libraries.

    `opened` are libraries that packages open by name. `optional` are libraries that only optional modules need.
    `satellites` are packages that are built for a framework.
    """

    opened: Sequence[DlopenedLibrary] = ()
    optional: Sequence[OptionalLibraries] = ()
    satellites: Sequence[Satellite] = ()


_NO_ROWS = LibraryRows()


def read(
    python: str, paths: PythonPaths, environ: Mapping[str, str], known: LibraryRows = _NO_ROWS
) -> Reading:
    """Read the compiled files of an environment. `python` is its executable."""
    try:
        loader = Loader(python, environ)
    except ElfError as error:
        return Reading(unread=str(error))
    packages = list_packages(paths.sites, paths.prefix)
    work = _Work(loader, paths.version, packages, known)
    for package in packages:
        work.load(package)
    nominated = [n for p in packages if (n := work.nominate(p))]
    return Reading(packages=packages, files=work.count, nominated=tuple(nominated))


class _Work:
    """The files of all packages as the loader would map them."""

    def __init__(self, loader: Loader, version: str, packages: Sequence[Package], known: LibraryRows) -> None:
        self._loader, self._version = loader, version
        self._packages = {p.name: p for p in packages}
        self._opened = known.opened
        self._satellites: dict[str, list[Satellite]] = {}
        for row in known.satellites:
            self._satellites.setdefault(row.package, []).append(row)
        self._optional = {o.package: frozenset(o.libraries) for o in known.optional}
        self._modules: dict[str, list[tuple[str, LoadedFile]]] = {}
        self._others: dict[str, list[LoadedFile]] = {}
        self._damaged: dict[str, list[tuple[str | None, Problem]]] = {}
        self._of_modules: set[str] | None = None
        self._paths: dict[str, str] | None = None
        self._brought: dict[str, frozenset[str]] = {}
        self._requirements: dict[str, frozenset[str]] = {}
        self.count = 0

    def load(self, package: Package) -> None:
        """Read a package's files, and what they need."""
        for path in package.files:
            module = parse_module(path, package.site, self._version)
            if module is None and _TAGGED.search(path):
                continue  # a module of another Python
            if not os.path.lexists(path):
                continue  # the comparison with the lock reports missing files
            name = module[0] if module else None
            elf = self._loader.elf(path, f"PyInit_{name.rpartition('.')[2]}" if name else None)
            if isinstance(elf, ElfError):
                if not elf.foreign:
                    self._note_damage(package, name if module and module[1] else None, path, elf)
                continue
            self.count += 1
            self._keep(package, path, elf, name if module and (module[1] or elf.exports) else None)

    def _note_damage(self, package: Package, module: str | None, path: str, error: ElfError) -> None:
        problem = Problem(
            kind="damaged", file=path, library=os.path.basename(path), found=path, detail=str(error)
        )
        self._damaged.setdefault(package.name, []).append((module, problem))

    def _keep(self, package: Package, path: str, elf: Elf, module: str | None) -> None:
        node = self._loader.load(path, elf)
        if module is None:
            self._others.setdefault(package.name, []).append(node)
        else:
            self._modules.setdefault(package.name, []).append((module, node))

    def nominate(self, package: Package) -> Nominated | None:
        """Return the problems of a package, or None if all of it loads."""
        modules: list[str] = []
        problems: list[Problem] = []
        for name, node in self._modules.get(package.name, ()):
            found = self._find_unmet(package, [node])
            if found:
                modules.append(name)
                problems += found
        for name_, problem in self._damaged.get(package.name, ()):
            modules += [name_] if name_ else []
            problems.append(problem)
        for group in self._group_others(package):
            unmet = [self._find_unmet(package, [node]) for node in group]
            if unmet and all(unmet):
                several = len(group) > 1
                problems += [replace(p, any_of=several) for found in unmet for p in found]
        opened = (row for row in self._opened if row.package == package.name)
        problems += [self._make_absent(row) for row in opened if not self._is_there(row, package)]
        frameworks = {f for f in PROJECT_FRAMEWORKS if f in self._get_required(package)}
        if package.files and (other := self._find_other_framework(package)):
            problems.append(other)
            frameworks.add(str(other.found).partition(" ")[0])
        if not problems:
            return None
        return Nominated(
            package=package, problems=tuple(dict.fromkeys(map(self._locate, problems))), modules=tuple(dict.fromkeys(modules)),
            frameworks=tuple(f for f in PROJECT_FRAMEWORKS if f != package.name and f in frameworks),
        )  # fmt: skip

    def _find_other_framework(self, package: Package) -> Problem | None:
        rows = self._satellites.get(package.name, ())
        versions = {p.name: p.version for p in self._packages.values()}
        mismatch = find_other_framework(package, rows, versions, self._loader.machine) if rows else None
        return mismatch and Problem(
            kind="framework", file=package.files[0], library=mismatch[0], found=mismatch[1]
        )

    # --- what is loaded by then --------------------------------------------------------------------

    def _get_required(self, package: Package) -> frozenset[str]:
        """Return a package, the frameworks whose libraries it needs, and all their requirements.

        Packages that are built for a framework do not always require it in their metadata.
        """
        if package.name not in self._requirements:
            self._requirements[package.name] = self._find_required(package)
        return self._requirements[package.name]

    def _find_required(self, package: Package) -> frozenset[str]:
        nodes = [n for _, n in self._modules.get(package.name, ())] + self._others.get(package.name, [])
        needed = {p.library for n in nodes for p in n.problems if _LINKED.match(p.library)}
        linked = [f for f in PROJECT_FRAMEWORKS if not needed.isdisjoint(self._get_names(f))]
        seen: dict[str, None] = {}
        todo = [package.name, *linked]
        while todo:
            name = todo.pop()
            if name not in seen and name in self._packages:
                seen[name] = None
                todo += self._packages[name].requires_always(self._version)
        return frozenset(seen)

    def _get_names(self, name: str) -> frozenset[str]:
        """Return the library names under which other files find a package's files."""
        if name not in self._brought:
            nodes = [n for _, n in self._modules.get(name, ())] + self._others.get(name, [])
            self._brought[name] = frozenset(x for n in nodes for x in list_names_of(n))
        return self._brought[name]

    def _list_loaded_by_torch(self) -> frozenset[str]:
        """Return the names of the NVIDIA libraries that torch loads, whichever package installed their wheels.

        See _preload_cuda_deps in torch/__init__.py: nvidia/NAME/lib in each folder of sys.path.
        """
        wheels = (n for n in self._packages if n.startswith("nvidia-"))
        nodes = (n for name in wheels for n in self._others.get(name, ()) if _PRELOADED.search(n.path))
        return frozenset(x for n in nodes for x in list_names_of(n))

    def _find_unmet(self, package: Package, roots: Iterable[LoadedFile]) -> list[Problem]:
        """Return the problems of files and of everything that they need.

        Libraries that the package or its requirements have loaded by then are no problem. Neither are those
        that only optional modules need.
        """
        optional = self._optional.get(package.name, frozenset())
        roots = list(roots)
        problems = [p for node in list_reached(roots) for p in node.problems if not _is_optional(p, optional)]
        problems += [p for node in roots for p in find_undefined(node, self._packages.get("torch"))]
        if not problems:
            return []
        required = self._get_required(package)
        loaded = frozenset[str]().union(
            *(self._get_names(n) for n in (*required, *self._list_searched(package)))
        )
        loaded |= self._list_loaded_by_torch() if "torch" in required else frozenset()
        return [p for p in problems if p.kind != "missing" or p.library not in loaded]

    def _list_searched(self, package: Package) -> list[str]:
        """Return the NVIDIA wheels in which a package searches libraries: all, if it requires cuda-pathfinder."""
        searches = _PATHFINDER in package.requires_always(self._version)
        return [n for n in self._packages if n.startswith("nvidia-")] if searches else []

    def _locate(self, problem: Problem) -> Problem:
        """Return the problem with the path of the library, if a package here contains it and it is NVIDIA's."""
        if problem.kind != "missing" or not name_nvidia_wheel(problem.library):
            return problem
        if self._paths is None:
            self._paths = {f.rpartition("/")[2]: f for p in self._packages.values() for f in p.files}
        path = self._paths.get(problem.library)
        return replace(problem, kind="unsearched", found=path) if path and os.path.exists(path) else problem

    # --- libraries that a package opens ------------------------------------------------------------

    def _group_others(self, package: Package) -> list[list[LoadedFile]]:
        """Return the libraries that no module needs, by folder. A package opens one of each folder, or none.

        All plug-ins of a program are alternatives, whatever their kind. So are all libraries of a package
        without modules.
        """
        if self._of_modules is None:
            roots = [n for nodes in self._modules.values() for _, n in nodes]
            self._of_modules = {n.path for n in list_reached(roots)}
        groups: dict[str, list[LoadedFile]] = {}
        for node in self._others.get(package.name, ()):
            if node.path not in self._of_modules or package.name not in self._modules:
                folder = _PLUGINS.split(os.path.dirname(node.path))[0]
                groups.setdefault(folder, []).append(node)
        return list(groups.values())

    def _is_there(self, row: DlopenedLibrary, package: Package) -> bool:
        if row.bundled and any(re.search(row.bundled, f) and os.path.exists(f) for f in package.files):
            return True
        return any(self._loader.finds(rf"{re.escape(n)}(\.\d+)*") for n in row.library.split())

    def _make_absent(self, row: DlopenedLibrary) -> Problem:
        return Problem(kind="missing", file=row.package, library=row.library.split()[0])


_PRELOADED = re.compile(
    r"/nvidia/(?:cublas|cudnn|cuda_nvrtc|cuda_runtime|cuda_cupti|cufft|curand|nvjitlink|cusparse|cusparselt|cusolver"
    r"|nccl|nvshmem|cufile|nvtx)/lib/[^/]+$"
)


def _is_optional(problem: Problem, optional: frozenset[str]) -> bool:
    return problem.kind == "missing" and problem.library[3:].partition(".so")[0] in optional
