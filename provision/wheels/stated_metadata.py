"""Gives uv the metadata that source archives state, in place of running build code.

uv takes requirements from `dependency-metadata` of its configuration. It has the versions whose archives were read.
Other versions of the package are stated without requirements. When a solution has such a version, its archive is
read, and uv runs again. If an archive does not state its requirements, uv runs the build code of the package.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import tomli_w
from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from ..errors import LockError
from ..index.http import AT_ONCE
from ..index.markers_and_tags_of_platform import CPYTHON, markers_of
from ..model import Emit, Event, LockedPackage, Plan, RequirementLine
from .package_named_in_refusal import find_unusable
from .read_source_archives import SourceArchive, SourceArchives

_MOST_VERSIONS = 8
"""The most archives of one package to read in a search. After that its build code runs."""
_DEPENDS = re.compile(
    r"(?:all versions of )?(?<![A-Za-z0-9._-])([A-Za-z0-9._-]{1,200})(?:==([\w.+!-]{1,100}))? depends? on "
    r"([A-Za-z0-9._-]{1,200})"
)
_OURS = "gpuenv-plan"  # the project with the plan's pins


@dataclass
class StatedMetadata:
    """The metadata that archives state, by package and version.

    `unstated` are packages whose build code must run. With `runs_no_code` LockError is raised instead.
    """

    archives: SourceArchives
    emit: Emit
    read: dict[str, dict[str, SourceArchive]] = field(default_factory=dict)
    unstated: set[str] = field(default_factory=set)
    refused: dict[str, tuple[str, ...]] = field(default_factory=dict)
    required_by: dict[str, str] = field(default_factory=dict)
    requirements: tuple[str, ...] = ()
    runs_no_code: bool = False

    def add(self, other: StatedMetadata) -> None:
        """Add the metadata of another reader."""
        for name, versions in other.read.items():
            self.read.setdefault(name, {}).update(versions)

    def note_refusal(self, log: str, requirements: Iterable[str]) -> None:
        """Record the versions that a refusal names as without wheels, their requirers, and all `requirements`.

        The solution will have one of these versions.
        """
        self.requirements = tuple(requirements)
        line = " ".join(log.split())
        self.refused |= find_unusable(line)
        for release, version, name in _DEPENDS.findall(line):
            if release != _OURS:
                self.required_by[str(canonicalize_name(name))] = f"{release} {version}".rstrip()

    def without_any_wheel(self) -> list[str]:
        """Return the packages required in one version, which has a source archive and no wheel for any Python.

        uv's refusal names only one of them.
        """
        exact = dict(filter(None, map(_parse_exact, self.requirements)))
        with ThreadPoolExecutor(AT_ONCE) as pool:
            has_wheel = pool.map(self._has_wheel, exact, exact.values())
            wheelless = [name for name, wheel in zip(exact, has_wheel, strict=True) if not wheel]
        return [n for n in wheelless if any(_is_same(p, exact[n]) for p in self.archives.listed(n))]

    def _has_wheel(self, name: str, version: str) -> bool:
        parts = (file.split("-") for file in self.archives.wheels(name))
        return any(_is_version(p[1], version) for p in parts if len(p) > 1)

    def options(self, names: Iterable[str], folder: Path) -> list[str]:
        """Write the metadata of these packages into a file, and return the options with which uv reads it."""
        stated = [name for name in names if name not in self.unstated]
        self._read_newest([name for name in stated if name not in self.read])
        tables = [_make_table(a) for name in stated for a in self.read.get(name, {}).values()]
        tables += [{"name": name, "requires-dist": []} for name in stated if name not in self.unstated]
        if not tables:
            return []
        path = folder / "stated.toml"
        path.write_text(tomli_w.dumps({"dependency-metadata": tables}), encoding="utf-8")
        return ["--config-file", str(path)]

    def learn(self, solved: Mapping[str, str], names: Iterable[str], plan: Plan) -> bool:
        """Read the archives of unknown versions in a solution. Return whether that changes the question."""
        new = {n: solved[n] for n in names if n in solved and n not in self.unstated}
        new = {name: version for name, version in new.items() if version not in self.read.get(name, {})}
        self._read(new)
        for name, version in new.items():
            archive = self.read.get(name, {}).get(version)
            if archive is None or len(self.read[name]) > _MOST_VERSIONS:
                self.build_metadata(name, version, plan)
        return any(
            name in self.unstated or applying(self.read[name][version].requires or (), plan, None)
            for name, version in new.items()
        )

    def recorded(self, package: LockedPackage, needs: Sequence[RequirementLine], plan: Plan) -> LockedPackage:
        """Return a package with the metadata of its archive as `depends`, if a build may state other metadata.

        Its Python is first, followed by the requirements that apply to the plan.
        """
        archive = self.archive(package)
        if archive is None or archive.requires is None or not archive.changeable:
            return package
        python = f"python {archive.requires_python or ''}".rstrip()
        lines = applying(archive.requires, plan, _find_extras(package.name, needs, plan))
        return dataclasses.replace(package, depends=(python, *lines))

    def archive(self, package: LockedPackage) -> SourceArchive | None:
        """Return the description of a package that was solved with its stated metadata."""
        if package.name in self.unstated:
            return None
        return self.read.get(package.name, {}).get(package.version)

    def build_metadata(self, name: str, version: str, plan: Plan) -> None:
        """Let uv run the build code of a package, and announce it once. Raises LockError if no code may run."""
        if name in self.unstated:
            return
        if self.runs_no_code:
            raise LockError(f"no file of {name} {version} states its requirements")
        self.unstated.add(name)
        text = (
            f"{name} has no wheel for Python {plan.python} on {plan.platform}, and no file of {name} {version} "
            "states its requirements: running its build code"
        )
        self.emit(Event(kind="warning", stage="lock", text=text))

    def _read_newest(self, names: Iterable[str]) -> None:
        """Read the newest archive within the bounds of the refusal, which the solution will mostly have."""
        wanted = {}
        for name in names:
            bounds = [_parse_specifier(text) for text in self.refused.get(name, ("",))]
            fitting = [
                p.version for p in self.archives.listed(name) if any(b.contains(p.version) for b in bounds)
            ]
            if fitting:
                wanted[name] = fitting[0]
        self._read(wanted)

    def _read(self, wanted: Mapping[str, str]) -> None:
        packages = [
            p for name, version in wanted.items() for p in self.archives.listed(name) if _is_same(p, version)
        ]
        for package, archive in self.archives.describe(packages).items():
            if archive.requires is not None:
                version = wanted[package.name]
                self.read.setdefault(package.name, {})[version] = dataclasses.replace(
                    archive, version=version
                )


def applying(requires: Iterable[str], plan: Plan, extras: Iterable[str] | None) -> tuple[str, ...]:
    """Return the requirements that apply to a plan's Python and platform, in one spelling.

    `extras` None means all extras.
    """
    versions = {"python_version": plan.python or "", "python_full_version": f"{plan.python}.0"}
    markers = markers_of(plan.platform) | CPYTHON | versions
    lines: dict[str, None] = {}
    for text in requires:
        need = Requirement(text)
        applied = ["", *(list_extras([text]) if extras is None else extras)]
        if need.marker is None or any(need.marker.evaluate({**markers, "extra": e}) for e in applied):
            lines[_spell(need)] = None
    return tuple(sorted(lines))


def _spell(need: Requirement) -> str:
    """Return a requirement as "NAME SPECIFIER ; MARKER", which is valid for conda and PEP 508."""
    extras = f"[{','.join(sorted(need.extras))}]" if need.extras else ""
    target = f"@ {need.url}" if need.url else ",".join(sorted(map(str, need.specifier)))
    line = f"{canonicalize_name(need.name)}{extras} {target}".rstrip()
    return f"{line} ; {need.marker}" if need.marker else line


def list_extras(requires: Iterable[str]) -> list[str]:
    """Return the extras that the markers of requirements name."""
    return sorted({e for text in requires for e in re.findall(r"""extra\s*==\s*["']([\w.-]+)["']""", text)})


def _find_extras(name: str, needs: Sequence[RequirementLine], plan: Plan) -> list[str]:
    """Return the extras of a package that a project or a plan requests."""
    texts = [n.text for n in needs if n.name and canonicalize_name(n.name) == name]
    extras: set[str] = set()
    for text in (*texts, *plan.packages):
        try:
            need = Requirement(text)
        except InvalidRequirement:
            continue  # a folder or a commit: not a release of an index
        extras |= set(need.extras) if canonicalize_name(need.name) == name else set()
    return sorted(extras)


def _make_table(archive: SourceArchive) -> dict[str, object]:
    table: dict[str, object] = {
        "name": archive.name, "version": archive.version, "provides-extra": list(archive.extras),
        "requires-dist": [str(Requirement(text)) for text in archive.requires or ()],
    }  # fmt: skip
    return table | ({"requires-python": archive.requires_python} if archive.requires_python else {})


def _parse_exact(text: str) -> tuple[str, str] | None:
    """Return name and version of a requirement of one version, or None for any other."""
    try:
        need = Requirement(text)
    except InvalidRequirement:
        return None  # a folder or a commit
    versions = [s.version for s in need.specifier if s.operator == "==" and not s.version.endswith(".*")]
    return (str(canonicalize_name(need.name)), versions[0]) if versions else None


def _is_same(package: LockedPackage, version: str) -> bool:
    return _is_version(package.version, version)


def _is_version(text: str, version: str) -> bool:
    """Return whether two texts are the same version."""
    try:
        return text == version or Version(text) == Version(version)
    except InvalidVersion:
        return False


def _parse_specifier(text: str) -> SpecifierSet:
    try:
        return SpecifierSet(text)
    except InvalidSpecifier:
        return SpecifierSet()
