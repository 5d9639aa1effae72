"""Stage `packages`: checks that every installed package finds the libraries that it needs.

The compiled files are read as the dynamic loader would load them. A package that needs a missing library is
imported, and only the import decides whether the stage fails. The stage runs after the proof of the frameworks,
and rolls nothing back.
"""

from __future__ import annotations

import dataclasses
import os
import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import field, replace

from ..environment.loader import (
    FRAMEWORK_KINDS,
    LoadedFile,
    Loader,
    Package,
    Problem,
    find_undefined,
    list_packages,
    list_reached,
    parse_module,
)
from ..model import (
    FRAMEWORKS,
    PROJECT_FRAMEWORKS,
    DlopenedLibrary,
    Environment,
    Evidence,
    Finding,
    KnownBadRelease,
    Machine,
    Profiles,
    Satellite,
    StageResult,
    Status,
    name_few,
)
from ..model.values import Value
from ..profiles.wording import make_finding
from ..system.elf import ElfError
from ..system.redaction import clean
from ..system.versions import public
from .compilers import Lacks, find_lacks, make_lack_finding
from .fixes import (
    DRIVER,
    describe_missing,
    describe_other_build,
    export_folders,
    find_other_framework,
    make_pip_command,
    make_repair_command,
    read_distribution,
    read_surroundings,
)
from .libraries import PythonPaths, name_nvidia_wheel
from .probe import run_probe

_FRAMEWORK_PACKAGES = {*FRAMEWORKS, "jaxlib", "tensorflow-cpu"}


class DoubtfulPackage(Value):
    """A package that may not load. `modules` are the extension modules concerned.

    `modules` is empty if the package opens the libraries. `frameworks` are imported before it.
    """

    package: Package
    problems: tuple[Problem, ...]
    modules: tuple[str, ...] = ()
    frameworks: tuple[str, ...] = ()


class Reading(Value, kw_only=False):
    """What was read of an environment: its packages, the number of files, and the doubtful packages.

    `environ` are the variables of its programs. `unread` says why nothing was read. `lacks` is what packages lack that compile when they run, `bad` are releases with a known fault under conditions."""

    env: Environment
    paths: PythonPaths
    environ: Mapping[str, str]
    packages: tuple[Package, ...] = ()
    files: int = 0
    doubtful: tuple[DoubtfulPackage, ...] = ()
    unread: str | None = None
    lacks: Lacks = field(default_factory=dict)
    bad: tuple[KnownBadRelease, ...] = ()


def read_packages(
    env: Environment, paths: PythonPaths, environ: Mapping[str, str], rows: Profiles
) -> Reading:
    """Read the compiled files of an environment's packages, and find those that need a library which the loader
    does not find."""
    try:
        loader = Loader(env.python, environ)
    except ElfError as error:
        return Reading(env, paths, environ, unread=str(error))
    packages = list_packages(paths.sites, paths.prefix)
    read = _LoaderCheck(loader, paths.version, packages, rows)
    doubtful = [n for p in packages if (n := read.find_problems(p))]
    lacks = find_lacks(packages, paths, environ, rows)
    here = {(p.name, public(p.version)) for p in packages}
    bad = tuple(row for row in rows.known_bad if (row.package, row.version) in here)
    return Reading(env, paths, environ, packages, read.count, tuple(doubtful), lacks=lacks, bad=bad)


