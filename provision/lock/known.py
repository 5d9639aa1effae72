"""What a search knows: its questions and solutions, the builds that fit, the newest releases, and what releases state of themselves."""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any

from packaging.specifiers import SpecifierSet

from ..errors import LockError
from ..index.config import own_cache
from ..index.simple_api import File, version_of
from ..index.wheel_names import wheel_tags
from ..model import FRAMEWORKS, Build, Emit, Event, LockedPackage, Plan, RequestContext, Satellite
from ..model.values import dataclass
from ..resolve.question import meets, version
from ..wheels.pylock import is_source
from ..wheels.releases import IndexMetadata
from .archives import SourceRules, tags_of
from .builds import Fitting
from .compile import Answer
from .facts import Conflict, Facts, stated_bounds
from .named import read_named_packages
from .pages import Pages
from .system_needs import MeasuredRows
from .uv_errors import first_reason


@dataclass(frozen=True, kw_only=True)
class Try:
    """One question of a search: a plan whose builds come first, and what is tried with it.

    With `fixed` no other builds are allowed. `first` are named packages that uv decides first. `without` are
    constraints on what else is left out. `for_whom` are the package or framework, and its release, that the question
    is for.
    """

    plan: Plan
    builds: tuple[Build, ...]
    fixed: bool = True
    first: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    only_binary: frozenset[str] = frozenset()
    built: frozenset[str] = frozenset()
    keep: Mapping[str, str] = field(default_factory=dict)
    loose: bool = False
    for_whom: tuple[str, str] = ("", "")

    @property
    def key(self) -> tuple[object, ...]:
        """What decides the answer."""
        return (
            self.builds,
            self.plan.python,
            self.fixed,
            self.first,
            self.without,
            self.only_binary,
            self.loose,
        )


@dataclass(frozen=True, kw_only=True)
class Solution:
    """A whole solution: the answer to a question, its plan, and what the facts say of it.

    `behind` are the days by which the named packages that bind a framework are older than their newest release.
    `compiles` are packages whose build needs a compiler.
    """

    asked: Try
    plan: Plan
    builds: tuple[Build, ...]
    answer: Answer
    conflicts: tuple[Conflict, ...]
    compiles: tuple[str, ...]
    behind: Mapping[str, int]


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """A question without a solution, and uv's reasons."""

    asked: Try
    error: LockError

    @property
    def reason(self) -> str:
        """The first of uv's reasons, or the message."""
        return first_reason(self.error.log or "") or self.error.message


