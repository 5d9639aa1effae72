"""Gives uv the metadata that source archives state, in place of running build code.

uv takes requirements from `dependency-metadata` of its configuration. It has the versions whose archives were read.
Other versions of the package are stated without requirements. When a solution has such a version, its archive is
read, and uv runs again.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from packaging.requirements import Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from ..errors import LockError
from ..model import Emit, Event, LockedPackage, PackageSources, Plan, RequirementLine
from ..requirements.quote import try_requirement
from ..system.redaction import clean
from ..wheels.pylock import is_source
from ..wheels.releases import SourceArchives, select_applying
from ..wheels.sdist import SourceArchive

_MOST_VERSIONS = 8
"""The most archives of one package to read in a search."""
_HINT = "request releases that have wheels, or remove {}"
_MOST_FAILED = 5
"""Packages of which the archives are read in one solve after uv could not build their metadata."""


@dataclass
class SourceRules:
    """What a solve may do with sources, and the metadata that archives state.

    With `no_code` of the sources nothing is built, and packages that state no requirements are left out (`unread`). `forbidden_by` is
    the option that forbids all builds, and `only_binary` are packages that are never built. `allowed` are packages
    without a wheel whose archives are read in place of a build, `failures` are those of their builds. `read` has what was
    read, by package and version. `refused` are the versions without wheels that a refusal named.
    """

    emit: Emit
    archives: SourceArchives
    forbidden_by: str | None = None
    only_binary: frozenset[str] = frozenset()
    allowed: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    failures: dict[str, LockError] = field(default_factory=dict)
    read: dict[str, dict[str, SourceArchive]] = field(default_factory=dict)
    refused: dict[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def may_build(self) -> bool:
        """Whether uv may build what it considers."""
        return not (self.archives.sources.no_code or self.forbidden_by)

    def forbids(self, name: str) -> str | None:
        """Return the option that forbids a build of a package, or None."""
        return self.forbidden_by or (f"--only-binary {name}" if name in self.only_binary else None)

    # --- one query -----------------------------------------------------------------------------------

    def options(
        self, lines: Sequence[RequirementLine], only_binary: Iterable[str], built: Iterable[str]
    ) -> tuple[list[str], list[dict[str, object]]]:
        """Return the options of uv, and the metadata of its configuration.

        `only_binary` are more packages that are not built, and ":all:" means all but those in `built`.
        """
        names = self._list_indexed(lines)
        only_binary = set(only_binary)
        if self.may_build and ":all:" not in only_binary:
            words = [w for n in sorted({*self.only_binary, *only_binary}) for w in ("--only-binary", n)]
        else:
            words = ["--only-binary", ":all:"]
            words += [w for n in (*self.allowed, *built) if n not in only_binary for w in ("--no-binary", n)]
        self._read_newest([name for name in names if name not in self.read])
        tables = [_make_table(a) for name in names for a in self.read.get(name, {}).values()]
        tables += [{"name": name, "requires-dist": []} for name in names]
        # A folder has no requirements of its own. uv needs a version, and takes it for that of the folder.
        folders = dict.fromkeys(n.name for n in lines if n.stated and n.name)
        tables += [{"name": name, "version": "0", "requires-dist": []} for name in folders]
        return words, tables

    def overrides(self) -> list[str]:
        """Return lines of an overrides file that remove the unread packages from a solve."""
        return [f"{name} ; python_version < '0'" for name in self.unread]

    def drop_unread(self, lines: Iterable[RequirementLine]) -> tuple[RequirementLine, ...]:
        """Return the lines without those of unreadable name, if packages were left out."""
        return tuple(n for n in lines if not (self.unread and n.name is None and (n.vcs or n.local)))

    # --- its answer ----------------------------------------------------------------------------------

    def read_archives(self, solved: Mapping[str, str], lines: Iterable[RequirementLine], plan: Plan) -> bool:
        """Read the archives of the versions in a solution. Return whether uv must run again.

        Raises LockError, that of a failed build where there was one, for a package that does not state its requirements.
        """
        names = self._list_indexed(lines)
        new = {n: solved[n] for n in names if n in solved and solved[n] not in self.read.get(n, {})}
        self._read(new)
        for name, version in new.items():
            if version in self.read.get(name, {}) and len(self.read[name]) <= _MOST_VERSIONS:
                continue
            why = f"no file of {name} {version} states its requirements"
            if not self.archives.sources.no_code:
                raise self.failures.get(name) or LockError(why, unbuilt=name)
            self.allowed.remove(name)
            self._leave_out(name, why)
            return True
        return any(select_applying(self.read[n][v].requires or (), plan, None) for n, v in new.items())

    def recover(self, error: LockError, lines: Sequence[RequirementLine], plan: Plan) -> bool:
        """Allow another answer after a failed run of uv. Return whether uv may run again. Raises LockError."""
        from .uv_errors import find_unusable  # most solves need no words of uv

        self.refused |= find_unusable(error.log or "")
        if self.may_build:
            self._refuse_forbidden(error, plan)
            if error.failed is None or not self._read_unbuilt(error.failed, lines):
                return False
            self.failures[error.failed] = error
            return True
        if error.unbuilt is not None:
            return self._leave_out_unbuilt(error, lines)
        name = error.no_wheel
        if name is None or name in (*self.allowed, *self.unread) or not self.archives.list_archives(name):
            return False
        if forbidden := self.forbids(name):
            raise self._explain_forbidden(name, forbidden, error, plan)
        self.allowed.append(name)
        return True

    def _refuse_forbidden(self, error: LockError, plan: Plan) -> None:
        """Raise LockError for a package that an option or uv's configuration does not let uv build."""
        name = error.no_wheel or (error.unbuilt or "").partition(" ")[0]
        if name in self.only_binary:
            raise self._explain_forbidden(name, f"--only-binary {name}", error, plan)
        if error.unbuilt is not None:
            raise LockError(
                f"{clean(error.unbuilt) or 'a package'} needs a build, which uv's configuration forbids (UV_NO_BUILD)",
                log=error.log, hint="unset UV_NO_BUILD and UV_NO_BUILD_PACKAGE, or request releases that have wheels",
            )  # fmt: skip

    @staticmethod
    def _explain_forbidden(name: str, option: str, error: LockError, plan: Plan) -> LockError:
        return LockError(
            f"{name} has no wheel for Python {plan.python} on {plan.platform}, and {option} forbids a build of its source "
            "archive", log=error.log, hint=_HINT.format(option),
        )  # fmt: skip

    def _read_unbuilt(self, name: str, lines: Sequence[RequirementLine]) -> bool:
        """Read the archives of a package whose metadata uv could not build."""
        direct = any(n.package == name and n.is_direct for n in lines)
        if not name or direct or name in self.allowed or len(self.allowed) >= _MOST_FAILED:
            return False
        self.allowed.append(name)
        text = f"uv cannot build {name} to learn its requirements: those that its source states are used"
        self.emit(Event("warning", "lock", text))
        return True

    def _leave_out_unbuilt(self, error: LockError, lines: Sequence[RequirementLine]) -> bool:
        """Leave out a package whose requirements only a build can state. Raises LockError where builds are forbidden."""
        refused = error.unbuilt or ""
        name = str(canonicalize_name(refused.partition(" ")[0].partition("[")[0])) if refused else ""
        if (name or "gpuenv-unnamed") in self.unread:
            return False
        unnamed = ", ".join(f"{clean(n.text)} ({n.origin})" for n in lines if n.name is None)
        shown = clean(refused) or unnamed or "a package"
        origins = [n.origin for n in lines if n.name and n.package == name]
        shown += f" ({', '.join(origins)})" if origins else ""
        why = f"{shown} does not state its requirements without a build"
        if self.forbidden_by:
            raise LockError(
                f"{why}, and {self.forbidden_by} forbids builds",
                hint=_HINT.format(self.forbidden_by),
                log=error.log,
            )
        self._leave_out(name, why)
        return True

    def _leave_out(self, name: str, why: str) -> None:
        """Remove a package from a solve that only reads. "" means commits without a name."""
        self.unread.append(name or "gpuenv-unnamed")
        text = f"{why}. This command runs no build code, so the package is left out and `gpuenv lock` may give other releases"
        self.emit(Event("warning", "resolve", text))

    # --- archives ------------------------------------------------------------------------------------

    def describe(
        self, package: LockedPackage, lines: Sequence[RequirementLine], plan: Plan
    ) -> tuple[LockedPackage, SourceArchive | None]:
        """Return a locked source archive with the requirements that its files state, and its description.

        They are its `depends` where a build may state others: Python first, then what applies to the plan.
        """
        read = self._archive(package)
        if read and read.requires is not None and read.changeable:
            python = f"python {read.requires_python or ''}".rstrip()
            applying = select_applying(read.requires, plan, _find_extras(package.name, lines, plan))
            package = dataclasses.replace(package, depends=(python, *applying))
        return package, read or self.archives.describe([package]).get(package)

    def announce(
        self, packages: Iterable[LockedPackage], archives: Mapping[str, SourceArchive | None], plan: Plan
    ) -> None:
        """Say of each locked source what its build needs."""
        for package in filter(is_source, packages):
            archive = self._archive(package) or archives.get(package.name)
            self.emit(_describe_build(package, archive, plan, self.archives.pythons(package, plan)))

    def _archive(self, package: LockedPackage) -> SourceArchive | None:
        """Return the description of a package that was solved with its stated metadata."""
        return self.read.get(package.name, {}).get(package.version)

    def _list_indexed(self, lines: Iterable[RequirementLine]) -> list[str]:
        """Return the allowed packages of indexes, and record packages that only one index has."""
        lines = tuple(lines)
        places = {n.package: n.index for n in lines if n.name and n.index}
        self.archives.places.update(places)
        direct = {n.package for n in lines if n.is_direct}
        return [name for name in self.allowed if name not in direct]

    def _read_newest(self, names: Iterable[str]) -> None:
        """Read the newest archive within the bounds of the refusal, which the solution will mostly have."""
        wanted = {}
        for name in names:
            bounds = [_parse_specifier(text) for text in self.refused.get(name, ("",))]
            fitting = [
                p.version
                for p in self.archives.list_archives(name)
                if any(b.contains(p.version) for b in bounds)
            ]
            if fitting:
                wanted[name] = fitting[0]
        self._read(wanted)

    def _read(self, wanted: Mapping[str, str]) -> None:
        packages = [
            p
            for name, version in wanted.items()
            for p in self.archives.list_archives(name)
            if Version(p.version) == Version(version)
        ]
        for package, archive in self.archives.describe(packages).items():
            if archive.requires is not None:
                version = wanted[package.name]
                self.read.setdefault(package.name, {})[version] = dataclasses.replace(
                    archive, version=version
                )


