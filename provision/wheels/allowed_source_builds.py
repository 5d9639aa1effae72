"""Decides which source code a solve may run, and announces it before it runs.

uv reads metadata in files (pyproject.toml, PKG-INFO) without running anything. For packages of an index without
wheels, `stated_metadata` reads them for uv. If only build code can state the requirements of a folder or a commit, uv
refuses first. Its refusal names the package. The package is then allowed, forbidden, or omitted from a solve that
only reads.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from packaging.utils import canonicalize_name

from ..errors import LockError
from ..model import Event, LockedPackage, PackageSources, Plan, RequirementLine, TransitiveFrameworks
from ..system.redaction import clean
from . import remembered_source_packages
from .package_named_in_refusal import has_wheel
from .pylock import is_source
from .read_source_archives import SourceArchive, SourceArchives, has_pages
from .refused_questions import RefusalMemory
from .stated_metadata import StatedMetadata

_DISABLED = re.compile(r"Building source distributions(?: for `([^`]+)`)? is disabled")
_ADDRESS = re.compile(r"Failed to (?:\w+ and )?build `([^`]+)`")
_HINT = "request releases that have wheels, or remove {}"


def build_refused(log: str) -> str | None:
    """Return the package that uv refused to build: "name @ address", "name", or "" if uv does not know its name."""
    text = " ".join(log.split())
    if not (disabled := _DISABLED.search(text)):
        return None
    named = _ADDRESS.search(text)
    same = named and disabled[1] and named[1].partition(" ")[0] == disabled[1]
    return named[1] if named and same else disabled[1] or ""


@dataclass
class SourceBuilds:
    """The packages that a solve may build from source.

    With `reading` nothing is built, and unreadable packages are omitted. `forbidden_by` is the option that forbids
    all builds. `only_binary` are packages that are never built. `stated` reads the source archives of packages
    without wheels. Without it uv runs their build code. `refusals` has those of earlier runs.
    """

    emit: Callable[[Event], None]
    reading: bool = False
    forbidden_by: str | None = None
    only_binary: frozenset[str] = frozenset()
    allowed: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    chosen: list[str] = field(default_factory=list)
    stated: StatedMetadata | None = None
    refusals: RefusalMemory | None = None

    @property
    def archives(self) -> SourceArchives | None:
        """The source archives on the indexes, or None without a reader of metadata."""
        return self.stated.archives if self.stated else None

    def options(self) -> list[str]:
        """Return the options of uv: only wheels, except for the allowed packages."""
        return ["--only-binary", ":all:", *(word for name in self.allowed for word in ("--no-binary", name))]

    def overrides(self) -> str:
        """Return lines of an overrides file that remove the unread packages from the solve."""
        return "".join(f"{name} ; python_version < '0'\n" for name in self.unread)

    def kept(self, needs: Iterable[RequirementLine]) -> tuple[RequirementLine, ...]:
        """Return the needs without those of unreadable name, if packages were omitted."""
        return tuple(n for n in needs if not (self.unread and n.name is None and n.vcs))

    def stated_options(self, needs: Iterable[RequirementLine], folder: Path) -> list[str]:
        """Return the options with which uv reads the metadata of source archives. Files are written into the folder."""
        return self.stated.options(self._select_of_indexes(needs), folder) if self.stated else []

    def learn(self, solved: Mapping[str, str], needs: Iterable[RequirementLine], plan: Plan) -> bool:
        """Read the source archives of the versions in a solution. Return whether uv must run again."""
        return self.stated is not None and self.stated.learn(solved, self._select_of_indexes(needs), plan)

    def note_refusal(self, log: str, requirements: Iterable[str], sources: PackageSources) -> None:
        """Record the versions of packages that a refusal names as without wheels.

        `requirements` are all requirements of the solve, and `sources` its sources.
        """
        if self.stated:
            self.stated.note_refusal(log, () if has_pages(sources) else requirements)

    def recall(self, question: str, plan: Plan) -> None:
        """Allow the packages without wheels of the last answer to a question, except for forbidden ones.

        Those without stated requirements are announced.
        """
        if self.stated is None or self.reading:
            return
        known = remembered_source_packages.recall(question, self.stated.archives)
        for name, unstated in known.items():
            if self._find_forbidding_option(name):
                continue
            if name not in self.allowed:
                self.allowed.append(name)
            if unstated is not None:
                self.stated.build_metadata(name, unstated, plan)

    def allow_chosen(self, names: Iterable[str]) -> None:
        """Allow the packages whose chosen releases have no wheel, except for forbidden ones.

        Packages that only the previous choice allowed are no longer allowed.
        """
        if self.stated is None or self.reading:
            return
        wanted = [n for n in names if not self._find_forbidding_option(n)]
        others = [n for n in self.allowed if n not in self.chosen or n in wanted]
        self.chosen = [n for n in wanted if n in self.chosen or n not in others]
        self.allowed = list(dict.fromkeys([*others, *wanted]))

    def with_wheels(self, solved: Iterable[LockedPackage], plan: Plan) -> list[str]:
        """Return the allowed packages of a solution that come from source although their release has a wheel."""
        sources = [p for p in solved if p.name in self.allowed and is_source(p) and p.sha256]
        return [p.name for p in sources if self.archives and has_wheel(p, self.archives, plan)]

    @contextlib.contextmanager
    def forbidding(self, names: Iterable[str]) -> Iterator[None]:
        """Forbid allowed packages. A refusal in the block allows them again."""
        before = list(self.allowed)
        self.allowed[:] = [n for n in before if n not in set(names)]
        try:
            yield
        except LockError:
            self.allowed[:] = before
            raise

    def remember(
        self, question: str, packages: Iterable[LockedPackage], needs: Iterable[RequirementLine]
    ) -> None:
        """Store the packages of an answer that came from source because they have no wheel."""
        if self.stated and not self.reading:
            stated, of_indexes = self.stated, set(self._select_of_indexes(needs))
            built = {p.name: p.version if p.name in stated.unstated else None for p in packages}
            known = {name: version for name, version in built.items() if name in of_indexes}
            remembered_source_packages.remember(question, known, stated.archives)

    def _select_of_indexes(self, needs: Iterable[RequirementLine]) -> list[str]:
        """Return the allowed packages of indexes, and record packages that only one index has."""
        needs = tuple(needs)
        if self.stated:
            places = {str(canonicalize_name(n.name)): n.index for n in needs if n.name and n.index}
            self.stated.archives.places.update(places)
        direct = {
            canonicalize_name(n.name) for n in needs if n.name and (n.local or n.vcs or " @ " in n.text)
        }
        return [name for name in self.allowed if name not in direct]

    def allow_wheelless(self, name: str, where: str) -> None:
        """Allow a package of an index without a wheel. Raises LockError if that is forbidden."""
        if name in self.allowed:
            return
        requirer = self.stated.required_by.get(name) if self.stated else None
        why = f"{name}{f' (required by {requirer})' if requirer else ''} has no wheel for {where}"
        if forbidden := self._find_forbidding_option(name):
            raise LockError(
                f"{why}, and {forbidden} forbids a build of its source archive", hint=_HINT.format(forbidden)
            )
        if self.stated is None:
            self._allow(name, f"{why}. Reading its source archive. gpuenv runs the build code only if the archive "
                              "does not state its requirements")  # fmt: skip
        else:  # the solve decides the release, and reports its source
            more = (
                n
                for n in self.stated.without_any_wheel()
                if n not in self.allowed and not self._find_forbidding_option(n)
            )
            self.allowed += dict.fromkeys([name, *more])

    def allow_unread(self, refused: str, error: LockError, needs: Sequence[RequirementLine]) -> None:
        """Allow or omit a package whose requirements only its build code states. Raises LockError."""
        name = str(canonicalize_name(refused.partition(" ")[0].partition("[")[0])) if refused else ""
        if name in self.allowed or (name and name in self.unread):
            raise error
        shown = clean(refused) if refused else _describe_unnamed(needs)
        origins = [n.origin for n in needs if n.name and canonicalize_name(n.name) == name]
        shown += f" ({', '.join(origins)})" if origins else ""
        why = f"{shown} does not state its requirements without a build"
        if self.reading:
            self.leave_out(name, why)
        elif forbidden := self._find_forbidding_option(name):
            raise LockError(f"{why}, and {forbidden} forbids builds", hint=_HINT.format(forbidden),
                            log=error.log)  # fmt: skip
        elif not name:
            raise LockError(f"{why}, and it has no name", hint="write it as NAME @ ADDRESS", log=error.log)
        else:
            self._allow(name, f"running the build code of {shown} to learn its requirements")

    def leave_out(self, name: str, why: str) -> None:
        """Remove a package from a solve that only reads. "" means commits without a name."""
        self.unread.append(name or "gpuenv-unnamed")
        self.emit(
            Event(
                kind="warning",
                stage="resolve",
                text=f"{why}: omitted, because this command does not run build code",
            )
        )

    def _allow(self, name: str, text: str) -> None:
        self.allowed.append(name)
        self.emit(Event(kind="warning", stage="lock", text=text))

    def _find_forbidding_option(self, name: str) -> str | None:
        if self.forbidden_by:
            return self.forbidden_by
        return f"--only-binary {name}" if name in self.only_binary else None


def source_builds(
    sources: PackageSources,
    emit: Callable[[Event], None],
    *,
    reading: bool = False,
    before: TransitiveFrameworks | None = None,
) -> SourceBuilds:
    """Return the packages that may be built with these sources: all without a wheel, unless an option forbids it.

    `before` are packages that an earlier solve allowed or omitted. They are not announced again.
    """
    every = ":all:" in sources.only_binary
    forbidden = "--no-build" if sources.no_build else "--only-binary :all:" if every else None
    names = frozenset(str(canonicalize_name(n)) for n in sources.only_binary if n != ":all:")
    before = before or TransitiveFrameworks()
    return SourceBuilds(
        emit, reading=reading, forbidden_by=forbidden, only_binary=names, allowed=list(before.allowed),
        unread=list(before.unread), stated=StatedMetadata(SourceArchives(sources), emit), refusals=RefusalMemory(sources),
    )  # fmt: skip


def describe_build(package: LockedPackage, archive: SourceArchive | None, plan: Plan) -> Event:
    """Return the event for a locked source archive: what its build needs, and where its requirements come from."""
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


def _describe_unnamed(needs: Sequence[RequirementLine]) -> str:
    return ", ".join(f"{clean(n.text)} ({n.origin})" for n in needs if n.name is None) or "a package"
