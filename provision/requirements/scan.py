"""Scan the folder of a project for `init`: what its files declare, and what that decides.

What a file declares is taken over. What programs only import decides nothing where files declare requirements: the
verdict of an environment names the imports that are missing in it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name

from ..errors import UsageError
from ..model import FRAMEWORK_ALIASES, PROJECT_FRAMEWORKS, name_few, requirement_name
from ..system import untrusted
from ..system.toml import table_at
from ..system.versions import overlap
from . import files
from .folder import FolderFindings, list_first
from .imports import DECLARES, SKIPPED, ImportedModule, find_imports, read_notebooks
from .layout import find_reason, states_requirements
from .lines import ParsedRequirement, parse_line
from .pyproject import Listed, collect_extras, read_project
from .quote import parse_requirement, quote_text
from .sort import SortedRequirements, read_project_requirements
from .toml import find_project_name, read_pyproject
from .tree import find_root
from .uv import LINUX, list_members, read_uv

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from ..model import CpuOnlyFramework, Profiles, ProjectRequirements, RequirementLine, VersionBound
    from .lines import SourceLine

_ONNXRUNTIME = ("onnxruntime-gpu", "onnxruntime")
_REPOSITORY = re.compile(r"/([\w.-]+?)(?:\.git)?(?:@[^/#]*)?(?:#.*)?$")
"""The name of a repository, which is mostly that of its package: "git+https://host/who/clip.git@main"."""


@dataclasses.dataclass(kw_only=True, slots=True)
class Scan(FolderFindings):
    """The findings in a folder, and what they are made from. `run` is the order."""

    folder: Path
    known: Profiles
    environ: Mapping[str, str]
    is_declared: bool = True
    is_project: bool = False
    documents: dict[str, str] = dataclasses.field(default_factory=dict)

    def run(self) -> None:
        """Scan the folder without running anything in it."""
        self.is_project = states_requirements(self.folder)
        self.documents = dict(_read_documents(self.folder))
        self.not_installed = find_reason(self.folder)
        covered = self._read_project()
        self._read_lists(covered)
        self._read_conda_file()
        self._read_commands()
        read_uv(self, self.folder)
        seen = find_project_imports(self.folder, self.known, self.requirements)
        extras = self._read_extras()
        if not self.frameworks:
            self._choose_extra(extras, seen)
        self._decide_by_imports(seen, extras)
        self._warn_of_removed(seen)

    # --- the project and its requirement files -------------------------------------------------

    def _read_project(self) -> set[str]:
        """Record what pyproject.toml, setup.py and setup.cfg state, and return the files that they read."""
        if not self.is_project:
            return set()
        try:
            defaults = table_at(read_pyproject(self.folder), "tool", "uv").get("default-groups")
            named = map(str, defaults if isinstance(defaults, list) else ())
            self.groups = [n for n in named if re.fullmatch(r"[\w.-]+", n) and n not in _SIDE_WORDS]
            required = self._read_file(None)
        except UsageError as error:
            self._refuse("the project is left out", error)
            return set()
        self._record_file(None, required)
        self.computed = required.computed
        self.remarks += required.missing
        self.python_bounds = (required.requires_python, required.python_origin or "")
        return set(required.files)

    def _read_lists(self, covered: set[str]) -> None:
        """Record the requirement file that the project installs, and name the others."""
        names = _find_lists(self.folder)
        mentions = self._find_mentions(names)
        for name, why in _choose_lists(names, mentions, declared=bool(self.named or self.frameworks)):
            if str((self.folder / name).absolute()) in covered:
                continue
            try:
                required = self._read_file(name)
            except UsageError as error:
                self._refuse(f"{name} is not listed", error)
                continue
            if why_not := self._find_contradiction(required):
                self.remarks.append(f"{name} is not listed: {why_not}")
                continue
            covered |= set(required.files)
            if required.missing:
                self.remarks += [f"{name} is not listed: {missing}" for missing in required.missing]
                self._carry_frameworks(required.frameworks, required.bounds, {}, default=name)
                self._carry_lines(required.lines)
                continue
            self._record_file(name, required, why)
            if not self.is_project and any(n.local == str(self.folder.resolve()) for n in required.lines):
                self.project = "."  # the file requires the folder, which install: false omits
        self.left |= {
            name: mentions.get(name, "")
            for name in names
            if str((self.folder / name).absolute()) not in covered
        }
        if not self.is_project:  # projects beside each other: none of them is that of the folder
            self.left |= {p.relative_to(self.folder).as_posix(): "" for p in _find_projects(self.folder)}

    def _read_file(self, name: str | None) -> ProjectRequirements:
        return read_project_requirements(
            self.environ, LINUX, base=self.folder, requirements=[self.folder / name] if name else [], folder=None if name else self.folder,
            groups=() if name else self.groups, known=self.known, skip_missing=True,
            install=name is not None or not self.not_installed,
        )  # fmt: skip

    def _record_file(self, name: str | None, required: ProjectRequirements, why: str = "") -> None:
        """Record a file that gpuenv.yaml can list. `name` is None for the project itself."""
        if name is None:
            self.project = "."
        else:
            self.requirements[name] = why
        own = {need for need in required.lines if need.local and need.editable and not need.constraint}
        self.named |= {n.package: n.text for n in required.lines if n.name and n not in own}
        repositories = ((_REPOSITORY.search(n.text), n) for n in required.lines if n.vcs and not n.name)
        self.named |= {canonicalize_name(found[1]): n.text for found, n in repositories if found}
        for need in required.lines:
            if need.package in _ONNXRUNTIME:
                self.origins.setdefault("onnxruntime", need.origin)
        self.bounded |= {bound.name for bound in required.bounds}
        for package, bounds, origin in _list_limits(required):
            self.limits.setdefault(package, (bounds, origin))
        cpu = {one.framework: one for one in required.cpu}
        for framework, origin in required.origins:
            if framework in cpu and _asks_for_cpu(cpu[framework]):
                self.cpu.setdefault(framework, origin)
            else:
                self.frameworks.setdefault(framework, origin)

    def _find_contradiction(self, required: ProjectRequirements) -> str | None:
        """Return bounds of a file that no release within the project's own bounds meets."""
        for name, theirs, origin in _list_limits(required):
            ours, where = self.limits.get(name, ("", ""))
            if not overlap(theirs, ours):
                return f"{name}{theirs} ({origin}) contradicts {name}{ours} ({where})"
        return None

    def _carry_frameworks(
        self,
        frameworks: Iterable[str],
        bounds: Iterable[VersionBound],
        origins: Mapping[str, str],
        *,
        default: str,
    ) -> None:
        """Copy frameworks with their bounds from a file that gpuenv.yaml cannot list."""
        bounds = list(bounds)
        for framework in frameworks:
            matching = [bound for bound in bounds if bound.name == framework]
            origin = matching[0].origin if matching else origins.get(framework, default)
            specifier = ",".join(dict.fromkeys(bound.specifier for bound in matching))
            if specifier and (framework in self.bounded or self.bounds.get(framework)):
                self.remarks.append(
                    f"{framework}{specifier} ({origin}) is not listed, because another file sets the bounds of {framework}"
                )
            elif specifier or framework not in self.frameworks:
                self.frameworks[framework] = origin
                self.bounds[framework] = specifier

    def _carry_lines(self, lines: Iterable[RequirementLine]) -> None:
        """Copy packages from a file that gpuenv.yaml cannot list."""
        for need in lines:
            if need.local and need.local == str(self.folder.resolve()):
                self.project = self.project or "."
            elif need.name is None or need.local or need.constraint:
                self.remarks.append(f"{need.text} ({need.origin}) cannot be listed under packages")
            elif self.named.get(name := need.package) in {None, need.name} - {need.text}:
                # no file requires it so far, or one does without the bounds of this one
                self.named[name] = need.text
                self.packages[need.text] = need.origin

    # --- extras --------------------------------------------------------------------------------

    def _read_extras(self) -> dict[str, Listed]:
        """Return the requirements of each extra of the project."""
        if not self.project:
            return {}
        reading = files.ReadingState(
            environ=self.environ, base=self.folder, roots=(find_root(self.folder),), skip_missing=True
        )
        try:
            extras = read_project(reading, self.folder.absolute(), (), ()).extras
            return {
                extra: collect_extras(find_project_name(self.folder), extras, [extra]) for extra in extras
            }
        except UsageError:
            return {}  # recorded when the project was read

    def _choose_extra(self, listed: Mapping[str, Listed], seen: Mapping[str, ImportedModule]) -> None:
        """Choose the extra that names a framework where the project's dependencies bring none.

        Of several, those of the framework that most programs import; of these, that for a GPU; of several, the first one that a
        document installs. Otherwise the user chooses.
        """
        implying = {canonicalize_name(row.package) for row in self.known.imports if row.implies}
        if implying & self.named.keys():
            return
        brings: dict[str, dict[str, str]] = {}
        for extra, lines in listed.items():
            if re.match(r"(?i)intel|rocm|amd|xpu|npu|ascend|tpu", extra):
                continue  # of other devices
            for text, origin in lines:
                name = requirement_name(text)
                framework = "onnxruntime" if name in _ONNXRUNTIME else FRAMEWORK_ALIASES.get(name, name)
                usable = re.fullmatch(r"[\w.-]+", extra) and extra not in _SIDE_WORDS
                if usable and framework in (*PROJECT_FRAMEWORKS, "onnxruntime"):
                    brings.setdefault(extra, {}).setdefault(framework, f"extra {quote_text(extra)}, {origin}")
        users = {name: len(seen[name].files) for found in brings.values() for name in found if name in seen}
        main = [name for name in users if users[name] == max(users.values())]
        if len(main) == 1:
            brings = {extra: found for extra, found in brings.items() if main[0] in found}
        for_gpu = [extra for extra in brings if re.search(r"gpu|cuda", extra, re.IGNORECASE)]
        own = re.escape(find_project_name(self.folder) or "")
        installed = re.findall(rf"(?:\.|\b{own})\[([\w,\s-]+)\]", " ".join(self.documents.values()))
        shown = [
            e for words in installed for e in map(str.strip, words.split(",")) if e in (for_gpu or brings)
        ]
        chosen = next((option for option in (list(brings), for_gpu, shown[:1]) if len(option) == 1), None)
        if chosen:
            self.extras = chosen
            self.frameworks |= brings[chosen[0]]
            self.named |= {requirement_name(text): text for text, _ in listed[chosen[0]]}
        elif brings:
            names = name_few([*map(quote_text, brings)])
            self.remarks.append(f"the extras {names} bring frameworks: choose one with extras: [NAME]")

    # --- conda's environment.yml, pixi.toml ----------------------------------------------------

    def _read_conda_file(self) -> None:
        """Copy the requirements of a conda environment file or of pixi.toml."""
        environments = [*_find_environments(self.folder)]
        name = next((n for n in files.FILES if (self.folder / n).is_file()), None)
        name = name or self._find_created(environments)
        if others := [n for n in environments if n not in (name, *self.left)]:
            self.remarks.append(
                f"{name_few(others)}: not read. To take over an environment of conda, rename its file to environment.yml"
            )
        if name is None or (name in (files.PIXI, files.PIPFILE) and (self.frameworks or self.named)):
            return
        read = self._start_reading()
        try:
            read.read(name)
        except UsageError as error:
            self.remarks.append(error.message)
            return
        if read.is_export and (self.frameworks or self.named):
            self.left[name] = "an export of one machine's environment"
            return
        if read.is_export:
            self.remarks.append(
                f"{name} is an export of one machine's environment: keep only the packages that the project requires"
            )
        had_project = self.project
        for included in read.included:  # before the rest, which they may contradict: pip has the last word
            self._include(included, name)
        self._take_over(read, name)
        if self.project and not had_project:
            self._include(None, name)

    def _read_commands(self) -> None:
        """Copy what a Dockerfile installs, or a notebook in a folder of notebooks, where no file states requirements."""
        if self.frameworks or self.named or self.requirements or self.left or self.is_project:
            return
        images = [
            one for one in self.documents.items() if PurePosixPath(one[0]).name.startswith("Dockerfile")
        ]
        read = self._start_reading()
        read.read_commands([*images, *read_notebooks(self.folder)])
        self._take_over(read, "")
        self.is_declared = False

    def _start_reading(self) -> files.CondaEnvironment:
        return files.CondaEnvironment(folder=self.folder, known=self.known, environ=self.environ)

    def _take_over(self, read: files.CondaEnvironment, name: str) -> None:
        self.python, self.cuda, self.device = read.python, read.cuda, read.device
        self.origins |= read.origins
        self.find_links += read.find_links
        self.remarks += read.left
        lines = list(self._parse_lines(read.lines))
        try:
            result = SortedRequirements(markers={}, planned=self.known.stack)
            result.add(lines)
        except UsageError as error:
            self.remarks.append(f"{name} is ignored: {error.message}")
            return
        origins = {one.name: one.line.origin for one in reversed(lines) if one.name}
        self._carry_frameworks(result.frameworks, result.bounds, origins, default=name)
        self._carry_lines(result.lines)
        self.remarks += result.left_out

    def _find_created(self, environments: Sequence[str]) -> str | None:
        """Return the only environment file that documents create an environment of, or the only one of a folder that declares
        nothing else. Several are left to the user."""
        named: dict[str, str] = {
            name: origin
            for origin, line in self._list_lines()
            for name in _CREATES.findall(line)
            if (self.folder / name).is_file()
        }
        if len(named) == 1:
            return next(iter(named))
        self.left |= named
        alone = len(environments) == 1 and not (named or self.frameworks or self.named or self.requirements)
        return environments[0] if alone else None

    def _parse_lines(self, lines: Iterable[SourceLine]) -> Iterator[ParsedRequirement]:
        for line in lines:
            try:
                yield parse_line(line)
            except UsageError as error:
                self.remarks.append(error.message)

    def _include(self, name: str | None, by: str) -> None:
        """Record a requirements file, or the project (None), that an environment file names."""
        if name in self.requirements:
            return
        self.left.pop(name or "", None)
        try:
            required = self._read_file(name)
            self._record_file(name, required, by)
        except UsageError as error:
            self._refuse(f"{name or 'the project'} ({by}) is not listed", error)
            self.project = self.project if name else None

    def _refuse(self, what: str, error: UsageError) -> None:
        self.refused = self.refused or error
        self.remarks.append(f"{what}: {error.message}")

    # --- documents -----------------------------------------------------------------------------

    def _list_lines(self) -> Iterator[tuple[str, str]]:
        """Yield the lines of documents, each with its origin ("README.md line 2")."""
        for name, text in self.documents.items():
            yield from ((f"{name} line {number}", line) for number, line in enumerate(text.splitlines(), 1))

    def _find_mentions(self, names: Iterable[str]) -> dict[str, str]:
        """Return the requirement files that documents and build files install, each with file and line, in their order."""
        mentions: dict[str, str] = {}
        known = set(names)
        for origin, line in self._list_lines():
            for name in (_READS if origin.startswith("setup.py ") else _INSTALLS).findall(line):
                if name in known:
                    mentions.setdefault(name, origin)
        return mentions

    def _find_commands(self, names: set[str]) -> list[str]:
        """Return the releases of some packages that documents install by hand: "README.md line 2 installs torch==2.4.0"."""
        found: dict[str, str] = {}
        for origin, line in self._list_lines():
            words = [w.strip("'\"`,.") for match in _INSTALLS_BY_HAND.findall(line) for w in match.split()]
            named = " ".join(w for w in words if requirement_name(w) in names or w.startswith("pytorch="))
            if "=" in named and "$" not in named:
                found.setdefault(named, f"{origin} installs {named}")
        return list(found.values())[:3]

    # --- imports -------------------------------------------------------------------------------

    def _decide_by_imports(self, seen: Mapping[str, ImportedModule], extras: Mapping[str, Listed]) -> None:
        """Choose the framework if no file names one, and the packages if no file declares any."""
        # A project that computes its requirements in code declares some too.
        unread = self.is_project and (self.computed or not self.project)
        declared = self.is_declared and bool(self.named or self.requirements or unread)
        if self.left and not (declared or self.project or self.remarks):
            self.remarks.append(
                "no file at the top states requirements: run gpuenv init in the folder of one, or name one under requirements or project"
            )
        users = _find_framework_users({m: i.files for m, i in seen.items()}, self.known)
        if not users:
            users = _find_framework_users({m: i.others for m, i in seen.items()}, self.known)
            if declared and not self.frameworks:  # examples and tests do not decide what a project requires
                self.remarks += [f"{name} is imported only in {list_first(users[name])}" for name in users]
                users = {}
        ranked = sorted(users.items(), key=lambda item: (-len(item[1]), PROJECT_FRAMEWORKS.index(item[0])))
        by_hand = None if self.frameworks else self._choose_imported(ranked, seen)
        optional = list_optional(self.folder, extras)
        self.remarks += [
            f"{name} is imported in {list_first(programs)}, but "
            + (f"only {optional[name]} declares it" if name in optional else "not declared")
            for name, programs in ranked
            if name not in self.frameworks and name not in self.cpu
        ]
        declared = declared or any(not _has_word(name, _SIDE_WORDS) for name in self.left)
        if not self.computed:
            self._list_imported(seen, optional, by_hand, declared=declared)

    def _choose_imported(
        self, ranked: Sequence[tuple[str, list[str]]], seen: Mapping[str, ImportedModule]
    ) -> str | None:
        """Choose the framework that programs import, and return it if no file has ONNX Runtime or a build for the CPU."""
        others = [item for item in ranked if item[0] not in self.cpu]
        if self.cpu and not others:
            self.frameworks, self.device = self.cpu, "cpu"
            self.origins["device"] = next(iter(self.cpu.values()))
            return None
        declared = next((self.named[n] for n in _ONNXRUNTIME if n in self.named), None)
        by = seen.get("onnxruntime", ImportedModule())
        if ranked and not (declared and len(by.files) > len(ranked[0][1])):
            chosen, programs = others[0]
            self.frameworks[chosen] = f"imported in {list_first(programs)}"
            names = {chosen, *(n for n, framework in self.known.companions.items() if framework == chosen)}
            self.remarks += self._find_commands(names)
            return chosen
        if declared:
            self.frameworks["onnxruntime"] = self.origins.get("onnxruntime") or f"{declared} is declared"
        elif "onnxruntime" in seen:
            self.frameworks["onnxruntime"] = f"imported in {list_first(by.files or by.others)}"
        return None

    def _list_imported(
        self,
        seen: Mapping[str, ImportedModule],
        optional: Mapping[str, str],
        by_hand: str | None,
        *,
        declared: bool,
    ) -> None:
        """List the packages of imported modules that no file declares: where `declared` only those beside a framework.

        A package needs a row of known names and a program that cannot be imported without it: anyone may have registered an
        unknown name on an index.
        """
        for module in sorted(seen, key=str.lower):
            package, where = find_package(module, self.known), seen[module].files
            if (
                not where
                or module in (*PROJECT_FRAMEWORKS, "onnxruntime")
                or self._is_covered(module, package)
            ):
                continue
            only = optional.get(canonicalize_name(package or module))
            # Who installs a framework by hand installs its companions by the same line.
            if package and not only and (not declared or self.known.companions.get(package, "") == by_hand):
                self.packages[package] = f"imported in {list_first(where)}"
                self.named[canonicalize_name(package)] = package
            elif package or not any(other.startswith(f"{module}.") for other in seen):
                if only:
                    package = f"{package or canonicalize_name(module)} ({only})"
                self.undeclared[module] = (package, f"imported in {list_first(where)}")

    def _warn_of_removed(self, seen: Mapping[str, ImportedModule]) -> None:
        """Name a use of what a package does not have any more, where the project's bounds allow such a release."""
        for row in self.known.removed_names:
            uses = seen.get(row.package, ImportedModule()).names
            used = next(((exact, file) for exact, file in uses.items() if row.has(exact)), None)
            bounds = self.limits.get(row.package, ("", ""))[0] or self.bounds.get(row.package, "")
            planned = row.package not in PROJECT_FRAMEWORKS or row.package in self.frameworks
            if used and planned and overlap(bounds, f">={row.since}"):
                name = next(n for n in re.split("[.:]", used[0]) if n in row.names)
                number = _find_line(self.folder / used[1], rf"[^#]*\.{name}\b")
                self.remarks.append(
                    f"{used[1]} line {number} uses {name} of {row.package}, which {row.package} {row.since} does not have: "
                    f"the project needs {row.package}<{row.since}"
                )

    def _is_covered(self, module: str, package: str | None) -> bool:
        """Return whether a file of the project, the plan or the framework provides a module."""
        row = self.known.modules.get(module)
        others = row.also if row else ()
        names = {canonicalize_name(name) for name in (module, package, *others) if name}
        # python-bidi has the module bidi, and ai2-olmo-core olmo_core
        own = canonicalize_name(find_project_name(self.folder) or "")
        words = f"-{canonicalize_name(module)}-"
        within = not package and any(words in f"-{name}-" for name in (own, *self.named))
        brought = self.known.stack if self.frameworks else frozenset()
        with_framework = package == "keras" and "tensorflow" in self.frameworks
        return bool(names & (self.named.keys() | brought)) or within or with_framework


