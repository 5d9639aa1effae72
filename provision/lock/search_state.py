"""The state of a search: its request, the builds that fit, what releases state of themselves, and the outcomes so far."""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import field

from ..errors import LockError
from ..index.config import own_cache
from ..index.simple_api import File
from ..model import FRAMEWORKS, Build, Event, LockedPackage, Plan, RequestContext
from ..model.values import Value
from ..system.versions import version
from ..wheels.pylock import is_source
from ..wheels.releases import IndexMetadata
from .builds import FittingBuilds
from .compatibility import Compatibility, Conflict, stated_bounds
from .compile import Answer
from .measured import MeasuredRows
from .named import NamedPackage, read_named_packages
from .pages import Pages
from .source_builds import SourceRules


class Candidate(Value):
    """A plan that a search may try: its builds come first. The rest says how it is tried.

    With `fixed` no other builds are allowed. `first` are named packages that uv decides first. `limits` are further
    constraints. With `loose` gpuenv adds no pins of its own. `prefer` are versions that stay if they can. `wanted` are the package or framework, and its release, that the
    candidate is for.
    """

    builds: tuple[Build, ...]
    fixed: bool = True
    first: tuple[str, ...] = ()
    limits: tuple[str, ...] = ()
    only_binary: frozenset[str] = frozenset()
    loose: bool = False
    # Two candidates for a Python that differ in nothing else have the same answer.
    plan: Plan = field(compare=False)
    built: frozenset[str] = field(default=frozenset(), compare=False)
    prefer: Mapping[str, str] = field(default_factory=dict, compare=False)
    wanted: tuple[str, str] = field(default=("", ""), compare=False)


class Solution(Value):
    """A whole solution: the answer to a candidate, its plan, and what the facts say of it.

    `behind` are the days by which the named packages that bind a framework are older than their newest release.
    `compiles` are packages whose build needs a compiler.
    """

    asked: Candidate
    plan: Plan
    builds: tuple[Build, ...]
    answer: Answer
    conflicts: tuple[Conflict, ...]
    compiles: tuple[str, ...]
    behind: Mapping[str, int]


class Refusal(Value, kw_only=False):
    """A candidate without a solution, and uv's reasons."""

    asked: Candidate
    error: LockError

    @property
    def builds(self) -> tuple[Build, ...]:
        """The builds of the candidate."""
        return self.asked.builds

    @property
    def reason(self) -> str:
        """The first of uv's reasons, or the message."""
        from .uv_errors import first_reason  # most solves need no words of uv

        return first_reason(self.error.log or "") or self.error.message


Outcome = Solution | Refusal


def drop_pytorch(context: RequestContext) -> RequestContext:
    """Return the context without the builds of the PyTorch index, which does not answer."""
    available = dataclasses.replace(
        context.available, unreachable=(*context.available.unreachable, "pytorch")
    )
    return dataclasses.replace(context, available=available)