def _find_extras(name: str, lines: Sequence[RequirementLine], plan: Plan) -> list[str]:
    """Return the extras of a package that a project or a plan requests."""
    texts = [n.text for n in lines if n.package == name]
    extras: set[str] = set()
    for text in (*texts, *plan.packages):
        need = try_requirement(text)
        extras |= need.extras if need and canonicalize_name(need.name) == name else set()
    return sorted(extras)


def _make_table(archive: SourceArchive) -> dict[str, object]:
    table: dict[str, object] = {
        "name": archive.name, "version": archive.version, "provides-extra": list(archive.extras),
        "requires-dist": [str(Requirement(text)) for text in archive.requires or ()],
    }  # fmt: skip
    return table | ({"requires-python": archive.requires_python} if archive.requires_python else {})


def _parse_specifier(text: str) -> SpecifierSet:
    try:
        return SpecifierSet(text)
    except InvalidSpecifier:
        return SpecifierSet()


def source_rules(sources: PackageSources, emit: Emit) -> SourceRules:
    """Return the rules that the options state for these sources."""
    every = ":all:" in sources.only_binary
    forbidden = "--no-build" if sources.no_build else "--only-binary :all:" if every else None
    names = frozenset(str(canonicalize_name(n)) for n in sources.only_binary if n != ":all:")
    return SourceRules(emit, SourceArchives(sources), forbidden_by=forbidden, only_binary=names)


def forbid_builds(sources: PackageSources, emit: Emit) -> SourceRules:
    """Return the rules of a bundle, which forbid all builds."""
    return SourceRules(emit, SourceArchives(sources), forbidden_by="a bundle")


def _describe_build(package: LockedPackage, archive: SourceArchive | None, plan: Plan, pythons: str) -> Event:
    """Return the event for a locked source: what its build needs, and where its requirements come from."""
    text = f"{package.name} {package.version} has no wheel for Python {plan.python} on {plan.platform}"
    text += f" (only for Python {pythons}): " if pythons else ": "
    if archive is None:
        text += "built from source during installation, with a compiler if it contains compiled code"
    elif archive.compiles:
        text += f"built from source during installation, which needs a compiler: {archive.compiles}"
    else:
        text += "installed from source, which needs no compiler"
    text += ". What builds it is not checked by hash"
    if archive and package.depends:
        text += f". Its requirements are those of its {archive.stated_in}"
    kind = "note" if archive and not archive.compiles else "warning"
    return Event(kind, "lock", text)