# --- files of the folder ---------------------------------------------------------------------------

_MOST_FOLDERS, _MOST_DEEP = 300, 3
_PREFERRED = re.compile(r"(?:.*/)?(?:requirements|base|main|core|common)\.txt")
_SIDE_WORDS = frozenset(
    ("doc", "docs", "dev", "develop", "development", "test", "tests", "testing", "lint", "ci", "build", "example",
     "examples", "benchmark", "benchmarks", "tools", "style", "typing", "release", "optional", "github")
)  # fmt: skip

_OTHER_DEVICES = frozenset(
    ("cpu", "amd", "rocm", "apple", "mac", "macos", "osx", "mps", "win", "windows", "intel", "xpu", "ipex", "tpu", "npu",
     "ascend", "dml", "directml", "vulkan")
)  # fmt: skip


def _find_lists(folder: Path) -> list[str]:
    """Return the requirement files of a folder, those near the top first."""
    names: list[str] = []
    for visited, (place, folders, entries) in enumerate(os.walk(folder)):
        inside = PurePosixPath(os.path.relpath(place, folder))
        deep = len(inside.parts)
        folders[:] = sorted(
            n for n in folders if deep < _MOST_DEEP and not n.startswith(".") and n not in SKIPPED
        )
        of_folder = any(part.lower().startswith("requirements") for part in inside.parts)
        names += [
            (inside / n).as_posix()
            for n in sorted(entries)
            if n.endswith(".txt") and (of_folder or DECLARES.fullmatch(n))
        ]
        if visited >= _MOST_FOLDERS:
            break
    return sorted((n for n in names if (folder / n).is_file()), key=lambda n: (n.count("/"), n))