class Known:
    """What is known while one request is solved.

    `tried` are the outcomes so far, `locked` the packages of an existing lock that stay, and `prefer` the versions
    that stay if they can.
    """

    def __init__(self, context: RequestContext, emit: Emit, rules: SourceRules) -> None:
        self.context, self.emit, self.rules = context, emit, rules
        self.fitting = Fitting(context)
        self.named = read_named_packages(context)
        self.facts = Facts(
            self.fitting.question, frozenset(n.name for n in self.named), self.bounds_of, self.measured
        )
        self.pages = Pages(self.fitting, self.named, emit)
        self.tried: list[Solution | Refusal] = []
        self.newest_files: Mapping[str, LockedPackage] = {}
        self.newest_days: Mapping[str, str] = {}
        self.locked: Mapping[str, LockedPackage] = {}
        self.prefer: Mapping[str, str] = {}
        self._metadata = IndexMetadata(context.sources)
        self._rows = MeasuredRows(own_cache(context.sources))
        self._bounds: dict[str, dict[str, str]] = {}

    def asking(self, **changes: Any) -> RequestContext:
        """Return the context with a changed request."""
        return dataclasses.replace(self.context, request=dataclasses.replace(self.context.request, **changes))

    def with_python(self, python: str) -> RequestContext:
        """Return the context for one Python."""
        return dataclasses.replace(self.asking(pythons=(python,)), pythons_known=False)

    def note(self, text: str, kind: str = "note") -> None:
        self.emit(Event(kind=kind, stage="lock", text=text))

    def use(self, fitting: Fitting) -> None:
        """Go on with other fitting builds: an index does not respond, or another Python is tried."""
        self.fitting = fitting
        self.facts = dataclasses.replace(self.facts, question=fitting.question)
        self.pages = Pages(fitting, self.named, self.emit, self.locked)

    def close(self, index: str, error: LockError) -> None:
        """Leave out the builds of an index that does not answer."""
        supply = self.context.supply
        if index not in supply.unreachable:
            self.note(f"{error.message}; continuing without this index", "warning")
            supply = dataclasses.replace(supply, unreachable=(*supply.unreachable, index))
            self.context = dataclasses.replace(self.context, supply=supply)
            self.use(Fitting(self.context))

    def requires(self, package: LockedPackage) -> tuple[str, ...] | None:
        """Return the Requires-Dist of a wheel, or None if it cannot be read."""
        if package.unhashed or is_source(package):
            archive = self.rules.archives.describe([package]).get(package) if package.sha256 else None
            return archive.requires if archive else None
        name = package.url.rpartition("/")[2]
        return self._metadata.requirements(File(name=name, url=package.url, sha256=package.sha256))

    def measured(self, sha256: str | None) -> tuple[Satellite, ...]:
        """Return the rows of a wheel that was measured on this machine."""
        return self._rows.rows(sha256, self.context.target.platform)

    def bounds_of(self, package: LockedPackage) -> dict[str, str]:
        """Return the bounds on frameworks that a release states, by framework."""
        return {name: bound for name, bound in self.stated(package).items() if name in FRAMEWORKS}

    def stated(self, package: LockedPackage) -> dict[str, str]:
        """Return the bounds that a release states, by package. Its file is read once."""
        python = self.fitting.newest.python or ""
        key = f"{package.name} {package.version} {python}"
        if key not in self._bounds:
            requires = self.requires(package) or ()
            self._bounds[key] = stated_bounds(requires, self.context.target.platform, python)
        return self._bounds[key]

    def deciding(self, answer: Answer) -> set[str]:
        """Return the named packages that are not behind, or stay as locked. An older release follows what decides."""
        return {
            p.name for p in answer.packages
            if p.name in self.facts.named and (p.name in self.locked or not self.is_behind(p))
        }  # fmt: skip

    def who_excludes(
        self,
        answer: Answer,
        name: str,
        release: str,
        builds: Sequence[Build] = (),
        among: Collection[str] | None = None,
    ) -> str | None:
        """Return why a locked package excludes a release of another one: "vllm 0.33.0 requires torch==2.14.0".

        Its metadata does, or the measured row of a named one. `builds` have the release if it is a framework. `among`
        are the packages to look at, by default all.
        """
        requirers = answer.required_by.get(name, ())
        for package in answer.packages:
            if among is not None and package.name not in among:
                continue
            bound = self.stated(package).get(name, "") if package.name in requirers else ""
            if bound and not meets(release, bound):
                return f"{package.name} {package.version} requires {name}{bound}"
            if not builds or package.name not in self.facts.named:
                continue
            if why := self.facts.fits(package.name, package.version, package.sha256, builds):
                return why
        return None

    def pythons_with_wheel(self, name: str, pythons: Iterable[str]) -> set[str]:
        """Return the Pythons for which a package has a wheel within its bounds."""
        bounds = SpecifierSet(next((n.specifier for n in self.named if n.name == name), ""))
        files = [f.name for f in self.rules.archives.wheel_files(name)]
        within = (f for f in files if (v := version_of(f, name)) and bounds.contains(v, prereleases=True))
        tags = frozenset(tag for file in within for tag in tags_of(file))
        target = self.context.target
        return {p for p in pythons if not tags.isdisjoint(wheel_tags(p, target.platform, target.glibc))}

    def is_behind(self, locked: LockedPackage) -> bool:
        """Return whether a named package has a newer release within its bounds."""
        newer = self.newest_files.get(locked.name)
        return newer is not None and bool(locked.version) and version(newer.version) > version(locked.version)

    def days_behind(self, package: LockedPackage, answer: Answer) -> int:
        """Return the days between the uploads of a release and of the newest one, at least 1 for an older version."""
        day, last = answer.uploaded.get(package.name), self.newest_days.get(package.name)
        if not day or not last:
            return 1
        return max(1, (dt.date.fromisoformat(last) - dt.date.fromisoformat(day)).days)

    def ages(self, answer: Answer) -> dict[str, int]:
        """Return the days by which named packages that bind a framework are older than their newest release."""
        by_name = {p.name: p for p in answer.packages}
        behind: dict[str, int] = {}
        for named in self.named:
            package = by_name.get(named.name)
            if package and self.is_behind(package) and self._binds(package):
                behind[named.name] = self.days_behind(package, answer)
        return behind

    def _binds(self, package: LockedPackage) -> bool:
        """Return whether a package binds a framework: by a measured row, or by the metadata of either release."""
        if package.name in self.facts.rows.packages or package.name in {n.name for n in self.pages.paged}:
            return True
        newer = self.newest_files.get(package.name)
        wanted = {w.name for w in self.context.request.frameworks}
        bounds = (self.bounds_of(p) for p in (package, newer) if p)
        return any(wanted & found.keys() for found in bounds)
