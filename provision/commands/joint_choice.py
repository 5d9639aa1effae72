"""The newest set of framework builds and named packages: reads what the search needs of releases, and keeps what refused
solves tell."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ..errors import LockError
from ..model import FRAMEWORKS, Emit, Event, HeldBackPackage, JointSolution, Lock, Plan, RequestContext
from ..resolve.companions import companion_names, known_companion
from ..resolve.cuda_conflicts import OtherCuda, sentence_of
from ..resolve.joint_answer import against_newest, answer, why_none
from ..resolve.joint_search import Chosen, JointSearch, Refused
from ..resolve.outdated_releases import OLD, too_old
from ..resolve.question import Question
from ..wheels.available_releases import Named, ReleaseReader
from .named_packages import read_named_packages
from .older_releases import read_what_matters
from .transitive_packages import find_transitive_packages

_MOST_REFUSALS = 6
_UNKNOWN = "the other packages conflict with it"


@dataclass(frozen=True)
class KeptReleases:
    """The first lock in which packages that came along do not go with the builds: taken where no other set is found."""

    plan: Plan
    lock: Lock
    found: tuple[OtherCuda, ...]


class OtherCudaError(LockError):
    """Packages that came along do not go with the builds of a lock."""

    def __init__(self, found: tuple[OtherCuda, ...]) -> None:
        super().__init__(sentence_of(found[0]))
        self.found = found


@dataclass
class JointChoice:
    """The choice for a question that may change. `held` are packages that stay as a lock has them; once `off`, the
    choice is left to the solver."""

    emit: Emit
    allow_old: bool = False
    held: frozenset[str] = frozenset()
    off: bool = False
    kept: KeptReleases | None = None
    _said_of: set[str] = field(default_factory=set)
    _named: frozenset[str] = frozenset()
    _refused: list[Refused] = field(default_factory=list)
    _loose: dict[str, str] = field(default_factory=dict)  # packages that the solver chooses, and why
    _takes_old: bool = False
    _reader: ReleaseReader | None = None
    _read_for: object = None
    _search: JointSearch | None = None
    _chosen: Chosen | None = None
    _answered: tuple[RequestContext, tuple[int, int, bool], RequestContext] | None = None

    def applied(self, context: RequestContext) -> RequestContext:
        """The question with the newest set laid over it; as it is where no packages are named, or where no index is
        asked. Raises LockError where every set has a release that is too old."""
        learnt = (len(self._refused), len(self._loose), self._takes_old)
        if self._answered and not self.off and self._answered[:2] == (context, learnt):
            return self._answered[2]  # only what may come from source has changed
        found = self._applied(context)
        self._answered = (context, learnt, found)
        return found

    @property
    def wheelless(self) -> list[str]:
        """The named packages whose chosen releases have no wheel for the chosen Python."""
        if self.off or self._chosen is None:
            return []
        python, releases = self._chosen.candidate.python, self._chosen.releases
        return [n for n, r in releases.items() if python not in r.wheels and n not in self._loose]

    def _applied(self, context: RequestContext) -> RequestContext:
        named = [n for n in read_named_packages(context) if n.name not in self.held]
        self._named = frozenset(n.name for n in named)
        if self.off or not named or context.sources.offline or context.sources.no_index:
            return context
        try:
            self._choose(context, named)
        except LockError as error:
            self._tell(f"the releases of {named[0].name} could not be read: {error.message}")
            self.off = True
            return context
        if self._search is None or self._chosen is None:
            return context
        self._check_age(self._search, self._chosen)
        self._tell_of_python(self._search, self._chosen)
        return self._laid_over(context, answer(self._search, self._chosen))

    def _laid_over(self, context: RequestContext, found: JointSolution) -> RequestContext:
        request = context.request
        changed = dataclasses.replace(
            request, passed_over=found.passed_over, pins=tuple(map(self._pin, found.pins)),
            pythons=request.pythons if request.python else (found.python,),
        )  # fmt: skip
        return dataclasses.replace(context, request=changed, joint=found)

    def _pin(self, pin: str) -> str:
        """The pin of a package, or the bounds in which the solver chooses its release."""
        name = pin.partition("==")[0]
        if name not in self._loose or self._search is None or self._reader is None:
            return pin
        if name in {p.name for p in self._reader.known}:
            return pin
        bounds = self._search.by_name[name].specifier
        floor = "" if self._takes_old else f">={self._reader.oldest(name, OLD)}"
        return name + ",".join(filter(None, (floor, bounds)))

    def _choose(self, context: RequestContext, named: Sequence[Named]) -> None:
        """Search with the Pythons of this machine, then with any that uv could fetch."""
        self._search = self._searched(context, named)
        self._chosen = self._search.best() if self._search else None
        good = self._search and self._chosen and not any(too_old(self._search, self._chosen))
        if good or not context.pythons_known or context.request.python:
            return
        anywhere = dataclasses.replace(context, request=dataclasses.replace(context.request, pythons=()))
        search = self._searched(anywhere, named)
        if search and (chosen := search.best()):
            self._search, self._chosen = search, chosen
        elif self._search and self._chosen is None and self._search.packages:
            self._tell(f"no combination of the available releases is compatible: {why_none(self._search)}")

    def _tell_of_python(self, search: JointSearch, chosen: Chosen) -> None:
        """Say once why the set has another Python than the one that builds alone would get."""
        mine = search.candidates[0].python
        if mine == chosen.candidate.python or mine in self._said_of:
            return
        self._said_of.add(mine)
        for name, release in chosen.releases.items():
            if mine not in release.pythons:
                self._tell(
                    f"Python {mine} is not possible: {name} {release.version} has no wheel for Python {mine}"
                )
                return

    def _tell(self, text: str) -> None:
        self.emit(Event(kind="note", stage="resolve", text=text))

    # --- reading ---------------------------------------------------------------------------------

    def _searched(self, context: RequestContext, named: Sequence[Named]) -> JointSearch | None:
        """A search with all the releases that can matter; None where no build fits the target, or no index lists the
        packages."""
        question = Question(context.request, context.target, context.profiles, context.supply)
        pythons = JointSearch(question, ()).pythons
        reader = self._read(context, named, pythons) if pythons else None
        if reader is None or not reader.packages:
            return None
        return read_what_matters(question, reader, tuple(self._refused))

    def _read(
        self, context: RequestContext, named: Sequence[Named], pythons: frozenset[str]
    ) -> ReleaseReader:
        key = (tuple(named), pythons, context.sources)
        if self._reader is None or self._read_for != key:
            about = frozenset(n.name for n in named) | frozenset(FRAMEWORKS)
            newest_first = sorted(pythons, key=lambda p: -int(p.split(".")[1]))
            companions = companion_names(context.profiles.builds)
            known = [
                known_companion(n.name, n.specifier, context.profiles, context.target.platform, newest_first)
                for n in named if n.name in companions and not n.index
            ]  # fmt: skip
            self._reader = ReleaseReader(
                context.sources, context.supply, context.target, newest_first, about, pre=context.request.pre,
                known=tuple(p for p in known if p.releases),
            )  # fmt: skip
            self._reader.read([n for n in named if n.name not in companions or n.index])
            self._read_for = key
        return self._reader

    def _check_age(self, search: JointSearch, chosen: Chosen) -> None:
        """Raise LockError where the set has a release that is more than two years older than its newest one."""
        for release, newest in () if self.allow_old else too_old(search, chosen):
            why = against_newest(search, chosen, release.package)
            days = newest.day - release.day
            raise _too_old(release.package, release.version, newest.version, days, why)

    # --- what solves tell ------------------------------------------------------------------------

    def learn(self, error: LockError) -> bool:
        """Whether a refusal tells of a set that cannot be completed, so that the next best one is to be tried. The
        solver's reasons name every version that the contradiction needs."""
        if isinstance(error, OtherCudaError):
            return self._refuse(error.found)
        told = error.contradiction or (error.absent and error.absent not in self._named)
        if self.off or self._chosen is None or not told or error.no_wheel:
            return False
        releases = {n: r.version for n, r in self._chosen.releases.items() if _is_named(n, error.log or "")}
        if self._loosen(releases, _reason(error)):
            return True
        if not releases or len(self._refused) >= _MOST_REFUSALS:
            self.off = True
            return False
        builds = error.plan.builds if error.plan else ()
        releases |= {b.framework: b.version for b in builds if _is_named(b.framework, error.log or "")}
        self._refused.append(Refused(releases, _reason(error)))
        return True

    def _loosen(self, names: Iterable[str], because: str) -> bool:
        """Whether the solver is to choose the releases of packages that bind no build, where it refuses them through
        packages that nobody names: one solve finds what would take many by leaving out one set after the other. After
        a second refusal it chooses all of them, after a third also releases that are two years old."""
        if self._search is None or self._search.bound_to_builds.intersection(names):
            return False
        fresh = [n for n in names if n not in self._loose]
        if fresh and self._loose:
            unbound = [p.name for p in self._search.packages if p.name not in self._search.bound_to_builds]
            self._loose = dict.fromkeys(unbound, _UNKNOWN) | self._loose
        elif not fresh and (self._takes_old or not self._loose):
            return False
        self._takes_old = not fresh
        self._loose |= dict.fromkeys(fresh, because)
        return True

    def settled(self, context: RequestContext, plan: Plan, lock: Lock) -> Plan:
        """The plan with the packages that the lock has in older releases than the newest. Raises LockError where one
        is more than two years older, and OtherCudaError where a package that came along does not go with the builds."""
        plan = self._with_ages(plan, lock)
        if found := tuple(find_transitive_packages(context, plan, lock)):
            self.kept = self.kept or KeptReleases(plan, lock, found)
            raise OtherCudaError(found)
        return plan

    def _refuse(self, found: Sequence[OtherCuda]) -> bool:
        """Whether the set is refused for a package that came along; not where nothing in the set can change it."""
        if self.off or self._chosen is None or len(self._refused) >= _MOST_REFUSALS:
            return False
        for one in found:
            root = next((n for n in one.roots if n in self._chosen.releases), None)
            if root:
                release = self._chosen.releases[root]
                versions = {root: release.version} | (
                    {} if one.cuda else dict(self._chosen.candidate.versions)
                )
                because = f"{root} {release.version} brings {one.package}, {one.why}"
                self._refused.append(Refused(versions, because, one.cuda))
                return True
        return False

    def _with_ages(self, plan: Plan, lock: Lock) -> Plan:
        if self._search is None or self._reader is None:
            return plan
        versions = {p.name: p.version for p in lock.packages}
        for package in () if self.allow_old else self._search.packages:
            locked = versions.get(package.name)
            days = self._reader.behind(package.name, locked) if locked and package.dated else 0
            if locked and days > OLD:
                why = next((r.because for r in self._refused if package.name in r.versions), None)
                why = why or self._loose.get(package.name, _UNKNOWN)
                raise _too_old(package.name, locked, package.releases[0].version, days, why)
        return _with_held_back(plan, self._search, versions, self._loose)