def _find_environments(folder: Path) -> Iterator[str]:
    """Yield the files at the top that list the packages of a conda environment."""
    for path in sorted(folder.glob("[!.]*.y*ml")):
        with contextlib.suppress(OSError):
            if re.search(r"(?m)^dependencies:\s*-[^:\n]+$", untrusted.read_text(path, _MOST_BYTES)):
                yield path.name


def _find_projects(folder: Path, deep: int = 2) -> Iterator[Path]:
    """Yield the files of projects in the folders of a folder, and of folders without a project (`packages/*`)."""
    for place in sorted(folder.glob("[!.]*")):
        if place.is_dir() and place.name not in {*SKIPPED, *_SIDE_WORDS}:
            files_of = (place / name for name in ("pyproject.toml", "setup.py"))
            stated = next((path for path in files_of if path.is_file() and states_requirements(place)), None)
            if stated:
                yield stated
            elif deep > 1:
                yield from _find_projects(place, deep - 1)


_DOCUMENTS = (
    "setup.py", "README*", "INSTALL*", "*.md", "Dockerfile*", "docker/Dockerfile*", ".github/workflows/*.y*ml", "Makefile",
    "*.sh",
)  # fmt: skip
_MOST_DOCUMENTS, _MOST_BYTES = 40, 1 << 20
_INSTALLS = re.compile(r"(?:-r|--requirements?)[ =]*[\"']?(?:\./)?([\w./-]+\.txt)")
_READS = re.compile(r"[\"'](?:\./)?([\w./-]+\.txt)[\"']")