@dataclasses.dataclass
class State:
    """What is known while one request is solved.

    `locked` are the packages of an existing lock that stay. `newest` are the newest releases of the named packages, which were
    looked up for the Python `newest_for`. `asked` are the candidates that uv was asked, from two threads, each with its Python, and `tried` the
    outcomes that were compared. `fitting` has the request, and the builds for the Python that is tried.
    """

    fitting: FittingBuilds
    rules: SourceRules
    locked: Mapping[str, LockedPackage] = field(default_factory=dict)
    has_pip: bool = True
    newest: Answer = field(default_factory=lambda: Answer(packages=()))
    newest_for: str | None = None
    asked: set[tuple[Candidate, str | None]] = field(default_factory=set)
    tried: list[Outcome] = field(default_factory=list)
    named: tuple[NamedPackage, ...] = field(init=False)
    compatibility: Compatibility = field(init=False)
    pages: Pages = field(init=False)

    def __post_init__(self) -> None:
        self._metadata = IndexMetadata(self.context.sources)
        self._measured = MeasuredRows(own_cache(self.context.sources), self.context.target.platform)
        self._stated: dict[str, dict[str, str]] = {}
        self.named = read_named_packages(self.context)
        self.set_fitting(self.fitting)

    @property
    def context(self) -> RequestContext:
        """The request, with its target and sources."""
        return self.fitting.context

    def set_fitting(self, fitting: FittingBuilds) -> None:
        """Go on with other fitting builds: of another Python, or without an index."""
        names = frozenset(n.name for n in self.named)
        self.fitting = fitting
        self.compatibility = Compatibility(fitting.question, names, self.bounds_of, self._measured)
        self.pages = Pages(fitting, self.named, self.rules.emit, self.locked)

    def close_pytorch(self, error: LockError) -> None:
        """Leave out the builds of the PyTorch index, which does not answer."""
        if "pytorch" not in self.context.available.unreachable:
            self.note(f"{error.message}; continuing without this index", "warning")
            self.set_fitting(FittingBuilds(drop_pytorch(self.context), self.fitting.python))

    def note(self, text: str, kind: str = "note") -> None:
        self.rules.emit(Event(kind, "lock", text))

    def groups(self, candidate: Candidate) -> Sequence[Sequence[Build]]:
        """Return for each framework the builds among which uv chooses."""
        if candidate.fixed:
            return [[b] for b in candidate.builds]
        return self.fitting.group(candidate.builds, candidate.plan.python or "")

    # --- releases ------------------------------------------------------------------------------------

    def read_requirements(self, package: LockedPackage) -> tuple[str, ...] | None:
        """Return the Requires-Dist of a release, or None if it cannot be read."""
        if package.unhashed or is_source(package):
            archive = self.rules.archives.describe([package]).get(package) if package.sha256 else None
            return archive.requires if archive else None
        name = package.url.rpartition("/")[2]
        return self._metadata.requirements(File(name=name, url=package.url, sha256=package.sha256))

    def read_bounds(self, package: LockedPackage) -> dict[str, str]:
        """Return the bounds that a release states, by package. Its file is read once."""
        python = self.fitting.newest.python or ""
        key = f"{package.name} {package.version} {python}"
        if key not in self._stated:
            requires = self.read_requirements(package) or ()
            self._stated[key] = stated_bounds(requires, self.context.target.platform, python)
        return self._stated[key]

    def bounds_of(self, package: LockedPackage) -> dict[str, str]:
        """Return the bounds on frameworks that a release states, by framework."""
        return {name: bound for name, bound in self.read_bounds(package).items() if name in FRAMEWORKS}

    def find_newer(self, locked: LockedPackage) -> LockedPackage | None:
        """Return the newest release of a named package within its bounds, if it is newer than the locked one."""
        newest = self.newest.by_name.get(locked.name)
        behind = newest and locked.version and version(newest.version) > version(locked.version)
        return newest if behind else None

    def days_behind(self, package: LockedPackage, answer: Answer) -> int:
        """Return the days between the uploads of a release and of the newest one, at least 1 for an older version."""
        day, last = answer.uploaded.get(package.name), self.newest.uploaded.get(package.name)
        if not day or not last:
            return 1
        return max(1, (dt.date.fromisoformat(last) - dt.date.fromisoformat(day)).days)

    def measure_ages(self, answer: Answer) -> dict[str, int]:
        """Return the days by which named packages that bind a framework are older than their newest release."""
        behind: dict[str, int] = {}
        for named in self.named:
            package = answer.by_name.get(named.name)
            newer = self.find_newer(package) if package else None
            if package and newer and self._binds(package, newer):
                behind[named.name] = self.days_behind(package, answer)
        return behind

    def _binds(self, package: LockedPackage, newer: LockedPackage) -> bool:
        """Return whether a package binds a framework: by a measured row, or by the metadata of either release."""
        if package.name in self.compatibility.rows.packages or package.name in {
            n.name for n in self.pages.packages_with_page
        }:
            return True
        wanted = {w.name for w in self.context.request.frameworks}
        return any(wanted & self.bounds_of(p).keys() for p in (package, newer))