def _with_held_back(
    plan: Plan, search: JointSearch, versions: dict[str, str], loose: Mapping[str, str]
) -> Plan:
    """The plan with the packages that the solver took in other releases than those of the set."""
    known = {h.package: h for h in plan.held_back}
    for package in search.packages:
        newest = search.newest(package.name, plan.python or "")
        locked = versions.get(package.name)
        if newest is None or locked is None or locked == newest.version:
            continue
        why = next((r.because for r in search.refused if r.versions.get(package.name) == newest.version), "")
        held = known.get(package.name)
        known[package.name] = HeldBackPackage(
            package=package.name, locked=locked, newest=newest.version,
            because=why or loose.get(package.name) or (held.because if held else _UNKNOWN),
            alternative=held.alternative if held else None,
        )  # fmt: skip
    return dataclasses.replace(plan, held_back=tuple(known.values()))


def _too_old(name: str, version: str, newest: str, days: int, why: str) -> LockError:
    return LockError(
        f"{name} {version} is the newest compatible release; it is {days / 365.25:.1f} years older than "
        f"{newest}: {why}",
        hint="name a release (NAME==VERSION), or accept this one: --allow-old",
    )


def _is_named(name: str, log: str) -> bool:
    """Whether a solver's reasons name a package."""
    written = re.escape(name).replace(r"\-", "[-_.]+")
    return (
        re.search(rf"(?<![A-Za-z0-9._-]){written}(?![A-Za-z0-9_.-]*[A-Za-z0-9_-])", log, re.IGNORECASE)
        is not None
    )


def _reason(error: LockError) -> str:
    """The first of the solver's reasons, on one line."""
    text = " ".join(re.sub(r"[^\x20-\x7e]", " ", error.log or "").split())
    found = re.search(r"Because (.{1,240}?)(?:, we can conclude|\.(?: |$)|$)", text)
    return f"the solver finds no compatible set: {found[1]}" if found else error.message