_INSTALLS_BY_HAND = re.compile(r"\b(?:pip3?|conda|mamba) install\b(.*)")


def _read_documents(folder: Path) -> Iterator[tuple[str, str]]:
    paths = dict.fromkeys(p for pattern in _DOCUMENTS for p in sorted(folder.glob(pattern)) if p.is_file())
    for path in list(paths)[:_MOST_DOCUMENTS]:
        try:
            yield path.relative_to(folder).as_posix(), untrusted.read_text(path, _MOST_BYTES)
        except OSError:
            continue


def _choose_lists(names: list[str], mentions: Mapping[str, str], *, declared: bool) -> list[tuple[str, str]]:
    """Return the requirement file to list with the reason, or none.

    Beside a project that declares requirements only requirements.txt counts. Otherwise the first file that a document
    installs, else the file whose name says that it is the main one, or the only one.
    """
    if "requirements.txt" in names:
        return [("requirements.txt", mentions.get("requirements.txt", ""))]
    usable = [n for n in names if not _has_word(n, _SIDE_WORDS)]
    usable = [n for n in usable if not _has_word(n, _OTHER_DEVICES)] or usable
    if declared or not usable:
        return []
    installed = [n for n in mentions if n in usable]
    if installed:
        main = PurePosixPath(installed[0]).with_name("requirements.txt").as_posix()
        return [
            (main, f"beside {installed[0]}")
            if main in usable and main not in installed
            else (installed[0], mentions[installed[0]])
        ]
    preferred = [n for n in usable if _PREFERRED.fullmatch(n) and n.startswith("requirements")]
    if preferred or len(usable) == 1:
        only = "" if preferred else "the only file of requirements"
        return [((preferred or usable)[0], only)]
    return []