def judge(
    reading: Reading,
    *,
    seconds: float | None,
    load_profiles: Callable[[], Profiles],
    list_wanted: Callable[[Sequence[Package]], Collection[str]] | None = None,
    machine: Machine | None = None,
) -> tuple[StageResult, tuple[Finding, ...]]:
    """Return the stage and its findings. Import the doubtful packages for at most `seconds` each; None imports nothing.

    `list_wanted` returns the packages whose failure fails the stage. With a lock these are the packages that the user or
    the project named, and their requirements. Without a lock it is None, and these are the frameworks. The driver and the
    GPUs of a `machine` decide whether a release has a known fault here.
    """
    start = time.perf_counter()
    bad = _find_bad(reading, machine)
    if reading.unread or not (reading.files or reading.doubtful or reading.lacks or bad):
        why = reading.unread or "no package here has compiled files"
        return StageResult(stage="packages", status="skip", detail=why), ()
    attempts = {}
    if reading.doubtful and seconds is not None:
        tried = import_packages(reading, seconds)
        attempts = {a.doubtful.package: a for a in tried}
    left = [n for n in reading.doubtful if n.package not in attempts or not attempts[n.package].loads]
    failing = {n.package for n in left if n.package in attempts and attempts[n.package].refused}
    if failing:
        wanted = list_wanted(reading.packages) if list_wanted else _FRAMEWORK_PACKAGES
        failing = {p for p in failing if p.name in wanted}
    left.sort(key=lambda n: (n.package not in failing, n.package.name not in _FRAMEWORK_PACKAGES))
    findings = _make_findings(left, attempts, reading, load_profiles() if left else Profiles())
    if reading.lacks:
        findings = (*findings, make_lack_finding(reading.lacks, reading.env, reading.paths.sites))
    findings = (*findings, *bad)
    status: Status = "fail" if failing else "warn" if findings else "pass"
    if left:
        more = len(left) - 1
        detail = _describe_problems(left[0].package, left[0].problems)
        detail += "; its import fails" if left[0].package in failing else ""
        detail += f"; {more} more package{'s' if more > 1 else ''}" if more else ""
    elif findings:
        detail = findings[0].title
    else:
        detail = (
            f"{reading.files} libraries of {len(reading.packages)} packages: all required libraries are found"
        )
    stage = StageResult(
        stage="packages",
        status=status,
        detail=detail,
        seconds=round(time.perf_counter() - start, 3),
        evidence=tuple(e for f in findings for e in f.evidence),
    )
    return stage, findings


def _find_bad(reading: Reading, machine: Machine | None) -> list[Finding]:
    """Return a finding for each installed release that has a known fault on a machine, or on any."""
    target = machine.target if machine else None
    gpus = [(g.capability, g.name) for g in target.gpus] if target else []
    driver, versions = target.driver if target else None, {p.name: p.version for p in reading.packages}
    return [
        make_finding(
            "known_bad_release", (Evidence(bad.source, f"{bad.package} {bad.version}"),), package=f"{bad.package} {bad.version}",
            why=bad.why, name=bad.package, source=bad.source,
        )
        for bad in reading.bad
        if bad.applies(gpus, driver, versions)
    ]  # fmt: skip


def list_required(packages: Sequence[Package], names: Collection[str], python: str) -> frozenset[str]:
    """Return packages and their requirements on this machine without extras. `python` is the version."""
    known = {p.name: p for p in packages}
    required: set[str] = set()
    todo = list(names)
    while todo:
        name = todo.pop()
        if name in known and name not in required:
            required.add(name)
            todo += known[name].requires_always(python)
    return frozenset(required)


# --- what may not load: only files are read ------------------------------------------------------------

_TAGGED = re.compile(r"\.cpython-[\w-]+\.so$|\.pypy[\w-]+\.so$")
"""The names of extension modules, which are not opened as libraries."""
_LINKED = re.compile(r"lib(torch|c10|tensorflow)")
"""The libraries of frameworks that packages are linked with."""
_PATHFINDER = "cuda-pathfinder"
"""NVIDIA's package that loads the libraries of its wheels by name."""
_PLUGINS = re.compile(r"/(?:plugins|qml)(?:/|$)")
_PRELOADED = re.compile(
    r"/nvidia/(?:cublas|cudnn|cuda_nvrtc|cuda_runtime|cuda_cupti|cufft|curand|nvjitlink|cusparse|cusparselt|cusolver"
    r"|nccl|nvshmem|cufile|nvtx)/lib/[^/]+$"
)
"""What torch loads, whichever package installed it: see _preload_cuda_deps in torch/__init__.py."""


