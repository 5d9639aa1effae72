"""Looks up what packages need that compile when they run: a compiler, Python.h, nvcc, files of CUDA, and a cache.

profiles/toolkits.yaml names the packages. Only files are looked up, and no program is started.
"""

from __future__ import annotations

import glob
import os
import re
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path

from ..environment.loader import Package
from ..model import CudaCompiler, Environment, Evidence, Finding, Profiles, RuntimeCompiler, format_cuda
from ..model.values import Value
from ..profiles.wording import fill_text, find_fix, make_finding
from ..system.versions import major, minor
from .fixes import make_pip_command, read_distribution
from .libraries import PythonPaths, read_cuda, search_file

_PROGRAMS = {
    "cc": ("a C compiler", "CC", ("gcc", "clang")),  # as Triton looks for it
    "cxx": ("a C++ compiler", "CXX", ("g++", "c++")),
    "ninja": ("ninja", "", ("ninja",)),
}
_UNSUITABLE, _TOOLKIT = "host_compiler_unsuitable", "build_toolkit_missing_or_mismatched"


class Lack(Value):
    """What compiling needs and the system lacks. `cause` has the fix, for the conditions `known` and `slots`.
    Instead of that, `install` is a requirement that brings it, or `fix` says what to do."""

    what: str
    evidence: Evidence
    cause: str = ""
    known: tuple[str, ...] = ()
    slots: Mapping[str, str] = field(default_factory=dict)
    install: str = ""
    fix: str = ""


Lacks = Mapping[str, Sequence[Lack]]
"""What is lacking, by the program or package that needs it."""


def find_lacks(
    packages: Sequence[Package], paths: PythonPaths, environ: Mapping[str, str], rows: Profiles
) -> Lacks:
    """Return what the installed packages lack that compile when they run."""
    installed = {p.name: p for p in packages}
    place = _Place(environ, paths, rows.compilers)
    return {
        f"{package} ({row.does})": lacks
        for row in rows.runtime_compilers
        if (package := installed.get(row.package))
        and not installed.keys() & row.unless
        and (lacks := list(place.find_lacks(row, package)))
    }


def find_compiler(tool: str, path: str, environ: Mapping[str, str]) -> Lack | None:
    """Return None if a program of `tool` ("cc", "cxx", "ninja") is on a search path. A variable can name it."""
    what, variable, names = _PROGRAMS[tool]
    named = environ.get(variable, "").split()[:1]
    if any(shutil.which(name, path=path) for name in named or names):
        return None
    shown = Evidence(f"not on PATH: {', '.join(named or names)}", variable if named else "PATH")
    if tool == "ninja":
        return Lack(what=what, evidence=shown, install=tool)
    return Lack(what=what, evidence=shown, cause=_UNSUITABLE, known=("rule=c-compiler-missing",))


def find_headers(include: str, python: str) -> Lack | None:
    """Return None if a folder has Python.h. `python` is the version ("3.12")."""
    if (Path(include) / "Python.h").is_file():
        return None
    return Lack(
        what=f"Python.h of Python {python}", evidence=Evidence(f"Python.h is not in {include}", "sysconfig"),
        cause=_UNSUITABLE,
        known=("rule=python-headers-missing",), slots={"python": python},
    )  # fmt: skip


def make_lack_finding(lacks: Lacks, env: Environment, sites: Sequence[str] = ()) -> Finding:
    """Return one finding on all that is lacking. Installed one by one, each would reveal the next."""
    each = {lack.what: lack for found in lacks.values() for lack in found}
    known = [*read_distribution().conditions, *(["manager=conda"] if env.manager == "conda" else [])]
    steps = [x.fix or find_fix(x.cause, [*known, *x.known], x.slots) for x in each.values() if not x.install]
    if install := [x.install for x in each.values() if x.install]:
        steps.append(f"{make_pip_command(env, sites, install)}.")
    return make_finding(
        "compiler_parts_missing", tuple(x.evidence for x in each.values()), cause=next((x.cause for x in each.values() if x.cause), None), program=" and ".join(lacks), needs="needs" if len(lacks) == 1 else "need",
        tools=" and ".join(each), steps=" ".join(dict.fromkeys(steps)),
    )  # fmt: skip


