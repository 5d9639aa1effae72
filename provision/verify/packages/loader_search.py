"""Searches libraries as the dynamic loader of glibc does (ld.so(8), elf/dl-load.c of glibc)."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ...system.elf import MACHINES, Elf, ElfError, read_elf
from ...system.loader_cache import loader_cache

_GLIBC = re.compile(r"/ld-linux[\w-]*\.so\.\d+$")
_MULTIARCH = {"x86_64": "x86_64-linux-gnu", "aarch64": "aarch64-linux-gnu"}
_TOKEN = re.compile(r"\$(?:\{(ORIGIN|LIB|PLATFORM)\}|(ORIGIN|LIB|PLATFORM)(?!\w))")


OF_FRAMEWORK = ("framework", "symbol")
"""The kinds of problems of files that were built for another release of a framework."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Problem:
    """Why the loader refuses a file. `file` needs `library`. `kind` is missing, unsearched, version, damaged,
    framework, or symbol.

    The kind unsearched is a library of the environment in a folder that the loader does not search. The kinds
    framework and symbol are files that were built for another release of a framework. `found` is the path of the
    library, or the installed framework. `detail` is the missing version or symbol, or the damage. With `any_of` the file
    is one of several alternatives.
    """

    kind: str
    file: str
    library: str
    found: str | None = None
    detail: str = ""
    any_of: bool = False


@dataclass(eq=False, slots=True)
class LoadedFile:
    """A file as the loader would map it. `inherited` are the RPATH folders of the file that loads it."""

    path: str
    elf: Elf
    inherited: tuple[str, ...]
    needs: list[LoadedFile] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)


