"""Which installed packages need a library that the loader does not find: nominated by reading their files alone."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from ...model import PROJECT_FRAMEWORKS, DlopenedLibrary, OptionalLibraries, Satellite
from ...system.elf import Elf, ElfError
from .compiled_files import Package, installed, module_of
from .loader_search import LoadedFile, Loader, Problem, names_of, reached
from .measured_releases import other_framework

_TAGGED = re.compile(r"\.cpython-[\w-]+\.so$|\.pypy[\w-]+\.so$")
"""The names of extension modules, which are not opened as libraries."""
_LINKED = re.compile(r"lib(torch|c10|tensorflow)")
"""The libraries of frameworks that packages are linked with."""
_PATHFINDER = "cuda-pathfinder"
"""NVIDIA's package that loads the libraries of its wheels by name."""
_PLUGINS = re.compile(r"/(?:plugins|qml)(?:/|$)")


@dataclass(frozen=True, kw_only=True, slots=True)
class Nominated:
    """A package that may not load. `modules` are the extension modules concerned; empty where the package opens
    the libraries. `frameworks` are imported before it."""

    package: Package
    problems: tuple[Problem, ...]
    modules: tuple[str, ...] = ()
    frameworks: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Reading:
    """What was read: how many packages and files, and what is nominated. `unread` says why nothing was read."""

    packages: tuple[Package, ...] = ()
    files: int = 0
    nominated: tuple[Nominated, ...] = ()
    unread: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class LibraryRows:
    """Rows of the profiles: libraries that packages open by name, those that only optional modules need, and packages
    that are built for a framework."""

    opened: Sequence[DlopenedLibrary] = ()
    optional: Sequence[OptionalLibraries] = ()
    satellites: Sequence[Satellite] = ()


_NO_ROWS = LibraryRows()


