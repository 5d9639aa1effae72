"""Decides what a solve may do with source archives, folders and commits.

Commands that lock let uv build what it considers, as uv itself does. `resolve` runs no code: uv gets the requirements
that archives state. They are also the way out where uv cannot build the metadata of a release.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from packaging.specifiers import SpecifierSet
from packaging.tags import Tag
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import Version

from ..errors import LockError
from ..index.markers_and_tags_of_platform import wheel_tags
from ..index.simple_api import allows_python, version_of
from ..model import Emit, Event, LockedPackage, PackageSources, Plan, RequirementLine
from ..system.redaction import clean
from ..wheels.pylock import is_source
from ..wheels.read_source_archives import SourceArchive, SourceArchives
from .stated import StatedMetadata

_HINT = "request releases that have wheels, or remove {}"
_MOST_FAILED = 5
"""Packages of which the archives are read in one solve after uv could not build their metadata."""


@dataclass
class SourceRules:
    """What a solve may do with sources.

    With `reading` nothing is built, and packages that state no requirements are left out (`unread`). `forbidden_by` is
    the option that forbids all builds, and `only_binary` are packages that are never built. `allowed` are packages
    without a wheel whose archives are read in place of a build.
    """

    emit: Emit
    stated: StatedMetadata
    reading: bool = False
    forbidden_by: str | None = None
    only_binary: frozenset[str] = frozenset()
    allowed: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)

    @property
    def archives(self) -> SourceArchives:
        """The source archives on the indexes."""
        return self.stated.archives

    @property
    def builds(self) -> bool:
        """Whether uv may build what it considers."""
        return not (self.reading or self.forbidden_by)

    def forbids(self, name: str) -> str | None:
        """Return the option that forbids a build of a package, or None."""
        return self.forbidden_by or (f"--only-binary {name}" if name in self.only_binary else None)

    def releases(self, name: str, bounds: SpecifierSet, plan: Plan) -> dict[Version, bool]:
        """Return the releases of a package within bounds for a plan's Python, and whether each has a wheel for it."""
        tags = frozenset(wheel_tags(plan.python or "", plan.platform, plan.target.glibc))
        releases: dict[Version, bool] = {}
        for file in self.archives.files(name):
            release = version_of(file.name, name)
            if release is None or file.yanked is not None or not bounds.contains(release):
                continue
            if allows_python(file.requires_python, plan.python or ""):
                releases[release] = releases.get(release, False) or not tags.isdisjoint(tags_of(file.name))
        return releases

    def options(
        self, needs: Iterable[RequirementLine], folder: Path, only_binary: Iterable[str], built: Iterable[str]
    ) -> list[str]:
        """Return the options of uv. Files for uv are written into the folder.

        `only_binary` are more packages that are not built, and ":all:" means all but those in `built`.
        """
        names = self._of_indexes(needs)
        only_binary = set(only_binary)
        if self.builds and ":all:" not in only_binary:
            words = [w for n in sorted({*self.only_binary, *only_binary}) for w in ("--only-binary", n)]
        else:
            words = ["--only-binary", ":all:"]
            words += [w for n in (*self.allowed, *built) if n not in only_binary for w in ("--no-binary", n)]
        return [*words, *self.stated.options(names, folder)]

    def overrides(self) -> list[str]:
        """Return lines of an overrides file that remove the unread packages from a solve."""
        return [f"{name} ; python_version < '0'" for name in self.unread]

    def kept(self, needs: Iterable[RequirementLine]) -> tuple[RequirementLine, ...]:
        """Return the needs without those of unreadable name, if packages were left out."""
        return tuple(n for n in needs if not (self.unread and n.name is None and (n.vcs or n.local)))

    def learn(self, solved: Mapping[str, str], needs: Iterable[RequirementLine], plan: Plan) -> bool:
        """Read the archives of the versions in a solution. Return whether uv must run again."""
        try:
            return self.stated.learn(solved, self._of_indexes(needs), plan)
        except LockError as error:
            if not self.reading or not error.unbuilt:
                raise
            self.allowed.remove(error.unbuilt)
            self.leave_out(error.unbuilt, error.message)
            return True

    def learn_from(self, error: LockError, needs: Sequence[RequirementLine], plan: Plan) -> bool:
        """Allow another answer after a failed run of uv. Return whether uv may run again. Raises LockError."""
        self.stated.note_refusal(error.log or "")
        if self.builds:
            self._refuse_forbidden(error, plan)
            return error.failed is not None and self._read_in_place(error.failed, needs)
        if error.unbuilt is not None:
            return self._leave_out_unbuilt(error, needs)
        name = error.no_wheel
        if name is None or name in (*self.allowed, *self.unread):
            return False
        where = f"Python {plan.python} on {plan.platform}"
        requirer = self.stated.required_by.get(name)
        why = f"{name}{f' (required by {requirer})' if requirer else ''} has no wheel for {where}"
        if forbidden := self.forbids(name):
            raise LockError(
                f"{why}, and {forbidden} forbids a build of its source archive", hint=_HINT.format(forbidden)
            )
        self.allowed.append(name)
        return True

    def _refuse_forbidden(self, error: LockError, plan: Plan) -> None:
        """Raise LockError for a package that an option or uv's configuration does not let uv build."""
        name = error.no_wheel or (error.unbuilt or "").partition(" ")[0]
        if name in self.only_binary:
            raise LockError(
                f"{name} has no wheel for Python {plan.python} on {plan.platform}, and --only-binary {name} forbids a build "
                "of its source archive", log=error.log, hint=_HINT.format(f"--only-binary {name}"),
            )  # fmt: skip
        if error.unbuilt is not None:
            raise LockError(
                f"{clean(error.unbuilt) or 'a package'} needs a build, which uv's configuration forbids (UV_NO_BUILD)",
                log=error.log, hint="unset UV_NO_BUILD and UV_NO_BUILD_PACKAGE, or request releases that have wheels",
            )  # fmt: skip

    def _read_in_place(self, name: str, needs: Sequence[RequirementLine]) -> bool:
        """Read the archives of a package whose metadata uv could not build."""
        direct = any(n.name and canonicalize_name(n.name) == name and _is_direct(n) for n in needs)
        if not name or direct or name in self.allowed or len(self.allowed) >= _MOST_FAILED:
            return False
        self.allowed.append(name)
        text = f"the metadata of {name} cannot be built here: reading what its source archives state"
        self.emit(Event(kind="warning", stage="lock", text=text))
        return True

    def _leave_out_unbuilt(self, error: LockError, needs: Sequence[RequirementLine]) -> bool:
        """Leave out a package whose requirements only a build can state. Raises LockError where builds are forbidden."""
        refused = error.unbuilt or ""
        name = str(canonicalize_name(refused.partition(" ")[0].partition("[")[0])) if refused else ""
        if (name or "gpuenv-unnamed") in self.unread:
            return False
        shown = clean(refused) if refused else _describe_unnamed(needs)
        origins = [n.origin for n in needs if n.name and canonicalize_name(n.name) == name]
        shown += f" ({', '.join(origins)})" if origins else ""
        why = f"{shown} does not state its requirements without a build"
        if self.forbidden_by:
            raise LockError(
                f"{why}, and {self.forbidden_by} forbids builds",
                hint=_HINT.format(self.forbidden_by),
                log=error.log,
            )
        self.leave_out(name, why)
        return True

    def leave_out(self, name: str, why: str) -> None:
        """Remove a package from a solve that only reads. "" means commits without a name."""
        self.unread.append(name or "gpuenv-unnamed")
        text = f"{why}. This command runs no build code, so the package is left out and `gpuenv lock` may give other releases"
        self.emit(Event(kind="warning", stage="resolve", text=text))

    def describe(
        self, package: LockedPackage, needs: Sequence[RequirementLine], plan: Plan
    ) -> tuple[LockedPackage, SourceArchive | None]:
        """Return a locked source archive with the requirements that its files state, and its description."""
        archive = self.stated.archive(package) or self.archives.describe([package]).get(package)
        return self.stated.recorded(package, needs, plan), archive

    def announce(
        self, packages: Iterable[LockedPackage], archives: Mapping[str, SourceArchive | None], plan: Plan
    ) -> None:
        """Say of each locked source what its build needs."""
        for package in filter(is_source, packages):
            archive = self.stated.archive(package) or archives.get(package.name)
            self.emit(_describe_build(package, archive, plan))

    def _of_indexes(self, needs: Iterable[RequirementLine]) -> list[str]:
        """Return the allowed packages of indexes, and record packages that only one index has."""
        needs = tuple(needs)
        places = {str(canonicalize_name(n.name)): n.index for n in needs if n.name and n.index}
        self.archives.places.update(places)
        direct = {canonicalize_name(n.name) for n in needs if n.name and _is_direct(n)}
        return [name for name in self.allowed if name not in direct]


