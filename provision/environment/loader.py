"""What the dynamic loader does with the compiled files of installed packages.

It lists these files, and searches the libraries that they need as the loader of glibc does (ld.so(8), elf/dl-load.c
of glibc).
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from pathlib import Path

from packaging.markers import UndefinedEnvironmentName
from packaging.requirements import InvalidRequirement, Requirement

from ..index.wheel_names import applies
from ..model import WHEEL_NAMES, normalize_name
from ..model.values import Value
from ..system.elf import MACHINES, Elf, ElfError, list_unexported, loader_cache, read_elf
from ..system.versions import minor
from .distributions import (
    Distribution,
    join_row,
    list_conda_records,
    list_distributions,
    list_names,
)

_ROW = re.compile(r"^([^,\"\n]+\.so(?:\.[0-9]+)*),", re.MULTILINE)
_TOP = re.compile(r"^([A-Za-z_]\w*)(?:/__init__)?\.(?:py|so|[\w-]+\.so),", re.MULTILINE)
_DEPENDS = re.compile(r'"depends": ?\[([^\]]*)\]')
_META = re.compile(r'"_path": ?"(lib/python3[^/"]*/site-packages/[^"]+\.so(?:\.[0-9]+)*)"')


class Package(Value, kw_only=False):
    """An installed package. `files` are the absolute paths of its shared libraries.

    `site` is the folder that Python imports them from. A conda package has no `info`, and has `depends`.
    """

    name: str
    version: str
    site: str
    files: tuple[str, ...]
    info: Distribution | None = None
    depends: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.name} {self.version}"

    @cached_property
    def requires(self) -> tuple[str, ...]:
        """The names of its requirements, whatever their markers."""
        return tuple(dict.fromkeys((*self.depends, *(self.info.requires if self.info else ()))))

    def requires_always(self, python: str) -> tuple[str, ...]:
        """Return the names of its requirements on this machine without extras, for a version of Python."""
        rows = self.info.requirements if self.info else ()
        named = (_name_if_required(row, python) for row in rows)
        return tuple(dict.fromkeys((*self.depends, *filter(None, named))))

    @cached_property
    def modules(self) -> tuple[str, ...]:
        """The top-level modules that it contains."""
        return tuple(dict.fromkeys(_TOP.findall(self.info.record_text if self.info else "")))


def _name_if_required(row: str, python: str) -> str | None:
    try:
        needed = Requirement(row)
        values = {"python_version": minor(python), "python_full_version": python}
        return normalize_name(needed.name) if applies(needed.marker, values) else None
    except (InvalidRequirement, UndefinedEnvironmentName):
        return None


def list_packages(sites: Sequence[str], prefix: str) -> tuple[Package, ...]:
    """Return the packages with their compiled files, from conda-meta and from RECORD. Each file has one owner."""
    claimed: set[str] = set()
    packages = []
    for package in (*_read_conda(prefix, sites), *_read_records(sites)):
        files = tuple(f for f in package.files if f not in claimed)
        claimed.update(files)
        packages.append(replace(package, files=files))
    return tuple(packages)


def _read_records(sites: Sequence[str]) -> Iterator[Package]:
    for site in sites:
        for one in list_distributions(site):
            yield Package(one.name, one.version, site, _join_paths(site, _ROW.findall(one.record_text)), one)


def _read_conda(prefix: str, sites: Sequence[str]) -> Iterator[Package]:
    """Yield the packages in conda-meta with files in site-packages. A conda package may have no RECORD."""
    for record in list_conda_records(Path(prefix)):
        text = record.text
        files = _join_paths(prefix, _META.findall(text))
        site = next((s for s in sites if files and files[0].startswith(f"{s}/")), None)
        if site:
            words = re.findall(r'"([\w.-]+)', next(iter(_DEPENDS.findall(text)), ""))
            name, *depends = (normalize_name(WHEEL_NAMES.get(n, n)) for n in (record.name, *words))
            yield Package(name, record.version, site, files, depends=tuple(depends))


def _join_paths(folder: str, rows: Iterable[str]) -> tuple[str, ...]:
    return tuple(join_row(folder, row) for row in rows if "\0" not in row)


def parse_module(path: str, site: str, python: str) -> tuple[str, bool] | None:
    """Return the module that Python `python` ("3.12.4") imports from a file, and whether the name alone shows
    it.

    A plain ".so" is a module only if it exports its PyInit function. Return None if the file is a module of
    another Python, or no module.
    """
    if not path.startswith(f"{site}/"):
        return None
    *parents, name = path[len(site) + 1 :].split("/")
    stem, _, suffix = name.partition(".")
    tag = f"cpython-{''.join(python.split('.')[:2])}"
    tagged = suffix == "abi3.so" or re.fullmatch(rf"{tag}(-[\w-]+)?\.so", suffix) is not None
    if not (tagged or suffix == "so") or not all(p.isidentifier() for p in (*parents, stem)):
        return None
    return ".".join((*parents, stem)), tagged


# --- the search for libraries --------------------------------------------------------------------

_GLIBC = re.compile(r"/ld-linux[\w-]*\.so\.\d+$")
_MULTIARCH = {"x86_64": "x86_64-linux-gnu", "aarch64": "aarch64-linux-gnu"}
_TOKEN = re.compile(r"\$(?:\{(ORIGIN|LIB|PLATFORM)\}|(ORIGIN|LIB|PLATFORM)(?!\w))")
FRAMEWORK_KINDS = ("framework", "symbol")
"""The kinds of problems of files that were built for another release of a framework."""


class Problem(Value, kw_only=False):
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


@dataclasses.dataclass(eq=False, slots=True)
class LoadedFile:
    """A file as the loader would map it. `inherited` are the RPATH folders of the file that loads it."""

    path: str
    elf: Elf
    inherited: tuple[str, ...]
    needs: list[LoadedFile] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)

    @property
    def names(self) -> tuple[str, ...]:
        """The names under which other files find it."""
        name = os.path.basename(self.path)
        return (name, self.elf.soname) if self.elf.soname else (name,)


def list_reached(roots: Iterable[LoadedFile]) -> list[LoadedFile]:
    """Return the files and everything that they need."""
    reached: dict[LoadedFile, None] = {}
    todo = list(roots)
    while todo:
        node = todo.pop()
        if node not in reached:
            reached[node] = None
            todo += node.needs
    return list(reached)


class Loader:
    """The library search of one process: that of the environment's Python, on a `machine` as "x86_64"."""

    def __init__(self, executable: str, environ: Mapping[str, str], root: Path = Path("/")) -> None:
        """Read the executable and its libraries. Raise ElfError if it does not use the loader of glibc."""
        path = os.path.realpath(executable)
        elf = read_elf(path)
        if elf.machine not in MACHINES or not _GLIBC.search(elf.interpreter or ""):
            raise ElfError(f"{path} does not use the loader of glibc")
        self.machine, self._elf_machine = MACHINES[elf.machine], elf.machine
        self._files: dict[str, Elf | ElfError] = {path: elf}
        self._folders: dict[str, frozenset[str]] = {}
        self._nodes: dict[tuple[str, tuple[str, ...]], LoadedFile] = {}
        self._paths: dict[tuple[str, str], tuple[str, ...]] = {}
        self._cache: dict[str, list[str]] = {}
        for soname, file in loader_cache(root, self.machine):
            self._cache.setdefault(soname, []).append(file)
        entries = re.split("[:;]", environ.get("LD_LIBRARY_PATH", ""))
        self._variable = tuple(self._expand_tokens(f, "/") for f in entries if f.startswith(("/", "$")))
        tails = (f"/{_MULTIARCH[self.machine]}", "64", "")
        self._defaults = tuple(f"{top}{tail}" for tail in tails for top in ("/lib", "/usr/lib"))
        self._loaded: dict[str, LoadedFile] = {}
        self._base: tuple[str, ...] = ()
        program = self.load(path, elf)
        self._loaded = {name: n for n in list_reached([program]) for name in n.names}
        python = [n for n in self._loaded.values() if os.path.basename(n.path).startswith("libpython")]
        self._base = tuple(dict.fromkeys(f for n in (*python, program) for f in self._get_rpath(n)))

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
        first = self._get_node(path, elf, self._base)
        todo = [first]
        while todo:
            node = todo.pop()
            if not node.needs and not node.problems:
                self._resolve(node)
                todo += node.needs
        return first

    def finds(self, pattern: str) -> bool:
        """Return whether a library name matches one that is loaded, in the cache, or in a folder searched for
        every program."""
        match = re.compile(pattern).fullmatch
        cached = (name for name, files in self._cache.items() if any(map(os.path.exists, files)))
        folders = (*self._base, *self._variable, *self._defaults)
        names = (n for f in folders for n in self._list_names(f))
        return any(match(n) for known in (self._loaded, cached, names) for n in known)

    def _get_node(self, path: str, elf: Elf, inherited: tuple[str, ...]) -> LoadedFile:
        return self._nodes.setdefault((path, inherited), LoadedFile(path, elf, inherited))

    def _resolve(self, node: LoadedFile) -> None:
        """Look up the libraries that a file needs."""
        versions: dict[str, list[str]] = {}
        for required in node.elf.requires:
            versions.setdefault(required.library, []).append(required.name)
        inherited = tuple(dict.fromkeys((*self._get_rpath(node), *node.inherited)))
        for name in node.elf.needed:
            target = self._loaded.get(name) or self._find_library(node, name, inherited)
            if isinstance(target, Problem):
                node.problems.append(target)
                continue
            node.needs.append(target)
            defined = target.elf.defines
            node.problems += [
                Problem("version", node.path, name, target.path, version)
                for version in (versions.get(name, ()) if defined else ())
                if version not in defined
            ]

    def _find_library(self, node: LoadedFile, name: str, inherited: tuple[str, ...]) -> LoadedFile | Problem:
        for path in self._list_candidates(node, name):
            elf = self.elf(path)
            if not isinstance(elf, ElfError):
                if elf.machine == self._elf_machine:
                    return self._get_node(path, elf, inherited)
            elif not elf.foreign:
                return Problem("damaged", node.path, name, path, str(elf))
        return Problem("missing", node.path, name)

    def _list_candidates(self, node: LoadedFile, name: str) -> Iterator[str]:
        if "/" in name:
            yield self._expand_tokens(name, node.path)
            return
        if node.elf.runpath is None:
            yield from self._search((*self._get_rpath(node), *node.inherited, *self._base), name)
        yield from self._search(self._variable, name)
        yield from self._search(self._split_folders(node.elf.runpath, node.path), name)
        if node.elf.default_folders:
            yield from (f for f in self._cache.get(name, ()) if os.path.exists(f))
            yield from self._search(self._defaults, name)

    def _search(self, folders: Iterable[str], name: str) -> Iterator[str]:
        return (f"{f}/{name}" for f in dict.fromkeys(folders) if name in self._list_names(f))

    def _list_names(self, folder: str) -> frozenset[str]:
        if folder not in self._folders:
            self._folders[folder] = frozenset(list_names(folder))
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
        multiarch = f"lib/{_MULTIARCH[self.machine]}"
        library = multiarch if os.path.isdir(f"/usr/{multiarch}") else "lib64"
        values = {"ORIGIN": os.path.dirname(path), "LIB": library, "PLATFORM": self.machine}
        return os.path.normpath(_TOKEN.sub(lambda m: values[m[1] or m[2]], text))


# --- symbols of torch ----------------------------------------------------------------------------

_TORCH_LIBRARY = re.compile(r"lib(?:torch|c10)")
"""The libraries of torch that extensions are linked with."""
_SYMBOL = re.compile(r"_Z(?:T[ISV])?NK?(?:3c10|2at|5torch|6caffe2)|aoti_torch_")
"""Symbols of torch's namespaces, as the Itanium C++ ABI mangles them, and of its stable interface."""


def find_undefined(node: LoadedFile, torch: Package | None) -> list[Problem]:
    """Return the first symbol of torch that a file linked with torch requires and no library exports.

    `torch` is the installed package. If one of its libraries cannot be read, nothing is known.
    """
    if torch is None or node.path in torch.files or not any(map(_TORCH_LIBRARY.match, node.elf.needed)):
        return []
    own = [f for f in torch.files if _TORCH_LIBRARY.match(os.path.basename(f)) and os.path.exists(f)]
    needed = [n.path for n in list_reached([node]) if n is not node]
    try:
        symbols = list_unexported(node.path, dict.fromkeys((*own, *needed)), _SYMBOL) if own else ()
    except ElfError:
        return []
    return [Problem("symbol", node.path, torch.name, str(torch), name) for name in symbols[:1]]