def read(
    python: str,
    version: str,
    sites: Sequence[str],
    prefix: str,
    environ: Mapping[str, str],
    known: LibraryRows = _NO_ROWS,
) -> Reading:
    """Read the compiled files of an environment. `python` is its executable, of `version`."""
    try:
        loader = Loader(python, environ)
    except ElfError as error:
        return Reading(unread=str(error))
    packages = installed(sites, prefix)
    work = _Work(loader, version, packages, known)
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
        self._brought: dict[str, frozenset[str]] = {}
        self._requirements: dict[str, frozenset[str]] = {}
        self.count = 0

    def load(self, package: Package) -> None:
        """Read a package's files, and what they need."""
        for path in package.files:
            module = module_of(path, package.site, self._version)
            if module is None and _TAGGED.search(path):
                continue  # another Python's
            if not os.path.lexists(path):
                continue  # what is missing is named by the comparison with the lock
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
        """What of a package may not load; None where all does."""
        modules: list[str] = []
        problems: list[Problem] = []
        for name, node in self._modules.get(package.name, ()):
            found = self._unmet(package, [node])
            if found:
                modules.append(name)
                problems += found
        for name_, problem in self._damaged.get(package.name, ()):
            modules += [name_] if name_ else []
            problems.append(problem)
        for group in self._groups(package):
            unmet = [self._unmet(package, [node]) for node in group]
            if unmet and all(unmet):
                several = len(group) > 1
                problems += [replace(p, any_of=several) for found in unmet for p in found]
        opened = (row for row in self._opened if row.package == package.name)
        problems += [self._absent(row) for row in opened if not self._is_there(row, package)]
        frameworks = {f for f in PROJECT_FRAMEWORKS if f in self._required(package)}
        if package.files and (other := self._other_framework(package)):
            problems.append(other)
            frameworks.add(str(other.found).partition(" ")[0])
        if not problems:
            return None
        return Nominated(
            package=package, problems=tuple(dict.fromkeys(problems)), modules=tuple(dict.fromkeys(modules)),
            frameworks=tuple(f for f in PROJECT_FRAMEWORKS if f != package.name and f in frameworks),
        )  # fmt: skip

    def _other_framework(self, package: Package) -> Problem | None:
        rows = self._satellites.get(package.name, ())
        versions = {p.name: p.version for p in self._packages.values()}
        mismatch = other_framework(package, rows, versions, self._loader.machine) if rows else None
        return mismatch and Problem(
            kind="framework", file=package.files[0], library=mismatch[0], found=mismatch[1]
        )

    # --- what is loaded by then --------------------------------------------------------------------

    def _required(self, package: Package) -> frozenset[str]:
        """A package, the frameworks whose libraries it needs, and all that they always require: packages that are
        built for a framework do not always say so."""
        if package.name not in self._requirements:
            self._requirements[package.name] = self._requirements_of(package)
        return self._requirements[package.name]

    def _requirements_of(self, package: Package) -> frozenset[str]:
        nodes = [n for _, n in self._modules.get(package.name, ())] + self._others.get(package.name, [])
        needed = {p.library for n in nodes for p in n.problems if _LINKED.match(p.library)}
        linked = [f for f in PROJECT_FRAMEWORKS if not needed.isdisjoint(self._names(f))]
        seen: dict[str, None] = {}
        todo = [package.name, *linked]
        while todo:
            name = todo.pop()
            if name not in seen and name in self._packages:
                seen[name] = None
                todo += self._packages[name].requires_always(self._version)
        return frozenset(seen)

    def _names(self, name: str) -> frozenset[str]:
        """The names by which a package's own files satisfy needs."""
        if name not in self._brought:
            nodes = [n for _, n in self._modules.get(name, ())] + self._others.get(name, [])
            self._brought[name] = frozenset(x for n in nodes for x in names_of(n))
        return self._brought[name]

    def _loaded_by_torch(self) -> frozenset[str]:
        """The names of NVIDIA's libraries that torch loads itself, whoever brought their wheels (torch/__init__.py,
        _preload_cuda_deps: nvidia/NAME/lib in each folder of sys.path)."""
        wheels = (n for n in self._packages if n.startswith("nvidia-"))
        nodes = (n for name in wheels for n in self._others.get(name, ()) if _PRELOADED.search(n.path))
        return frozenset(x for n in nodes for x in names_of(n))

    def _unmet(self, package: Package, roots: Iterable[LoadedFile]) -> list[Problem]:
        """The problems of files and all that they need, but for libraries that the package, or what it requires,
        has loaded by then, and for those that only optional modules of it need."""
        optional = self._optional.get(package.name, frozenset())
        problems = [p for node in reached(roots) for p in node.problems if not _is_optional(p, optional)]
        if not problems:
            return []
        required = self._required(package)
        loaded = frozenset[str]().union(*(self._names(n) for n in (*required, *self._searched(package))))
        loaded |= self._loaded_by_torch() if "torch" in required else frozenset()
        return [p for p in problems if p.kind != "missing" or p.library not in loaded]

    def _searched(self, package: Package) -> list[str]:
        """The wheels of NVIDIA's in which a package searches for libraries: all, where it requires what does that."""
        searches = _PATHFINDER in package.requires_always(self._version)
        return [n for n in self._packages if n.startswith("nvidia-")] if searches else []

    # --- libraries that a package opens ------------------------------------------------------------

    def _groups(self, package: Package) -> list[list[LoadedFile]]:
        """The libraries that no module needs, by folder: a package opens one of each folder, or none. All plug-ins of a
        program are alternatives, whatever their kind; so are all libraries of a package without modules, of which
        others need some."""
        if self._of_modules is None:
            roots = [n for nodes in self._modules.values() for _, n in nodes]
            self._of_modules = {n.path for n in reached(roots)}
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

    def _absent(self, row: DlopenedLibrary) -> Problem:
        return Problem(kind="missing", file=row.package, library=row.library.split()[0])


_PRELOADED = re.compile(
    r"/nvidia/(?:cublas|cudnn|cuda_nvrtc|cuda_runtime|cuda_cupti|cufft|curand|nvjitlink|cusparse|cusparselt|cusolver"
    r"|nccl|nvshmem|cufile|nvtx)/lib/[^/]+$"
)


def _is_optional(problem: Problem, optional: frozenset[str]) -> bool:
    return problem.kind == "missing" and problem.library[3:].partition(".so")[0] in optional