@dataclasses.dataclass
class _Files:
    """The compiled files of a package: modules by name, other libraries, and damaged files with their modules."""

    modules: list[tuple[str, LoadedFile]] = field(default_factory=list)
    others: list[LoadedFile] = field(default_factory=list)
    damaged: list[tuple[str | None, Problem]] = field(default_factory=list)

    @property
    def nodes(self) -> list[LoadedFile]:
        return [*(node for _, node in self.modules), *self.others]

    def are_in(self, folder: str) -> bool:
        """Return whether one of the libraries is in a folder itself."""
        return any(os.path.dirname(node.path) == folder for node in self.others)


class _LoaderCheck:
    """The files of all packages as the loader would map them."""

    def __init__(self, loader: Loader, python: str, packages: Sequence[Package], rows: Profiles) -> None:
        self._loader, self._python, self._opened = loader, python, rows.opened_libraries
        self._packages = {p.name: p for p in packages}
        self._optional = {o.package: frozenset(o.libraries) for o in rows.optional_libraries}
        self._satellites: dict[str, list[Satellite]] = {}
        for row in rows.satellites:
            self._satellites.setdefault(row.package, []).append(row)
        self.count = 0
        self._files: dict[str, _Files] = {}
        for package in packages:
            self._load(package, self._files.setdefault(package.name, _Files()))
        modules = (node for files in self._files.values() for _, node in files.modules)
        self._reached = {node.path for node in list_reached(modules)}
        self._paths = {f.rpartition("/")[2]: f for p in packages for f in p.files}
        self._names: dict[str, frozenset[str]] = {}
        self._required: dict[str, frozenset[str]] = {}

    def _load(self, package: Package, files: _Files) -> None:
        """Read a package's files, and what they need."""
        for path in package.files:
            module = parse_module(path, package.site, self._python)
            # A module of another Python is left out. The comparison with the lock reports missing files.
            if (module is None and _TAGGED.search(path)) or not os.path.lexists(path):
                continue
            name, tagged = module or (None, False)
            elf = self._loader.elf(path, f"PyInit_{name.rpartition('.')[2]}" if name else None)
            if isinstance(elf, ElfError):
                if not elf.foreign:
                    library = os.path.basename(path)
                    problem = Problem("damaged", path, library, path, str(elf))
                    files.damaged.append((name if tagged else None, problem))
                continue
            self.count += 1
            node = self._loader.load(path, elf)
            if name and (tagged or elf.exports):
                files.modules.append((name, node))
            else:
                files.others.append(node)

    def find_problems(self, package: Package) -> DoubtfulPackage | None:
        """Return the problems of a package, or None if all of it loads."""
        files, modules, problems = self._files[package.name], list[str](), list[Problem]()
        for module, node in files.modules:
            if found := self._find_unmet(package, node):
                modules.append(module)
                problems += found
        for damaged, problem in files.damaged:
            modules += [damaged] if damaged else []
            problems.append(problem)
        for group in self._group_others(package):
            unmet = [self._find_unmet(package, node) for node in group]
            if all(unmet):
                problems += [replace(p, any_of=len(group) > 1) for found in unmet for p in found]
        problems += [
            Problem("missing", row.package, row.library.split()[0])
            for row in self._opened
            if row.package == package.name and not self._is_there(row, package)
        ]
        frameworks = set[str]()
        versions = {p.name: p.version for p in self._packages.values()}
        rows = self._satellites.get(package.name, ()) if package.files else ()
        if rows and (other := find_other_framework(package, rows, versions, self._loader.machine)):
            wanted, installed = other
            problems.append(Problem("framework", package.files[0], wanted, installed))
            frameworks.add(installed.partition(" ")[0])
        if not problems:
            return None
        frameworks |= {f for f in PROJECT_FRAMEWORKS if f in self._list_required(package)}
        return DoubtfulPackage(
            package=package, problems=tuple(dict.fromkeys(map(self._locate, problems))), modules=tuple(dict.fromkeys(modules)),
            frameworks=tuple(f for f in PROJECT_FRAMEWORKS if f != package.name and f in frameworks),
        )  # fmt: skip

    def _find_unmet(self, package: Package, root: LoadedFile) -> list[Problem]:
        """Return the problems of a file and of everything that it needs.

        Libraries that the package, its requirements or the program of a plug-in have loaded by then are no problem.
        Neither are those that only optional modules need, nor the driver's, of which stage `driver` judges.
        """
        optional = self._optional.get(package.name, frozenset())
        problems = [
            p
            for node in list_reached([root])
            for p in node.problems
            if p.kind != "missing" or p.library[3:].partition(".so")[0] not in optional
        ]
        problems += find_undefined(root, self._packages.get("torch"))
        if not problems:
            return []
        required, wheels = (
            self._list_required(package),
            [n for n in self._packages if n.startswith("nvidia-")],
        )
        searched = wheels if _PATHFINDER in package.requires_always(self._python) else []
        folder, *plugin = _PLUGINS.split(os.path.dirname(root.path), maxsplit=1)
        programs = [n for n, files in self._files.items() if plugin and files.are_in(folder)]
        loaded = DRIVER.union(*map(self._list_names, (*required, *searched, *programs)))
        if "torch" in required:
            preloaded = (n for w in wheels for n in self._files[w].others if _PRELOADED.search(n.path))
            loaded = loaded.union(*(node.names for node in preloaded))
        return [p for p in problems if p.kind != "missing" or p.library not in loaded]

    def _list_required(self, package: Package) -> frozenset[str]:
        """Return a package, the frameworks whose libraries it needs, and all their requirements.

        Packages that are built for a framework do not always require it in their metadata.
        """
        if package.name not in self._required:
            nodes = self._files[package.name].nodes
            needed = {p.library for n in nodes for p in n.problems if _LINKED.match(p.library)}
            linked = [f for f in PROJECT_FRAMEWORKS if not needed.isdisjoint(self._list_names(f))]
            packages = tuple(self._packages.values())
            self._required[package.name] = list_required(packages, [package.name, *linked], self._python)
        return self._required[package.name]

    def _list_names(self, name: str) -> frozenset[str]:
        """Return the library names under which other files find a package's files."""
        if name not in self._names:
            nodes = self._files[name].nodes if name in self._files else ()
            self._names[name] = frozenset(x for n in nodes for x in n.names)
        return self._names[name]

    def _group_others(self, package: Package) -> list[list[LoadedFile]]:
        """Return the libraries that no module needs, by folder. A package opens one of each folder, or none.

        All plug-ins of a program are alternatives, whatever their kind. So are all libraries of a package
        without modules.
        """
        files, groups = self._files[package.name], dict[str, list[LoadedFile]]()
        for node in files.others:
            if node.path not in self._reached or not files.modules:
                folder = _PLUGINS.split(os.path.dirname(node.path))[0]
                groups.setdefault(folder, []).append(node)
        return list(groups.values())

    def _is_there(self, row: DlopenedLibrary, package: Package) -> bool:
        if row.bundled and any(re.search(row.bundled, f) and os.path.exists(f) for f in package.files):
            return True
        return any(self._loader.finds(rf"{re.escape(n)}(\.\d+)*") for n in row.library.split())

    def _locate(self, problem: Problem) -> Problem:
        """Return the problem with the path of the library, if a package here contains it and it is NVIDIA's."""
        path = self._paths.get(problem.library)
        if problem.kind != "missing" or not path or not name_nvidia_wheel(problem.library):
            return problem
        return replace(problem, kind="unsearched", found=path) if os.path.exists(path) else problem