def _has_word(name: str, words: frozenset[str]) -> bool:
    return not words.isdisjoint(re.split(r"[/_.-]", name.lower()))


def _list_limits(required: ProjectRequirements) -> Iterator[tuple[str, str, str]]:
    """Yield the name, bounds and origin of each package that the requirements bound."""
    yield from ((b.name, b.specifier, b.origin) for b in required.bounds if not b.pythons)
    for need in required.lines:
        if need.name and not need.is_direct and not need.override:
            with contextlib.suppress(ValueError):
                one = parse_requirement(need.text)
                if one.specifier and not one.marker:
                    yield need.package, str(one.specifier), need.origin


def _find_line(path: Path, pattern: str) -> int:
    lines = untrusted.read_text(path, _MOST_BYTES).splitlines()
    return next((number for number, line in enumerate(lines, 1) if re.match(pattern, line)), 1)


def _asks_for_cpu(build: CpuOnlyFramework) -> bool:
    """Return whether the requirements name a build for the CPU. A plain `jax` leaves the build open."""
    names = (need.text.lower() for need in build.lines if not need.constraint)
    return all(re.match(r"[\w.-]+[-_]cpu\b|[\w.-]+\s*\[\s*cpu\s*\]", name) for name in names)


_CREATES = re.compile(
    r"\benv(?:ironment)? create\b.*?(?:-f|--file)[ =]*[\"']?(?:\./)?((?:[\w-][\w.-]*/)*[\w-][\w.-]*\.ya?ml)"
)


