"""Finds the lock of a request: uv answers, the measured rows judge, and at most three other solutions are compared."""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from ..detect import find_python
from ..errors import LockError, ResolveError
from ..index.config import pytorch_address, pytorch_packages
from ..index.places import name_locked
from ..index.refusals import NETWORK_HINT, find_connection_error
from ..model import (
    Build,
    Emit,
    Event,
    Lock,
    LockedPackage,
    Plan,
    RequestContext,
    RequirementLine,
    drop_event,
    normalize_name,
)
from ..resolve.question import allows, meets, version
from ..resolve.satellites import companion_names
from ..system.redaction import redact
from ..wheels.pylock import is_source
from . import reasons, retry
from .archives import SourceRules, source_rules
from .builds import Fitting, chosen_pins, pins
from .compile import Answer, UvQuestion, ask, newest
from .known import Known, Refusal, Solution, Try
from .named import NamedPackage, name_of, requirement
from .pages import unruled_pages
from .pinned import CompanionError, TwoBuildsError, TwoCudasError, differs
from .variants import with_variants

MOST_MORE = 3
"""The most solves after the first one."""
_AT_ONCE = 2
_MOST_RELAXED = 3


def search(
    context: RequestContext,
    emit: Emit,
    *,
    cache: Path | None = None,
    near: Lock | None = None,
    moving: frozenset[str] = frozenset(),
) -> tuple[Plan, Lock | None]:
    """Return the plan of a request and its lock, or no lock if no build fits.

    The versions of `near` stay where possible, except those of the packages in `moving`. With `context.reading` no
    code of a source archive runs. Raises LockError, and ResolveError if a measured row forbids the request.
    """
    emit(Event(kind="start", stage="lock", text="solving the packages"))
    rules = source_rules(context.sources, emit, reading=context.reading)
    closed: LockError | None = None
    first: LockError | None = None  # an error that explains more than that of the request after it
    while True:
        one = _Search(context, emit, rules, cache)
        # The other indexes are not asked for what comes from the PyTorch index.
        of_pytorch = any(b.index == "pytorch" for b in one.fitting.newest.builds)
        if not of_pytorch and (varied := with_variants(context)) is not context:
            one = _Search(varied, emit, rules, cache)
        if not one.fitting.newest.builds:
            other = retry.for_cpu(one, "they share no CUDA")
            if other is None:
                return one.without_builds(closed)
        else:
            try:
                solution = one.near(near, moving) if near else one.best()
                other = retry.with_brought(one, solution)
                if other is None:
                    return one.lock_of(solution)
            except LockError as error:
                closed = error if error.unreachable else closed
                first = error if first is None and isinstance(error, TwoCudasError) else first
                other = one.after(error)
                if other is None:
                    raise first or error from None
        context = other