# --- imports -------------------------------------------------------------------------------------

_SECONDS = 120.0
_MOST_MODULES = 24
_AT_ONCE = 4
# Messages of glibc's loader, of Python and of packages about a library that they cannot load.
_NAMES_LIBRARY = re.compile(
    r"cannot open shared object file|undefined symbol|version `[^']*' not found|file too short|invalid ELF header|"
    r"ELF load command|ELF file|cannot read file data|wrong ELF class|object file has no|"
    r"cannot (?:load|find|locate) (?:library|shared)|library .{0,80}not found|could not load .{0,80}lib",
    re.IGNORECASE,
)


class Attempt(Value, kw_only=False):
    """The import of a doubtful package. `top` are its top-level modules, `errors` the errors by module.

    `death` says how the child ended, if it ended badly.
    """

    doubtful: DoubtfulPackage
    top: tuple[str, ...]
    errors: Mapping[str, str]
    death: str | None = None

    @property
    def refused(self) -> bool:
        """Whether the error of a top-level module names a missing library."""
        stems = {p.library[3:].partition(".so")[0].lower() for p in self.doubtful.problems}
        return any(
            _NAMES_LIBRARY.search(error) or any(s and s in error.lower() for s in stems)
            for module, error in self.errors.items()
            if module in self.top
        )

    @property
    def loads(self) -> bool:
        """Whether every doubtful module can be imported after all."""
        built_for_other = all(p.kind in FRAMEWORK_KINDS for p in self.doubtful.problems)
        return (bool(self.doubtful.modules) or built_for_other) and not self.errors and not self.death

    def evidence(self) -> list[Evidence]:
        """Return the errors of the imports as evidence, by the line that names a library."""
        by_line: dict[str, Evidence] = {}
        for module, error in self.errors.items():
            lines = [*clean(error).splitlines(), ""]
            line = next((x for x in lines if _NAMES_LIBRARY.search(x)), lines[0])[:500]
            by_line.setdefault(line, Evidence(line, f"import {module}"))
        death = [Evidence(self.death, "import")] if self.death else []
        return [*by_line.values()][:8] + death