def source_rules(sources: PackageSources, emit: Emit, *, reading: bool = False) -> SourceRules:
    """Return the rules that the options state for these sources."""
    every = ":all:" in sources.only_binary
    forbidden = "--no-build" if sources.no_build else "--only-binary :all:" if every else None
    names = frozenset(str(canonicalize_name(n)) for n in sources.only_binary if n != ":all:")
    return SourceRules(
        emit,
        StatedMetadata(SourceArchives(sources), emit),
        reading=reading,
        forbidden_by=forbidden,
        only_binary=names,
    )


def without_builds(sources: PackageSources, emit: Emit, why: str) -> SourceRules:
    """Return rules that forbid all builds. `why` is named in errors, for example "a bundle"."""
    return SourceRules(emit, StatedMetadata(SourceArchives(sources), emit), forbidden_by=why)


def _describe_build(package: LockedPackage, archive: SourceArchive | None, plan: Plan) -> Event:
    """Return the event for a locked source: what its build needs, and where its requirements come from."""
    if package.unhashed:
        return Event(kind="done", stage="lock", text=f"{package.name} is built from {clean(package.url)}")
    text = f"{package.name} {package.version} has no wheel for Python {plan.python} on {plan.platform}: "
    if archive is None:
        text += "built from source during installation, with a compiler if it contains compiled code"
    elif archive.needs_compiler:
        text += f"built from source during installation, which needs {archive.compiler}"
    else:
        pure = "needs no compiler" if archive.compiled_files else "is Python only"
        text += f"installed from source, which {pure}"
    text += ". Its build tools have no hashes"
    if archive and package.depends:
        text += f". Its requirements are those of {archive.stated_in}; `gpuenv create` compares them with the built package"
    kind = "note" if archive and not archive.needs_compiler else "warning"
    return Event(kind=kind, stage="lock", text=text)


def tags_of(file: str) -> frozenset[Tag]:
    """Return the tags of a wheel, or none for a source archive and a name that no installer takes."""
    try:
        return parse_wheel_filename(file)[3]
    except InvalidWheelFilename:
        return frozenset()


def _is_direct(need: RequirementLine) -> bool:
    return bool(need.local or need.vcs or " @ " in need.text)


def _describe_unnamed(needs: Sequence[RequirementLine]) -> str:
    return ", ".join(f"{clean(n.text)} ({n.origin})" for n in needs if n.name is None) or "a package"