class _Search(Known):
    """The search for one request."""

    def __init__(self, context: RequestContext, emit: Emit, rules: SourceRules, cache: Path | None) -> None:
        super().__init__(context, emit, rules)
        self.cache = cache

    # --- results -------------------------------------------------------------------------------------

    def without_builds(self, closed: LockError | None) -> tuple[Plan, None]:
        """Return the plan without builds. Raises LockError if an index that does not answer has builds that fit."""
        plan = self.fitting.newest
        if closed is not None:
            raise LockError(
                f"{closed.message}; it has builds that fit, and no other index has one", hint=closed.hint,
                unreachable=closed.unreachable, log=closed.log,
            )  # fmt: skip
        return plan, None

    def lock_of(self, solution: Solution) -> tuple[Plan, Lock]:
        """Return the plan and the lock of a solution, with the reasons why others were not chosen."""
        reasons.refuse_cuda_on_cpu(self, solution)
        held_back = reasons.held_back(self, solution)
        because = {h.package: h.because for h in held_back}
        locked = solution.answer.versions
        names = dict.fromkeys([*(n.name for n in self.named), *map(name_of, self.context.request.packages)])
        named = [f"{n}=={locked[n]}" for n in names if n in locked]
        plan = self.fitting.plan(solution.builds, solution.plan.python or "", because, named)
        pages = self.pages.notes(solution.answer.packages, plan)
        notes = [*plan.notes, *reasons.notes(self, solution), *pages]
        plan = dataclasses.replace(
            plan, held_back=tuple(held_back), sets=tuple(reasons.ladder(self, solution)), notes=tuple(notes)
        )
        self.rules.announce(solution.answer.packages, solution.answer.archives, plan)
        for text in reasons.warnings(self, solution):
            self.note(text, "warning")
        plan = name_locked(plan, solution.answer.packages)
        lock = Lock(
            manager="venv", target=self.context.target, plan=plan, packages=solution.answer.packages,
            held_back=plan.held_back, required_by=solution.answer.required_by,
        )  # fmt: skip
        count = len(lock.packages)
        self.emit(Event(kind="done", stage="lock", text=f"{count} packages", done=count))
        return plan, lock

    # --- the order of the search ---------------------------------------------------------------------

    def best(self) -> Solution:
        """Ask, judge, and compare with at most three other solutions. Raises LockError, ResolveError."""
        self._choose_python()
        first = self.first_try()
        best = self._first_solution(first)
        more = MOST_MORE
        while more and (tries := self._candidates(best)[: min(more, _AT_ONCE)]):
            with ThreadPoolExecutor(_AT_ONCE) as pool:
                outcomes = list(pool.map(self._compared, tries))
            for outcome in outcomes:
                if isinstance(outcome, Refusal) and outcome.error.unreachable == "pytorch":
                    self.close("pytorch", outcome.error)
                    continue
                more -= 1
                self.tried.append(outcome)
                self.emit(Event(kind="done", stage="lock", text=reasons.describe(outcome)))
                if isinstance(outcome, Solution) and self._key(outcome) < self._key(best):
                    best = outcome
        if best.conflicts:
            self._explain_conflicts(best)
        return self._with_older_python(best)

    def near(self, lock: Lock, moving: frozenset[str]) -> Solution:
        """Return the solution with the versions of a lock, or else one that keeps what it can, or else the best one."""
        self.locked = {p.name: p for p in lock.packages if p.name not in moving}
        self.pages.locked = self.locked
        keep = {name: p.version for name, p in self.locked.items() if not p.unhashed}
        builds, python = self._builds_of(lock, moving), lock.plan.python or ""
        if builds and python in self.fitting.question.pythons(builds[0]):
            plan = self.fitting.plan(builds, python, {})
            outcome = self._compared(Try(plan=plan, builds=builds, keep=keep))
            if isinstance(outcome, Solution) and not outcome.conflicts:
                self._read_newest(plan)
                return dataclasses.replace(outcome, behind=self.ages(outcome.answer))
            if isinstance(outcome, Refusal) and outcome.error.unreachable:
                raise outcome.error
        self.prefer = keep
        outcome = self._attempt_beside_newest(self.first_try())
        if isinstance(outcome, Refusal) or outcome.conflicts:
            self.prefer = {}
            outcome = self.best()
        if any(outcome.answer.versions.get(name, version) != version for name, version in keep.items()):
            new = (n for n in self.named if n.name not in keep or not meets(keep[n.name], n.specifier))
            room = ", ".join(sorted(moving) or [n.name for n in new]) or "the requirements"
            self.note(f"upgrading locked packages to make room for {room}")
        return outcome

    def _builds_of(self, lock: Lock, moving: frozenset[str]) -> tuple[Build, ...] | None:
        """Return the fitting builds of a lock, or None if one does not fit any more or may move."""
        chosen = []
        for wanted, chain in zip(self.fitting.question.request.frameworks, self.fitting.chains, strict=True):
            locked = next((b for b in lock.plan.builds if b.framework == wanted.name), None)
            if locked is None or wanted.name in moving:
                return None
            same = [b for b in chain if (b.version, b.cuda) == (locked.version, locked.cuda)]
            here = [b for b in same if b.index == locked.index]
            chosen += (here or same)[:1]
        return tuple(chosen) if len(chosen) == len(self.fitting.chains) else None

    def first_try(self) -> Try:
        """Return the first question: the newest fitting builds, and all others of their index."""
        plan = self.fitting.newest
        builds = self.fitting.rows(plan)
        if paged := self.pages.builds(plan.python or ""):
            return Try(plan=self.fitting.plan(paged, plan.python or "", {}), builds=paged)
        local = any(b.index == "find-links" for b in builds)
        fixed = local or self.context.request.pre or self.context.supply.only_wheels
        return Try(plan=plan, builds=builds, fixed=fixed)

    def _first_solution(self, first: Try) -> Solution:
        """Return the first solution. After a refusal: without gpuenv's own pins, with another Python, without rows."""
        outcome = self._attempt_beside_newest(first)
        if isinstance(outcome, Refusal) and first.builds[0].index == "find-links":
            outcome = self._older_local(outcome)
        if isinstance(outcome, Refusal) and chosen_pins(first.plan, first.builds):
            outcome = self._attempt(dataclasses.replace(first, loose=True))
        for python in self._other_pythons(outcome):
            other = Fitting(self.with_python(python))
            if not other.newest.builds:
                continue
            cause = "the requirements do not support it"
            if isinstance(outcome, Refusal) and outcome.error.no_wheel:
                cause = f"{outcome.error.no_wheel} has no wheel for Python {first.plan.python}"
            why = f"Python {first.plan.python} is not possible: {cause}. Trying Python {python}"
            self.note(why)
            self.use(other)
            outcome = self._attempt_beside_newest(self.first_try())
            if isinstance(outcome, Solution):
                break
        if isinstance(outcome, Refusal):
            raise self._explain_refusal(outcome)
        return outcome

    def _older_local(self, refusal: Refusal) -> Solution | Refusal:
        """Return the solution with an older build of a folder of wheels, after a refusal of the newest."""
        python, newest_builds = refusal.asked.plan.python or "", refusal.asked.builds
        for build in self.fitting.chains[0]:
            builds = self.fitting.beside(build, newest_builds) if build.index == "find-links" else None
            if builds and builds != newest_builds and python in self.fitting.question.pythons(build):
                outcome = self._attempt(self._fixed(builds, python, (build.framework, build.version)))
                if isinstance(outcome, Solution):
                    return outcome
        return refusal

    def _attempt_beside_newest(self, one: Try) -> Solution | Refusal:
        """Ask uv, and look up the newest releases of the named packages at the same time."""
        with ThreadPoolExecutor(1) as pool:
            reading: Future[None] = pool.submit(self._read_newest, one.plan)
            outcome = self._ask(one)
            reading.result()
        return self._judged(one, outcome)

    def _read_newest(self, plan: Plan) -> None:
        texts = [n.text for n in self.named if not n.index and not n.is_exact]
        if self.newest_files or not texts:
            return
        quiet = source_rules(self.context.sources, drop_event, reading=self.context.reading)
        question = UvQuestion(plan=plan, sources=self.context.sources, roots=())
        self.newest_files, self.newest_days = newest(texts, question, quiet, self.emit)

    # --- one question --------------------------------------------------------------------------------

    def _attempt(self, one: Try) -> Solution | Refusal:
        return self._judged(one, self._ask(one))

    def _compared(self, one: Try) -> Solution | Refusal:
        """Return the solution of a question that may fail in any way: the first solution exists."""
        try:
            return self._attempt(one)
        except LockError as error:
            return Refusal(asked=one, error=error)

    def _ask(self, one: Try) -> Answer | LockError:
        """Return uv's answer or its refusal. Raises LockError for any other failure."""
        question = self._question(one)
        self._check_index(one.plan)
        try:
            answer = ask(question, self.rules, self.emit)
        except LockError as error:
            if error.contradiction or error.absent:
                return error
            raise
        if self.context.reading and (wheels := self.pages.packages(one.plan)):
            return dataclasses.replace(answer, packages=(*answer.packages, *wheels))
        return answer

    def _check_index(self, plan: Plan) -> None:
        """Raise LockError if a plan needs the PyTorch index and a connection fails. uv would try it for seconds."""
        sources = self.context.sources
        if sources.offline or sources.no_index or not pytorch_packages(plan):
            return
        address = pytorch_address(sources.pytorch, plan)
        if why := find_connection_error(address, sources.proxy):
            raise LockError(
                f"the package index {redact(address)} {why}", hint=NETWORK_HINT, unreachable="pytorch"
            )

    def _question(self, one: Try) -> UvQuestion:
        plan, context = one.plan, self.context
        measured = self.facts.rows.packages
        first = [*one.first, *(n.name for n in self.named if n.name in measured and n.name not in one.first)]
        packages = self._packages(plan)
        own = [*packages, *(n.text for n in context.demands.needs if _is_plain(n))]
        leading = [text for name in first for text in own if name_of(text) == name]
        groups = self._groups(one)
        if one.fixed:
            frameworks = pins(plan)
            limits = self.facts.left_out([one.builds])
        else:
            frameworks = [self.fitting.root(b, plan.python) for b in one.builds]
            frameworks += [] if one.loose else chosen_pins(plan, one.builds)
            limits = [self.fitting.limit(g) for g in groups]
            beside = one.builds[1:]
            limits += self.facts.left_out([(b, *beside) for b in groups[0]])
        # uv decides requirements of this one file in its order, and those of other files first.
        roots = list(dict.fromkeys([*leading, *frameworks, *own, "pip"]))
        if context.sources.offline and not _has_pip(context):
            roots.remove("pip")
        lines = tuple(n for n in context.demands.needs if _is_plain(n) and n.text in roots)
        needs = tuple(n for n in context.demands.needs if n not in lines)
        pages = unruled_pages(context, plan)
        sources = dataclasses.replace(context.sources, find_links=(*context.sources.find_links, *pages))
        if context.reading:  # a wheel of a page is fetched to lock it, and not to plan it
            paged = {p.name for p in self.pages.packages(plan)}
            roots = [text for text in roots if name_of(text) not in paged]
            needs = tuple(n for n in needs if n.constraint or n.name not in paged)
        else:
            needs = self.pages.require_lines(needs, plan)
            roots = [self.pages.require(text, plan) for text in roots]
        return UvQuestion(
            plan=plan, sources=sources, roots=tuple(roots), needs=needs, lines=lines,
            limits=(*self._applicable(limits, plan), *one.without), keep=one.keep, prefer=self.prefer, only_binary=one.only_binary, built=one.built,
            python=find_python(plan.python or "", context.machine, self.cache), judge=self.fitting.question,
        )  # fmt: skip

    def _packages(self, plan: Plan) -> list[str]:
        """Return the requested packages of a plan. A plan pins or omits companions; here uv chooses their release."""
        companions = companion_names(self.context.profiles.builds)
        asked = {name_of(text): text for text in self.context.request.packages if not Requirement(text).url}
        planned = [asked.get(name_of(p), p) if name_of(p) in companions else p for p in plan.packages]
        names = {name_of(p) for p in planned}
        return [*planned, *(t for n, t in asked.items() if n in companions and n not in names)]

    def _applicable(self, limits: Sequence[str], plan: Plan) -> list[str]:
        """Return the limits without those on packages that the user pins to an address, or that a page has."""
        needs = (n for n in self.context.demands.needs if n.name and not n.constraint)
        direct: set[str] = {canonicalize_name(n.name or "") for n in needs if not _is_plain(n)}
        direct |= {p.name for p in self.pages.packages(plan)}
        return [text for text in limits if name_of(text) not in direct]

    def _groups(self, one: Try) -> tuple[list[Build], ...]:
        if one.fixed:
            return tuple([b] for b in one.builds)
        return self.fitting.group(one.builds, one.plan.python or "")

    def _judged(self, one: Try, outcome: Answer | LockError) -> Solution | Refusal:
        """Compare an answer with the facts. An answer whose pins are not those of its builds is asked again, fixed."""
        if isinstance(outcome, LockError):
            return Refusal(asked=one, error=outcome)
        groups = self._groups(one)
        builds = self.fitting.of_versions(groups, outcome.versions)
        if builds is None:
            named = " and ".join(b.framework for b in one.builds)
            error = LockError(f"the solver chose a release of {named} that does not fit", contradiction=True)
            return Refusal(asked=one, error=error)
        plan = one.plan
        if builds != one.builds:
            locked = outcome.versions
            named_pins = [f"{n.name}=={locked[n.name]}" for n in self.named if n.name in locked]
            plan = self.fitting.plan(builds, one.plan.python or "", {}, named_pins)
        if why := differs(plan, outcome.packages, self.context.sources, self.context.demands.needs):
            if one.fixed:
                raise why
            return self._attempt(dataclasses.replace(one, plan=plan, builds=builds, fixed=True))
        conflicts = self.facts.conflicts(builds, outcome.packages, outcome.required_by)
        return Solution(
            asked=one, plan=plan, builds=builds, answer=outcome, conflicts=tuple(conflicts),
            compiles=tuple(self._compiling(outcome)), behind=self.ages(outcome),
        )  # fmt: skip

    def _compiling(self, answer: Answer) -> Iterator[str]:
        for name, archive in answer.archives.items():
            if archive is not None and archive.needs_compiler:
                yield name

    def _key(self, solution: Solution) -> tuple[object, ...]:
        """Return the sort key of a solution, best first."""
        order = [
            next((i for i, b in enumerate(chain) if b == chosen), len(chain))
            for chain, chosen in zip(self.fitting.chains, solution.builds, strict=True)
        ]
        ages = sorted(solution.behind.values(), reverse=True)
        return (len(solution.conflicts) > 0, len(solution.compiles) > 0, max(ages, default=0), order, ages)

    # --- other solutions -----------------------------------------------------------------------------

    def _candidates(self, best: Solution) -> list[Try]:
        """Return the questions whose answers could be better, the most promising first."""
        asked = {one.asked.key for one in self.tried} | {best.asked.key}
        if best not in self.tried:
            self.tried.insert(0, best)
        found = [
            *self._without_conflicts(best),
            *self._without_compiler(best),
            *self._for_packages(best),
            *self._for_framework(best),
        ]
        # A question about another solution builds nothing that the first answer does not build: uv may consider many old
        # releases there.
        folders = (p.name for p in best.answer.packages if p.unhashed)
        built = frozenset([*best.answer.archives, *folders])
        unique: dict[object, Try] = {}
        for one in found:
            wheels = frozenset({":all:", *one.only_binary})
            changed = dataclasses.replace(one, only_binary=wheels, built=built - one.only_binary)
            if changed.key not in asked:
                unique.setdefault(changed.key, changed)
        return list(unique.values())

    def _without_conflicts(self, best: Solution) -> Iterator[Try]:
        """For a release that does not go with the builds: the newest builds that it fits, or the answer without it."""
        for conflict in best.conflicts[:2]:
            package = next(p for p in best.answer.packages if p.name == conflict.name)
            python = best.plan.python or ""
            sets = (
                self.fitting.beside(b, best.builds) for b in self.fitting.chains[0] if b is not best.builds[0]
            )
            fit = next(
                (s for s in sets if s and python in self.fitting.question.pythons(s[0])
                 and self.facts.fits(package.name, package.version, package.sha256, s) is None
                 and (meets(s[0].version, self.bounds_of(package).get(s[0].framework, "")))), None,
            )  # fmt: skip
            if fit and not any(t.asked.builds == fit for t in self.tried):
                yield self._fixed(fit, python, (conflict.name, package.version))
                continue
            left_out = f"{conflict.name}!={package.version.partition('+')[0]}"
            beside = self._fixed(best.builds, python, (conflict.name, package.version))
            yield dataclasses.replace(beside, without=(*best.asked.without, left_out))

    def _without_compiler(self, best: Solution) -> Iterator[Try]:
        names = frozenset(n for n in best.compiles if self.rules.archives.wheels(n))
        if names:
            yield dataclasses.replace(
                best.asked, only_binary=best.asked.only_binary | names, for_whom=(min(names), "")
            )

    def _for_packages(self, best: Solution) -> Iterator[Try]:
        """For a package that is behind: the build that its newest release asks for, with the package listed first."""
        for name in sorted(best.behind, key=lambda n: -best.behind[n]):
            newer = self.newest_files[name]
            bounds = self.bounds_of(newer)
            python = best.plan.python or ""
            for place, chosen in enumerate(best.builds):
                build = self._asked_for(newer, chosen, bounds.get(chosen.framework, ""), python)
                if build is None or build is chosen:
                    continue
                builds = self.fitting.beside(build, best.builds)
                if builds and place < len(builds):
                    yield self._fixed(builds, python, (name, newer.version), first=(name,))
            if all(meets(b.version, bounds.get(b.framework, "")) for b in best.builds):
                yield dataclasses.replace(best.asked, first=(name,), for_whom=(name, newer.version))

    def _asked_for(self, newer: LockedPackage, chosen: Build, bound: str, python: str) -> Build | None:
        """Return the newest fitting build that a release goes with, by its metadata and its measured row."""
        for chain in self.fitting.chains:
            for build in chain if chain and chain[0].framework == chosen.framework else ():
                if (
                    meets(build.version, bound)
                    and python in self.fitting.question.pythons(build)
                    and self.facts.fits(newer.name, newer.version, newer.sha256, [build]) is None
                ):
                    return build
        return None

    def _for_framework(self, best: Solution) -> Iterator[Try]:
        """For a framework that is not in its newest fitting build: that build.

        It cannot be better where no package is behind and one of them excludes it: that one would be behind.
        """
        newest_builds = self.fitting.rows(self.fitting.newest)
        one = newest_builds[0]
        if one.version == best.builds[0].version:
            return
        if not best.behind and self.who_excludes(
            best.answer, one.framework, one.version, newest_builds, self.facts.named
        ):
            return
        yield self._fixed(newest_builds, best.plan.python or "", (one.framework, one.version))

    def _fixed(
        self, builds: tuple[Build, ...], python: str, for_whom: tuple[str, str], first: tuple[str, ...] = ()
    ) -> Try:
        plan = self.fitting.plan(builds, python, {})
        return Try(plan=plan, builds=builds, first=first, for_whom=for_whom)

    # --- Pythons -------------------------------------------------------------------------------------

    def _choose_python(self) -> None:
        """Take the newest Python for which all named packages have their newest release, best as a wheel.

        Only for a machine whose Pythons are unknown: the newest Python of a framework is often too new for the packages.
        """
        request, plan = self.context.request, self.fitting.newest
        if request.python or request.pythons or not plan.builds:
            return
        possible, held_by = list(self.fitting.question.pythons(self.fitting.rows(plan)[0])), ""
        for named in self.named:
            newest = {p: self._newest_usable(named, dataclasses.replace(plan, python=p)) for p in possible}
            best = max(filter(None, newest.values()), default=None)
            fitting = [p for p in possible if best and newest[p] == best]
            if best and fitting[0] != possible[0]:
                what = "has no wheel for" if best[1] else "does not support"
                held_by = f"{named.name} {best[0]} {what} Python {possible[0]}"
            possible = fitting or possible
        other = Fitting(self.with_python(possible[0]))
        if held_by and other.newest.builds:
            self.note(f"Python {possible[0]} in place of {plan.python}: {held_by}")
            self.use(other)

    def _newest_usable(self, named: NamedPackage, plan: Plan) -> tuple[Version, bool] | None:
        """Return the newest final release within the bounds for a plan's Python, and whether it has a wheel for it."""
        try:
            releases = self.rules.releases(named.name, SpecifierSet(named.specifier), plan)
            sources = {p.version for p in self.rules.archives.listed(named.name)}
        except LockError:
            return None  # the solve says why the index does not answer
        usable = (r for r in releases.items() if (r[1] or str(r[0]) in sources) and not r[0].is_prerelease)
        return max(usable, default=None)

    def _other_pythons(self, outcome: Solution | Refusal) -> list[str]:
        """Return the Pythons to try after a refusal that names bounds on Python or a missing wheel."""
        if isinstance(outcome, Solution) or self.context.request.python:
            return []
        error, first = outcome.error, outcome.asked.plan.python or ""
        if not (error.pythons or error.no_wheel):
            return []
        known = {p for b in self.fitting.chains[0] for p in b.python} - {first}
        fitting = {p for p in known if all(allows(bound, p) for bound in error.pythons[:1])}
        if error.no_wheel:
            fitting &= self.pythons_with_wheel(error.no_wheel, fitting)
        have = self.context.request.pythons
        newest = sorted(fitting, key=version, reverse=True)
        return sorted(newest, key=lambda p: have.index(p) if p in have else len(have))[:2]

    def _with_older_python(self, best: Solution) -> Solution:
        """Return the solution with an older Python, if a package that must be built is older than the Python."""
        python = best.plan.python or ""
        released = {row.version: row.released for row in self.context.profiles.pythons}
        sources = [p for p in best.answer.packages if is_source(p) and p.name in best.answer.uploaded]
        late = [p for p in sources if best.answer.uploaded[p.name] < released.get(python, "")]
        if not late or self.context.request.python or self.context.reading:
            return best
        oldest = min(late, key=lambda p: best.answer.uploaded[p.name])
        day = best.answer.uploaded[oldest.name]
        allowed = self.context.request.pythons or tuple(released)
        fitting = [p for p in best.builds[0].python if released.get(p, "9") <= day and p in allowed]
        for other in sorted(fitting, key=version, reverse=True)[:1]:
            again = _Search(self.with_python(other), self.emit, self.rules, self.cache)
            again.newest_files, again.newest_days = self.newest_files, self.newest_days
            if again.fitting.newest.builds:
                with contextlib.suppress(LockError):
                    outcome = again._attempt(again.first_try())
                    if isinstance(outcome, Solution) and not outcome.conflicts:
                        text = f"Python {other} in place of {python}: {oldest.name} {oldest.version} of {day} has no wheel, and is older than Python {python}"
                        self.note(text)
                        self.context = again.context
                        self.use(again.fitting)
                        self.tried = [outcome]
                        return outcome
        return best

    # --- another request -----------------------------------------------------------------------------

    def after(self, error: LockError) -> RequestContext | None:
        """Return the request to try after a failed one, or None."""
        if isinstance(error, TwoBuildsError):
            return retry.with_one_tensorflow(self, error)
        if isinstance(error, TwoCudasError):
            return retry.with_other_cuda(self)
        if isinstance(error, CompanionError):
            return retry.with_companion(self, error)
        if error.contradiction:
            return retry.for_cpu(self, "the requirements forbid a common CUDA")
        index, context = error.unreachable, self.context
        if index == "pytorch" and context.request.index == "auto" and index not in context.supply.unreachable:
            self.close(index, error)
            return self.context
        if index and index not in ("pypi", "pytorch"):  # the address of a page, an index or a repository
            self._offer_without(error, index)
        return None

    def _offer_without(self, error: LockError, address: str) -> None:
        """Name the line of a closed address, and say in the hint whether there is a solution without it."""
        demands, sources = self.context.demands, self.context.sources
        closed = [n for n in demands.needs if address in n.text or redact(n.index or "") == address]
        extra = tuple(url for url in sources.extra if redact(url) != address)
        if not closed and extra == sources.extra:
            return
        where = ", ".join(n.origin for n in closed) or _line_with(address, demands.files)
        if where not in error.message:
            error.message = f"{error.message} ({where})"
        left = tuple(n for n in demands.needs if n not in closed)
        context = dataclasses.replace(
            self.context, demands=dataclasses.replace(demands, needs=left), sources=dataclasses.replace(sources, extra=extra)
        )  # fmt: skip
        quiet = source_rules(context.sources, drop_event, reading=context.reading)
        one = _Search(context, drop_event, quiet, self.cache)
        outcome = one._compared(one.first_try())
        if isinstance(outcome, Solution):
            builds = " and ".join(f"{b.framework} {b.version}" for b in outcome.builds)
            lines = ", ".join(n.origin for n in closed)
            lacks = f"the other requirements have a solution with {builds}, which lacks what it brings"
            error.hint = f"{error.hint}. " + (
                f"Without {lines} {lacks}"
                if closed
                else f"Without this index there is a solution with {builds}"
            )

    # --- refusals ------------------------------------------------------------------------------------

    def _explain_refusal(self, refusal: Refusal) -> LockError:
        """Return the error of a refusal: the row that forbids it, the name that was meant, or the smallest change.

        Raises ResolveError if only a measured row forbids the request.
        """
        error, group = refusal.error, self._groups(refusal.asked)[0]
        for named in self.named:
            if named.name in error.named and self._all_left_out(named, group):
                why = self.facts.why_left_out(named.name, refusal.asked.builds, named.specifier)
                raise ResolveError(
                    f"{why} ({named.named_by})", log=error.log,
                    hint=f"allow other releases of {named.name}, or another build of {group[0].framework}",
                )  # fmt: skip
        if error.absent:
            known = {
                normalize_name(row.package) for row in self.context.profiles.imports
            } | self.facts.rows.packages.keys()
            if meant := difflib.get_close_matches(error.absent, known, 1, 0.75):
                error.hint = f"Did you mean {meant[0]}?"
        elif hint := self._smallest_change(refusal):
            error.hint = hint
        return error

    def _smallest_change(self, refusal: Refusal) -> str | None:
        """Return the first bound of the request without which uv finds a solution. Each is tried."""
        quiet = source_rules(self.context.sources, drop_event, reading=True)
        for named in [n for n in self.named if n.name in refusal.error.named and n.specifier][:_MOST_RELAXED]:
            freed = _without_bounds(self.context, named.name)
            one = _Search(freed, drop_event, quiet, self.cache)
            outcome = one._compared(dataclasses.replace(one.first_try(), only_binary=frozenset({":all:"})))
            if isinstance(outcome, Solution):
                locked = outcome.answer.versions.get(named.name)
                bound = f"the bound{'s' * (len(named.bounded_by) > 1)} of {named.name}"
                return f"remove {bound} ({', '.join(named.bounded_by)}): with {named.name} {locked} a solution exists"
        return None

    def _all_left_out(self, named: NamedPackage, group: Sequence[Build]) -> bool:
        """Return whether the rows leave out every measured release within a package's bounds."""
        within = [r for r in self.facts.rows.packages.get(named.name, {}) if meets(r, named.specifier)]
        limits = [
            Requirement(t) for t in self.facts.left_out([(b,) for b in group]) if name_of(t) == named.name
        ]
        return (
            bool(within)
            and bool(limits)
            and all(not SpecifierSet(str(limits[0].specifier)).contains(r, prereleases=True) for r in within)
        )

    def _explain_conflicts(self, best: Solution) -> None:
        """Warn about indirect packages that conflict where no other solution exists. Raises ResolveError for named ones."""
        for conflict in best.conflicts:
            if not conflict.roots and conflict.name in self.facts.named:
                raise ResolveError(
                    f"{conflict.why}, and no other solution exists",
                    hint=f"allow other releases of {conflict.name}, or another build of {best.builds[0].framework}",
                )
            self.note(conflict.sentence, "warning")


def _without_bounds(context: RequestContext, name: str) -> RequestContext:
    """Return a request without the bounds of one package."""

    def free(text: str) -> str:
        need = requirement(text)
        if need is None or need.url or canonicalize_name(need.name) != name:
            return text
        need.specifier = SpecifierSet()
        return str(need)

    request = dataclasses.replace(context.request, packages=tuple(map(free, context.request.packages)))
    needs = tuple(dataclasses.replace(n, text=free(n.text)) for n in context.demands.needs)
    return dataclasses.replace(
        context, request=request, demands=dataclasses.replace(context.demands, needs=needs)
    )


def _line_with(address: str, files: Sequence[str]) -> str:
    """Return the line of a project's file that has an address, or "" if none has it."""
    bare = address.partition("://")[2]
    for path in filter(Path.is_file, map(Path, files)):
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
            if bare in line:
                return f"{path.name} line {number}"
    return ""


def _is_plain(need: RequirementLine) -> bool:
    """Return whether a line is a requirement of a release on the configured indexes."""
    return bool(need.name) and not (
        need.is_direct or need.constraint or need.override or need.index or need.hashes
    )


def _has_pip(context: RequestContext) -> bool:
    return any(w.name == "pip" for w in context.supply.wheels)