def import_packages(reading: Reading, seconds: float) -> tuple[Attempt, ...]:
    """Import each doubtful package in a child of its own, `seconds` at the longest."""

    def attempt(one: DoubtfulPackage) -> Attempt:
        top = _list_top_modules(one)
        modules = list(dict.fromkeys((*top, *one.modules)))[:_MOST_MODULES]
        report = run_probe(
            reading.env.python, ("report", "imports"), {"first": list(one.frameworks), "modules": modules},
            environ=reading.environ, timeout=min(seconds, _SECONDS),
        )  # fmt: skip
        rows = ((r["module"], r["error"]) for r in report.all("imported") if r["module"] in modules)
        errors = {module: error for module, error in rows if error}
        return Attempt(one, top, errors, report.death)

    with ThreadPoolExecutor(min(_AT_ONCE, os.cpu_count() or 1)) as pool:
        return tuple(pool.map(attempt, reading.doubtful))


def _list_top_modules(doubtful: DoubtfulPackage) -> tuple[str, ...]:
    """Return the top-level modules of a package that its users import.

    These are the modules with the files concerned, and the module with the package's name.
    """
    package, site = doubtful.package, f"{doubtful.package.site}/"
    tops = [m.partition(".")[0] for m in doubtful.modules]
    named = [m for m in package.modules if m.lower().replace("_", "-") == package.name]
    if not tops and not named:
        inside = (p.file.removeprefix(site) for p in doubtful.problems if p.file.startswith(site))
        folders = {path.partition("/")[0] for path in inside}
        named = [m for m in package.modules if m in folders] or [*package.modules[:3]]
    return tuple(dict.fromkeys((*named, *tops)))


# --- findings ------------------------------------------------------------------------------------

_CAUSES = {
    "damaged": "package_files_damaged",
    "unsearched": "nvidia_libs_not_on_loader_path",
    "version": "system_libs_too_old",
    "framework": "extension_built_for_other_torch_or_cuda",
    "symbol": "extension_built_for_other_torch_or_cuda",
    "missing": "system_library_missing",
}
_FRAMEWORK_LIBRARY = re.compile(r"lib(torch|c10|tensorflow|shm|caffe2|jax)")
_MOST_EVIDENCE = 12


def _choose_kind(problem: Problem) -> str:
    """Return the kind of a problem, `framework` for a missing library of a framework or of NVIDIA, and for a symbol."""
    built_for = _FRAMEWORK_LIBRARY.match(problem.library) or name_nvidia_wheel(problem.library)
    other = problem.kind == "symbol" or (problem.kind == "missing" and built_for)
    return "framework" if other else problem.kind