def list_optional(folder: Path, extras: Mapping[str, Listed] | None = None) -> dict[str, str]:
    """Return the packages that extras or groups of a project, or members of its workspace, declare, each with the first of these."""
    stated: list[tuple[str, object]] = [
        (f"extra {name}", [t for t, _ in lines]) for name, lines in (extras or {}).items()
    ]
    with contextlib.suppress(UsageError):  # recorded when the project was read
        data = read_pyproject(folder)
        members = {f"member {name}": read_pyproject(p) for name, p in list_members(folder, data).items()}
        stated += [(where, table_at(one, "project").get("dependencies")) for where, one in members.items()]
        for one in (data, *members.values()):
            stated += [
                (f"group {name}", listed) for name, listed in table_at(one, "dependency-groups").items()
            ]
    found: dict[str, str] = {}
    for where, listed in stated:
        for text in listed if isinstance(listed, list) else ():
            if isinstance(text, str):
                found.setdefault(requirement_name(text), quote_text(where))
    return found


def find_project_imports(
    folder: Path, known: Profiles, listed: Collection[str] = ()
) -> dict[str, ImportedModule]:
    """Return the modules of packages that a project's programs import. `listed` are its requirement files."""
    names = {m for m, row in known.modules.items() if not row.common}
    names |= {*PROJECT_FRAMEWORKS, "onnxruntime", *(name.replace("-", "_") for name in known.companions)}
    submodules = [module for module in known.modules if "." in module]
    return find_imports(folder, submodules, names, known.removed_names, listed)


def _find_framework_users(programs: Mapping[str, list[str]], known: Profiles) -> dict[str, list[str]]:
    """Return the programs that import each framework, a package of its builds, or a package that implies it.

    `programs` maps a module to those that import it.
    """
    users: dict[str, set[str]] = {}
    implied: dict[str, set[str]] = {}
    for module, importing in programs.items():
        row = known.modules.get(module)
        framework = known.companions.get(module.replace("_", "-"), module)
        if importing and framework in PROJECT_FRAMEWORKS:
            users.setdefault(framework, set()).update(importing)
        elif (
            importing and row and row.implies
        ):  # keras runs on any framework, so an imported one has priority
            implied.setdefault(row.implies, set()).update(importing)
    return {framework: sorted(found) for framework, found in (users or implied).items()}


def find_package(module: str, known: Profiles) -> str | None:
    """Return the package of a module, or None without a row."""
    if module in PROJECT_FRAMEWORKS or module.replace("_", "-") in known.companions:
        return module.replace("_", "-")
    row = known.modules.get(module)
    return row.package if row else None