class Loader:
    """The library search of one process: that of the environment's Python."""

    def __init__(self, executable: str, environ: Mapping[str, str], root: Path = Path("/")) -> None:
        """Read the executable and its libraries. Raise ElfError if it does not use the loader of glibc."""
        path = os.path.realpath(executable)
        elf = read_elf(path)
        if elf.machine not in MACHINES or not _GLIBC.search(elf.interpreter or ""):
            raise ElfError(f"{path} does not use the loader of glibc")
        self._machine, self._name = elf.machine, MACHINES[elf.machine]
        self._files: dict[str, Elf | ElfError] = {path: elf}
        self._folders: dict[str, frozenset[str]] = {}
        self._nodes: dict[tuple[str, tuple[str, ...]], LoadedFile] = {}
        self._paths: dict[tuple[str, str], tuple[str, ...]] = {}
        self._cache: dict[str, list[str]] = {}
        for soname, file in loader_cache(root, self._name):
            self._cache.setdefault(soname, []).append(file)
        entries = re.split("[:;]", environ.get("LD_LIBRARY_PATH", ""))
        self._variable = tuple(self._expand_tokens(f, "/") for f in entries if f.startswith(("/", "$")))
        self._defaults = tuple(
            f"{top}{tail}"
            for tail in (f"/{_MULTIARCH[self._name]}", "64", "")
            for top in ("/lib", "/usr/lib")
        )
        self._loaded: dict[str, LoadedFile] = {}
        self._base: tuple[str, ...] = ()
        program = self._load(path, elf, ())
        self._loaded = {name: n for n in list_reached([program]) for name in list_names_of(n)}
        python = [n for n in self._loaded.values() if os.path.basename(n.path).startswith("libpython")]
        self._base = tuple(dict.fromkeys(f for n in (*python, program) for f in self._get_rpath(n)))

    @property
    def machine(self) -> str:
        """The machine of the process: "x86_64"."""
        return self._name

    def elf(self, path: str, symbol: str | None = None) -> Elf | ElfError:
        """Return the ELF headers of a file, or the error that kept them from being read."""
        if path not in self._files:
            try:
                self._files[path] = read_elf(path, symbol)
            except ElfError as error:
                self._files[path] = error
        return self._files[path]

    def load(self, path: str, elf: Elf) -> LoadedFile:
        """Load a file that Python or a package opens, with everything that it needs."""
        return self._load(path, elf, self._base)

    def finds(self, pattern: str) -> bool:
        """Return whether a library name matches one that is loaded, in the cache, or in a folder searched for
        every program."""
        match = re.compile(pattern).fullmatch
        folders = (*self._base, *self._variable, *self._defaults)
        names = (n for f in folders for n in self._list_names(f))
        return any(match(n) for n in (*self._loaded, *self._list_cached(), *names))

    def _list_cached(self) -> Iterator[str]:
        return (name for name, files in self._cache.items() if any(os.path.exists(f) for f in files))

    def _load(self, path: str, elf: Elf, inherited: tuple[str, ...]) -> LoadedFile:
        first = self._get_node(path, elf, inherited)
        todo = [first]
        while todo:
            node = todo.pop()
            if node.needs or node.problems:
                continue
            todo += self._resolve(node)
        return first

    def _get_node(self, path: str, elf: Elf, inherited: tuple[str, ...]) -> LoadedFile:
        key = path, inherited
        if key not in self._nodes:
            self._nodes[key] = LoadedFile(path, elf, inherited)
        return self._nodes[key]

    def _resolve(self, node: LoadedFile) -> list[LoadedFile]:
        """Look up the libraries that a file needs. Return the files found."""
        versions: dict[str, list[str]] = {}
        for required in node.elf.requires:
            versions.setdefault(required.library, []).append(required.name)
        below = (*self._get_rpath(node), *node.inherited)
        for name in node.elf.needed:
            target = self._loaded.get(name) or self._find_library(node, name, tuple(dict.fromkeys(below)))
            if isinstance(target, Problem):
                node.problems.append(target)
                continue
            node.needs.append(target)
            defined = target.elf.defines
            for version in versions.get(name, ()) if defined else ():
                if version not in defined:
                    node.problems.append(
                        Problem(
                            kind="version", file=node.path, library=name, found=target.path, detail=version
                        )
                    )
        return node.needs

    def _find_library(self, node: LoadedFile, name: str, inherited: tuple[str, ...]) -> LoadedFile | Problem:
        for path in self._list_candidates(node, name):
            elf = self.elf(path)
            if isinstance(elf, ElfError):
                if elf.foreign:
                    continue
                return Problem(kind="damaged", file=node.path, library=name, found=path, detail=str(elf))
            if elf.machine == self._machine:
                return self._get_node(path, elf, inherited)
        return Problem(kind="missing", file=node.path, library=name)

    def _list_candidates(self, node: LoadedFile, name: str) -> Iterator[str]:
        if "/" in name:
            yield self._expand_tokens(name, node.path)
            return
        folders: tuple[str, ...] = ()
        if node.elf.runpath is None:
            folders = (*self._get_rpath(node), *node.inherited, *self._base)
        yield from self._search_folders(folders, name)
        yield from self._search_folders(self._variable, name)
        yield from self._search_folders(self._split_folders(node.elf.runpath, node.path), name)
        if node.elf.default_folders:
            yield from (f for f in self._cache.get(name, ()) if os.path.exists(f))
            yield from self._search_folders(self._defaults, name)

    def _search_folders(self, folders: Iterable[str], name: str) -> Iterator[str]:
        return (f"{f}/{name}" for f in dict.fromkeys(folders) if name in self._list_names(f))

    def _list_names(self, folder: str) -> frozenset[str]:
        if folder not in self._folders:
            try:
                self._folders[folder] = frozenset(os.listdir(folder))
            except (OSError, ValueError):
                self._folders[folder] = frozenset()
        return self._folders[folder]

    def _get_rpath(self, node: LoadedFile) -> tuple[str, ...]:
        """Return the folders of a file's RPATH. The loader ignores it if the file has a RUNPATH."""
        return () if node.elf.runpath is not None else self._split_folders(node.elf.rpath, node.path)

    def _split_folders(self, text: str | None, path: str) -> tuple[str, ...]:
        """Return the absolute folders of an RPATH or RUNPATH. Relative ones depend on the working directory."""
        if not text:
            return ()
        key = text, path.rpartition("/")[0]
        if key not in self._paths:
            folders = (self._expand_tokens(f, path) for f in text.split(":") if f)
            self._paths[key] = tuple(f for f in folders if f.startswith("/"))
        return self._paths[key]

    def _expand_tokens(self, text: str, path: str) -> str:
        if "$" not in text:
            return text
        multiarch = f"lib/{_MULTIARCH[self._name]}"
        library = multiarch if os.path.isdir(f"/usr/{multiarch}") else "lib64"
        values = {"ORIGIN": os.path.dirname(path), "LIB": library, "PLATFORM": self._name}
        return os.path.normpath(_TOKEN.sub(lambda m: values[m[1] or m[2]], text))


def list_names_of(node: LoadedFile) -> tuple[str, ...]:
    """Return the names under which other files find a loaded file."""
    name = os.path.basename(node.path)
    return (name, node.elf.soname) if node.elf.soname else (name,)


def list_reached(roots: Iterable[LoadedFile]) -> list[LoadedFile]:
    """Return the files and everything that they need."""
    seen: dict[LoadedFile, None] = {}
    todo = list(roots)
    while todo:
        node = todo.pop()
        if node not in seen:
            seen[node] = None
            todo += node.needs
    return list(seen)