def _make_findings(
    doubtful: Sequence[DoubtfulPackage],
    attempts: Mapping[Package, Attempt],
    reading: Reading,
    rows: Profiles,
) -> tuple[Finding, ...]:
    """Return one finding per cause, in the order of the packages."""
    kinds: dict[str, dict[Package, list[Problem]]] = {}
    for one in doubtful:
        for problem in one.problems:
            kinds.setdefault(_choose_kind(problem), {}).setdefault(one.package, []).append(problem)
    findings = []
    for kind, problems_of in kinds.items():
        evidence: list[Evidence] = []
        for package, problems in problems_of.items():
            evidence += attempts[package].evidence()[:2] if package in attempts else []
            evidence += _list_evidence(package, problems)
        package, more = next(iter(problems_of)), len(problems_of) - 1
        refused = all(p in attempts and attempts[p].refused for p in problems_of)
        findings.append(
            make_finding(
                "packages_do_not_load",
                tuple(dict.fromkeys(evidence))[:_MOST_EVIDENCE],
                cause=_CAUSES[kind],
                problem=_describe_problems(package, problems_of[package]),
                more=more or None,
                noun="package" if more == 1 else "packages",
                steps=_describe_fix(kind, problems_of, reading, rows),
                confidence="certain" if refused else "likely",
            )
        )
    return tuple(findings)


def _list_evidence(package: Package, problems: Iterable[Problem]) -> list[Evidence]:
    """Return one piece of evidence for each library and version, with the first file that needs it."""
    files: dict[str, list[str]] = {}
    for problem in problems:
        files.setdefault(_describe_problem(problem), []).append(problem.file)
    return [
        Evidence(
            f"{package}: {text}" + (f" (and {len(same) - 1} more files)" if len(same) > 1 else ""),
            same[0],
        )
        for text, same in files.items()
    ]


def _describe_problem(problem: Problem) -> str:
    library, found, detail = problem.library, problem.found or "", problem.detail
    return {
        "damaged": f"{found} {detail}",
        "framework": f"was built for {library}, and {found} is installed",
        "symbol": f"needs the symbol {detail}, which {found} does not export",
        "version": f"needs {detail} of {library}, which {found} does not define",
        "unsearched": f"needs {library}, which is installed in {os.path.dirname(found)}",
        "missing": f"needs {library}, which is missing",
    }[problem.kind]


def _describe_problems(package: Package, problems: Sequence[Problem]) -> str:
    """Return the problems of one package as a sentence."""
    names = list(dict.fromkeys(p.library for p in problems))
    shown = name_few(names, 4)
    kinds = {p.kind for p in problems}
    if kinds == {"damaged"}:
        return f"{package} has damaged files: {shown}"
    if kinds == {"version"}:
        versions = list(dict.fromkeys(p.detail for p in problems))
        return f"{package} needs {', '.join(versions[:3])} of {shown}, but the installed version is older"
    if kinds == {"unsearched"}:
        return f"{package} does not find {shown}, which this environment contains"
    if kinds <= set(FRAMEWORK_KINDS):
        return f"{package} {_describe_problem(problems[0])}"
    if all(p.any_of for p in problems):
        return f"{package} includes several alternative libraries, but none can be loaded: {shown} missing"
    return f"{package} needs {shown}, which this system does not have"


def _describe_fix(
    kind: str, problems_of: Mapping[Package, Sequence[Problem]], reading: Reading, rows: Profiles
) -> str:
    env, paths = reading.env, reading.paths
    problems = [p for found in problems_of.values() for p in found]
    if kind == "damaged":
        what = [f"{p.name}=={p.version}" for p in problems_of]
        command = make_repair_command(env)
        return command if env.made_by_gpuenv else make_pip_command(env, paths.sites, what, again=True)
    if kind == "unsearched":
        return f"First run: {export_folders(os.path.dirname(p.found) for p in problems if p.found)}"
    if kind == "version":
        named, versions = " ".join(map(str, problems_of)), list(dict.fromkeys(p.detail for p in problems))
        older = f"an older system (without {', '.join(versions[:4])})"
        return f"Install a release of {named} that was built for {older}, or use a newer distribution."
    if kind == "framework":
        here = read_surroundings(reading.packages, paths.version, paths.prefix)
        return describe_other_build(problems_of, rows, here, env, paths.sites)
    missing = {
        package.name: list(dict.fromkeys(p.library for p in found)) for package, found in problems_of.items()
    }
    return describe_missing(missing, rows, read_distribution())