class _Place:
    """Where packages of one environment look for what they need."""

    def __init__(
        self, environ: Mapping[str, str], paths: PythonPaths, compilers: Sequence[CudaCompiler]
    ) -> None:
        self._environ, self._paths, self._compilers = environ, paths, compilers
        self._path = os.pathsep.join((f"{paths.prefix}/bin", environ.get("PATH", os.defpath)))

    def find_lacks(self, row: RuntimeCompiler, package: Package) -> Iterator[Lack]:
        for tool in row.needs:
            if tool == "headers":
                lack = find_headers(self._paths.include, minor(self._paths.version))
            else:
                lack = self._find_nvcc() if tool == "nvcc" else find_compiler(tool, self._path, self._environ)
            if lack:
                yield lack
        if row.file and not any(map(self._finds, row.places)):
            named = {"package": package.name, "version": package.version}
            requirement = fill_text(row.brings or "{package}=={version}", named, sentence=False)
            shown = Evidence(f"{package}: {row.file} is in none of {', '.join(row.places)}", "files")
            yield Lack(what=row.file, evidence=shown, install=requirement)
        if row.cache and (folder := self._find_unwritable(row.cache)):
            variable = row.cache[0].split("/")[0].lstrip("$")
            shown = Evidence(f"{package}: {folder} cannot be written to", variable)
            fix = f"Set {variable} to a folder that this user can write to."
            yield Lack(what="a folder that it can write to", evidence=shown, fix=fix)

    def _find_nvcc(self) -> Lack | None:
        """Return None if nvcc fits torch's CUDA and accepts the host compiler. torch and others look for it in this way."""
        home, cuda = (
            self._environ.get("CUDA_HOME") or self._environ.get("CUDA_PATH"),
            read_cuda(self._paths, "torch"),
        )
        nvcc = (
            f"{home}/bin/nvcc"
            if home
            else shutil.which("nvcc", path=self._path) or "/usr/local/cuda/bin/nvcc"
        )
        release, slots = f" of CUDA {cuda}" if cuda else "", {"cuda_build": cuda} if cuda else {}
        if not os.access(nvcc, os.X_OK):
            shown = Evidence(f"{nvcc} is missing", "CUDA_HOME" if home else "PATH")
            return Lack(what=f"nvcc{release}", evidence=shown, cause=_TOOLKIT, slots=slots)
        version = _read_cuda_version(Path(nvcc).parents[1]) or _read_cuda_version(
            Path(os.path.realpath(nvcc)).parents[1]
        )
        if version is None:
            return None
        if cuda and major(version) != major(cuda):
            shown = Evidence(f"{nvcc} is of CUDA {version}, and torch was built for CUDA {cuda}", nvcc)
            return Lack(what=f"nvcc{release}", evidence=shown, cause=_TOOLKIT, slots=slots)
        newest = next((row.gcc for row in self._compilers if row.cuda == version), None)
        names = (self._environ.get("NVCC_CCBIN") or self._environ.get("CC") or "gcc").split()
        gcc = shutil.which(names[0], path=self._path)
        found = read_gcc_version(gcc) if gcc else None
        if newest is None or found is None or found <= int(newest):
            return None
        shown = Evidence(f"{gcc} is gcc {found}; nvcc of CUDA {version} accepts gcc {newest} at most", nvcc)
        return Lack(
            what=f"gcc {newest}",
            cause=_UNSUITABLE,
            evidence=shown,
            slots={"gcc": f"gcc-{newest}", "gxx": f"g++-{newest}"},
        )

    def _finds(self, place: str) -> bool:
        """Return whether a place has its file. A relative one is in site-packages or the prefix; `?name` is on PATH."""
        if place.startswith("?"):
            return shutil.which(place[1:], path=self._path) is not None
        path = self._expand(place)
        if path is None:
            return False
        roots = ("",) if path.startswith("/") else (*self._paths.sites, self._paths.prefix)
        return any(glob.glob(os.path.join(glob.escape(root) if root else "", path)) for root in roots)

    def _expand(self, place: str) -> str | None:
        """Return a place with its variable and the home folder filled in, or None if the variable is not set."""
        variable, _, rest = place.partition("/")
        if variable.startswith("$"):
            value = self._environ.get(variable[1:])
            return os.path.join(value, rest) if value and rest else value or None
        if variable == "~":
            return os.path.join(self._environ.get("HOME") or os.path.expanduser("~"), rest)
        return place

    def _find_unwritable(self, places: Collection[str]) -> str | None:
        """Return the folder that a package would write to, if it or the nearest one above it cannot be written to."""
        folder = next(filter(None, map(self._expand, places)), None)
        if folder is None:
            return None
        there = next(p for p in (Path(folder).absolute(), *Path(folder).absolute().parents) if p.exists())
        return None if there.is_dir() and os.access(there, os.W_OK | os.X_OK) else folder


# --- versions that files state ---------------------------------------------------------------------


def _read_cuda_version(home: Path) -> str | None:
    """Return the version ("13.0") of a CUDA toolkit, or None. NVIDIA's images have no version.json."""
    if named := search_file(home / "version.json", r'"cuda"\s*:\s*\{[^}]*"version"\s*:\s*"(\d+\.\d+)'):
        return named
    for header in (home / "include" / "cuda.h", *home.glob("targets/*/include/cuda.h")):
        if number := search_file(header, r"#define\s+CUDA_VERSION\s+(\d+)"):
            return format_cuda(int(number))
    return None


def read_gcc_version(program: str) -> int | None:
    """Return the major version of gcc from the name of its file or of its folder in lib/gcc, or None."""
    real = Path(os.path.realpath(program))
    if "clang" in real.name:
        return None
    if named := re.search(r"-(\d+)(?:\.\d+)*$", real.name):
        return int(named[1])
    numbers = {int(major(p.name)) for p in real.parents[1].glob("lib*/gcc/*/[0-9]*")}
    return numbers.pop() if len(numbers) == 1 else None
