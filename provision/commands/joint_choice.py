"""Choose the newest set of framework builds and named packages.

It reads the releases that the search needs, and records what refused solves show.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ..errors import LockError
from ..model import Emit, Event, JointSolution, Lock, Plan, RequestContext
from ..resolve.chosen_and_refused_sets import Chosen, Refused
from ..resolve.companion_objections import companion_names
from ..resolve.compatible_build_sets import CandidateBuilds
from ..resolve.joint_answer import against_newest, answer, why_none
from ..resolve.locked_cuda_conflicts import OtherCuda
from ..resolve.outdated_releases import OLD, too_old
from ..resolve.question import ask_on_all
from ..resolve.search_builds_and_packages import JointSearch
from ..resolve.toolkit import is_toolkit_part
from ..wheels.available_releases import ReleaseReader, RequestedPackage
from .best_set import UNKNOWN, BestSet
from .conflicting_indirect_packages import find_transitive_packages
from .facts_from_refused_solves import KeptReleases, OtherCudaError, find_reason, is_named, make_age_error
from .make_release_reader import make_release_reader
from .packages_named_beside_frameworks import read_named_packages
from .releases_to_read import read_what_matters
from .remembered_conflicts import ConflictMemory

_MOST_REFUSALS = 6


@dataclass
class JointChoice:
    """The choice of a set for a request that may change.

    Packages in `fixed` keep the release of a lock. With `off` the solver chooses the releases.
    """

    emit: Emit
    allow_old: bool = False
    fixed: frozenset[str] = frozenset()
    off: bool = False
    kept: KeptReleases | None = None
    memory: ConflictMemory = field(default_factory=lambda: ConflictMemory(off=True))
    _said_of: set[str] = field(default_factory=set)
    _named: frozenset[str] = frozenset()
    _refused: list[Refused] = field(default_factory=list)
    _loose: dict[str, str] = field(
        default_factory=dict
    )  # packages whose release the solver chooses, and the reason
    _takes_old: bool = False
    _reader: ReleaseReader | None = None
    _read_for: object = None
    _searches: list[tuple[object, JointSearch]] = field(default_factory=list)  # with their questions
    _search: JointSearch | None = None
    _chosen: Chosen | None = None
    _answered: tuple[RequestContext, tuple[int, int, bool], RequestContext] | None = None

    def applied(self, context: RequestContext) -> RequestContext:
        """Return the request with the newest set applied.

        It is unchanged if no packages are named or no index is read. Raises LockError if every set has a
        release that is too old.
        """
        learnt = (len(self._refused), len(self._loose), self._takes_old)
        if self._answered and not self.off and self._answered[:2] == (context, learnt):
            return self._answered[2]  # only the allowed source builds changed
        changed = self._applied(context)
        while (known := self.memory.recall(changed)) and self._refuse(known):
            changed = self._applied(context)
            learnt = (len(self._refused), len(self._loose), self._takes_old)
        self._answered = (context, learnt, changed)
        return changed

    @property
    def why_none(self) -> str | None:
        """Why no set of the releases that were read is compatible, or None."""
        search = self._search
        return why_none(search) if search and search.packages and self._chosen is None else None

    @property
    def wheelless(self) -> list[str]:
        """The named packages whose chosen releases have no wheel for the chosen Python."""
        if self.off or self._chosen is None:
            return []
        candidate, releases = self._chosen.candidate, self._chosen.releases
        built = [n for n, r in releases.items() if candidate.python not in r.wheels and n not in self._loose]
        return [
            n for n in built if not (self._search and self._search.fit.prebuilt_for(releases[n], candidate))
        ]

    def _applied(self, context: RequestContext) -> RequestContext:
        question = ask_on_all(context)
        free = (n for n in read_named_packages(context) if n.name not in self.fixed)
        named = [n for n in free if not is_toolkit_part(question, n.name)]  # the plan's CUDA decides these
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

    def _laid_over(self, context: RequestContext, solution: JointSolution) -> RequestContext:
        request = context.request
        changed = dataclasses.replace(
            request, passed_over=solution.passed_over, pins=tuple(map(self._pin, solution.pins)),
            pythons=request.pythons if request.python else (solution.python,),
        )  # fmt: skip
        return dataclasses.replace(context, request=changed, joint=solution)

    def _pin(self, pin: str) -> str:
        """Return the pin of a package, or the bounds in which the solver chooses its release."""
        name = pin.partition("==")[0]
        if name not in self._loose or self._search is None or self._reader is None:
            return pin
        if name in {p.name for p in self._reader.known}:
            return pin
        bounds = self._search.fit.by_name[name].specifier
        floor = "" if self._takes_old else f">={self._reader.oldest(name, OLD)}"
        return name + ",".join(filter(None, (floor, bounds)))

    def _choose(self, context: RequestContext, named: Sequence[RequestedPackage]) -> None:
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
        """Note once why the set has another Python than the framework builds alone would get."""
        expected_python = search.candidates[0].python
        if expected_python == chosen.candidate.python or expected_python in self._said_of:
            return
        self._said_of.add(expected_python)
        for name, release in chosen.releases.items():
            if expected_python not in release.pythons:
                self._tell(
                    f"Python {expected_python} is not possible: {name} {release.version} has no wheel for Python {expected_python}"
                )
                return

    def _warn(self, text: str) -> None:
        self.emit(Event(kind="warning", stage="resolve", text=text))

    def _tell(self, text: str) -> None:
        self.emit(Event(kind="note", stage="resolve", text=text))

    # --- reading ---------------------------------------------------------------------------------

    def _searched(self, context: RequestContext, named: Sequence[RequestedPackage]) -> JointSearch | None:
        """Return a search with all relevant releases, or None without a build or packages on an index."""
        question = ask_on_all(context)
        key = (question, context.sources, named, tuple(self._refused))
        for known, search in self._searches:
            if known == key:
                return search
        candidates = JointSearch(question, ()).candidates
        reader = self._read(context, named, candidates) if candidates else None
        if reader is None or not reader.packages:
            return None
        search = read_what_matters(question, reader, tuple(self._refused))
        self._searches.append((key, search))
        return search

    def _read(
        self,
        context: RequestContext,
        named: Sequence[RequestedPackage],
        candidates: Sequence[CandidateBuilds],
    ) -> ReleaseReader:
        pythons = frozenset(c.python for c in candidates)
        builds = tuple({id(b): b for c in candidates for b in c.builds}.values())
        key = (tuple(named), pythons, context.sources, builds)
        if self._reader is None or self._read_for != key:
            self._reader = make_release_reader(context, named, pythons, builds, self._warn)
            companions = companion_names(context.profiles.builds)
            self._reader.read([n for n in named if n.name not in companions or n.index])
            self._read_for = key
        return self._reader

    def _check_age(self, search: JointSearch, chosen: Chosen) -> None:
        """Raise LockError if the set has a release more than two years older than the package's newest one."""
        for release, newest in () if self.allow_old else too_old(search, chosen):
            why = against_newest(search, chosen, release.package)
            days = newest.day - release.day
            raise make_age_error(release.package, release.version, newest.version, days, why)

    # --- results of solves -----------------------------------------------------------------------

    def learn(self, error: LockError) -> bool:
        """Record a refusal that shows that the set is impossible, and return whether to try the next one.

        The solver's reasons name every version that the contradiction needs.
        """
        if isinstance(error, OtherCudaError):
            return self._refuse(error.conflicts)
        is_conflict = error.contradiction or (error.absent and error.absent not in self._named)
        if self.off or self._chosen is None or not is_conflict or error.no_wheel:
            return False
        releases = {n: r.version for n, r in self._chosen.releases.items() if is_named(n, error.log or "")}
        if self._loosen(releases, find_reason(error)):
            return True
        if not releases or len(self._refused) >= _MOST_REFUSALS:
            self.off = True
            return False
        builds = error.plan.builds if error.plan else ()
        releases |= {b.framework: b.version for b in builds if is_named(b.framework, error.log or "")}
        self._refused.append(Refused(releases, find_reason(error)))
        return True

    def _loosen(self, names: Iterable[str], because: str) -> bool:
        """Let the solver choose the releases of packages that bind no build, and return whether anything
        changed.

        One solve then replaces many that leave out one set after the other. After a second refusal the solver
        chooses all such packages. After a third it may also choose releases older than two years.
        """
        if self._search is None or self._search.fit.bound_to_builds.intersection(names):
            return False
        fresh = [n for n in names if n not in self._loose]
        if fresh and self._loose:
            unbound = [
                p.name for p in self._search.packages if p.name not in self._search.fit.bound_to_builds
            ]
            self._loose = dict.fromkeys(unbound, UNKNOWN) | self._loose
        elif not fresh and (self._takes_old or not self._loose):
            return False
        self._takes_old = not fresh
        self._loose |= dict.fromkeys(fresh, because)
        return True

    def settled(self, context: RequestContext, plan: Plan, lock: Lock) -> Plan:
        """Return the plan with the packages that the lock has in older releases than the newest.

        Raises LockError if one is more than two years older, and OtherCudaError if an indirect package
        conflicts with the builds.
        """
        plan = self._with_ages(plan, lock)
        if conflicts := find_transitive_packages(context, plan.builds, lock.packages, lock.required_by):
            self.kept = self.kept or KeptReleases(plan, lock, conflicts)
            if self._answered:
                self.memory.note(self._answered[2], lock, conflicts)
            raise OtherCudaError(conflicts)
        self.memory.keep()
        return plan

    def _refuse(self, conflicts: Sequence[OtherCuda]) -> bool:
        """Record that the set brings a conflicting package, and return whether another set could avoid it."""
        if self.off or self._chosen is None or len(self._refused) >= _MOST_REFUSALS:
            return False
        for one in conflicts:
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
                why = why or self._loose.get(package.name, UNKNOWN)
                raise make_age_error(package.name, locked, package.releases[0].version, days, why)
        best = self.best_set
        return dataclasses.replace(plan, held_back=best.list_held_back(plan, versions)) if best else plan

    @property
    def best_set(self) -> BestSet | None:
        """The set that was chosen last, None without one."""
        if self._search is None or self._chosen is None:
            return None
        return BestSet(self._search, self._chosen, self._loose)
