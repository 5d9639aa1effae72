"""Gives uv the metadata that source archives state, in place of running build code.

uv takes requirements from `dependency-metadata` of its configuration. It has the versions whose archives were read.
Other versions of the package are stated without requirements. When a solution has such a version, its archive is
read, and uv runs again.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import tomli_w
from packaging.requirements import Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from ..errors import LockError
from ..model import Emit, LockedPackage, Plan, RequirementLine
from ..wheels.compare_built_metadata import applying
from ..wheels.read_source_archives import SourceArchive, SourceArchives
from .named import requirement
from .uv_errors import find_unusable

_MOST_VERSIONS = 8
"""The most archives of one package to read in a search."""
_DEPENDS = re.compile(
    r"(?:all versions of )?(?<![A-Za-z0-9._-])([A-Za-z0-9._-]{1,200})(?:==([\w.+!-]{1,100}))? depends? on "
    r"([A-Za-z0-9._-]{1,200})"
)
_OURS = "gpuenv-plan"  # the project with the roots


@dataclass
class StatedMetadata:
    """The metadata that archives state, by package and version.

    `refused` are the versions without wheels that a refusal named, and `required_by` who requires a package.
    """

    archives: SourceArchives
    emit: Emit
    read: dict[str, dict[str, SourceArchive]] = field(default_factory=dict)
    refused: dict[str, tuple[str, ...]] = field(default_factory=dict)
    required_by: dict[str, str] = field(default_factory=dict)

    def note_refusal(self, log: str) -> None:
        """Record the versions that a refusal names as without wheels, and their requirers."""
        line = " ".join(log.split())
        self.refused |= find_unusable(line)
        for release, version, name in _DEPENDS.findall(line):
            if release != _OURS:
                self.required_by[str(canonicalize_name(name))] = f"{release} {version}".rstrip()

    def options(self, names: Iterable[str], folder: Path) -> list[str]:
        """Write the metadata of these packages into a file, and return the options with which uv reads it."""
        names = list(names)
        self._read_newest([name for name in names if name not in self.read])
        tables = [_make_table(a) for name in names for a in self.read.get(name, {}).values()]
        tables += [{"name": name, "requires-dist": []} for name in names]
        if not tables:
            return []
        path = folder / "stated.toml"
        path.write_text(tomli_w.dumps({"dependency-metadata": tables}), encoding="utf-8")
        return ["--config-file", str(path)]

    def learn(self, solved: Mapping[str, str], names: Iterable[str], plan: Plan) -> bool:
        """Read the archives of unknown versions in a solution. Return whether that changes the question.

        Raises LockError with `unbuilt` for a package that does not state its requirements.
        """
        new = {n: solved[n] for n in names if n in solved and solved[n] not in self.read.get(n, {})}
        self._read(new)
        for name, version in new.items():
            if version not in self.read.get(name, {}) or len(self.read[name]) > _MOST_VERSIONS:
                raise LockError(f"no file of {name} {version} states its requirements", unbuilt=name)
        return any(applying(self.read[n][v].requires or (), plan, None) for n, v in new.items())

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
        return self.read.get(package.name, {}).get(package.version)

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
            p
            for name, version in wanted.items()
            for p in self.archives.listed(name)
            if _is_version(p.version, version)
        ]
        for package, archive in self.archives.describe(packages).items():
            if archive.requires is not None:
                version = wanted[package.name]
                self.read.setdefault(package.name, {})[version] = dataclasses.replace(
                    archive, version=version
                )


def _find_extras(name: str, needs: Sequence[RequirementLine], plan: Plan) -> list[str]:
    """Return the extras of a package that a project or a plan requests."""
    texts = [n.text for n in needs if n.name and canonicalize_name(n.name) == name]
    extras: set[str] = set()
    for text in (*texts, *plan.packages):
        need = requirement(text)
        extras |= need.extras if need and canonicalize_name(need.name) == name else set()
    return sorted(extras)


def _make_table(archive: SourceArchive) -> dict[str, object]:
    table: dict[str, object] = {
        "name": archive.name, "version": archive.version, "provides-extra": list(archive.extras),
        "requires-dist": [str(Requirement(text)) for text in archive.requires or ()],
    }  # fmt: skip
    return table | ({"requires-python": archive.requires_python} if archive.requires_python else {})


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
