"""Search for a lock: plan, solve, and change the request after a refusal."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

from packaging.requirements import Requirement

from ..errors import LockError, ResolveError
from ..index.build_addresses import name_locked
from ..managers.protocol import Near, Task, locking
from ..model import (
    FRAMEWORKS,
    Emit,
    Event,
    FrameworkRequest,
    Lock,
    Plan,
    Request,
    RequestContext,
    VersionBound,
    as_plain,
)
from ..request import paths_of_environment_and_cache as where
from ..request.shared_options import Choices
from ..resolve.locked_cuda_conflicts import sentence_of
from ..wheels import pythons_with_wheels, solve_wheels
from ..wheels.allowed_source_builds import SourceBuilds, source_builds
from ..wheels.early_solve import repeated
from ..wheels.package_named_in_refusal import OTHER_PYTHONS
from .facts_from_refused_solves import find_bounds, find_bounds_without_wheel
from .functions_for_managers import get_stages
from .verdict_inputs import get_planned_device

if TYPE_CHECKING:
    from .joint_choice import JointChoice

# Each try is a whole solve. Most requests are solved after one refusal. A project with this many refusals
# has contradictory requirements.
_TRIES = 20
_FROM_SCRATCH = Near()


def solve_packages(
    context: RequestContext,
    choices: Choices,
    emit: Emit,
    near: Near = _FROM_SCRATCH,
    from_source: Sequence[str] = (),
) -> tuple[Plan, Lock | None]:
    """Return the plan and its lock, or no lock if no build fits.

    The versions of `near` are kept where possible. `from_source` are packages that have no wheel. Raises
    LockError, ResolveError.
    """
    builds = source_builds(context.sources, emit, reading=context.reading, before=context.brought)
    for name in from_source if builds.forbidden_by is None else ():
        if name not in builds.only_binary:
            builds.allow_wheelless(name, context.target.platform)
    task = Task(
        emit=emit, first=context, stages=get_stages(where.get_cache_dir(choices)), builds=builds, near=near
    )
    from .joint_choice import JointChoice
    from .remembered_conflicts import ConflictMemory

    fixed = frozenset(p.name for p in near.lock.packages) - near.moving if near.lock else frozenset()
    wheels = locking(context.request.manager).PLANS_FIRST  # conda's solver chooses the releases
    memory = ConflictMemory(off=near.lock is not None)  # the versions of a lock change the answer
    joint = JointChoice(emit, allow_old=choices.allow_old, fixed=fixed, off=not wheels, memory=memory)
    search = LockSearch(context, builds, emit, joint, python_is_given=bool(choices.python))
    key = (context.request, context.target, list(context.demands.needs))
    early = contextlib.nullcontext() if context.reading else repeated(as_plain(key), context.sources)
    with get_planned_device(context.request.device), early:
        return search.done(task)


def _with_answer(plan: Plan, lock: Lock) -> tuple[Plan, Lock]:
    """Return the plan with the indexes of its builds, and the lock with this plan."""
    plan = name_locked(plan, lock.packages)
    return plan, dataclasses.replace(lock, plan=plan, held_back=plan.held_back)


@dataclasses.dataclass
class LockSearch:
    """The current request of a search, and what refusals have shown."""

    context: RequestContext
    builds: SourceBuilds
    emit: Emit
    joint: JointChoice
    python_is_given: bool
    refused: LockError | None = None
    lacking: list[str] = dataclasses.field(default_factory=list)  # packages without a wheel for some Python
    before_pythons: Request | None = None

    def done(self, task: Task) -> tuple[Plan, Lock | None]:
        """Return the plan and the lock.

        If indirect packages conflict with the builds and no other set is found, warn about them. Raises
        LockError, ResolveError.
        """
        try:
            return self._found(task)
        except (LockError, ResolveError):
            if self.joint.memory.used:
                return self._done_without_memory(task)
            if (kept := self.joint.kept) is None:
                raise
        for one in kept.conflicts:
            self._note(sentence_of(one), "warning")
        return _with_answer(kept.plan, kept.lock)

    def _done_without_memory(self, task: Task) -> tuple[Plan, Lock | None]:
        """Search again without the conflicts of earlier runs, because the sets that they left found no lock."""
        joint = type(self.joint)(self.emit, allow_old=self.joint.allow_old, fixed=self.joint.fixed)
        again = LockSearch(task.first, self.builds, self.emit, joint, python_is_given=self.python_is_given)
        return again.done(task)

    def _found(self, task: Task) -> tuple[Plan, Lock | None]:
        """Try until a lock is found or a refusal shows nothing new. Raises LockError, ResolveError."""
        search = locking(self.context.request.manager).search(task)
        for attempt in range(1, _TRIES + 1):
            try:
                context = self.joint.applied(self.context)
                self.builds.allow_chosen(self.joint.wheelless)
                plan, lock = search.solve(context)
                if lock is None and self.refused is None:
                    return plan, None
                if lock:
                    self._note(f"solver run {attempt} of at most {_TRIES}", "done")
                    plan = self.joint.settled(self.context, plan, lock)
                    return _with_answer(plan, lock)
            except LockError as error:
                if not self.joint.learn(error):
                    self.learn(error)
                continue
            except ResolveError:
                if self.refused is None:
                    raise
            if self.refused and not self.with_sources():
                raise self.refused
        assert self.refused is not None  # each attempt returned, raised, or recorded a refusal
        raise self.refused

    def learn(self, error: LockError) -> None:
        """Change the request by what a refusal shows. Raise the refusal if it shows nothing."""
        steps = (
            self._other_index, self._other_companion, self._more_frameworks, self._other_python, self._other_build
        )  # fmt: skip
        for step in steps if error.plan else ():
            if error.plan and step(error.plan, error):
                return
        raise self.refused if self.refused and error.contradiction else error

    def with_sources(self) -> bool:
        """Return to the first Python and allow source builds, if no Python has wheels of everything.

        Raises LockError if source builds are forbidden.
        """
        if self.before_pythons is None or set(self.lacking) <= set(self.builds.allowed):
            return False
        for name in self.lacking:
            self.builds.allow_wheelless(name, f"any Python on {self.context.target.platform}")
        self._ask(self.before_pythons)
        return True

    def _ask(self, request: Request) -> None:
        self.context = dataclasses.replace(self.context, request=request)

    def _note(self, text: str, kind: str = "note") -> None:
        self.emit(Event(kind=kind, stage="lock", text=text))

    def _other_index(self, _plan: Plan, error: LockError) -> bool:
        """Leave out an index that does not answer (`--index auto`).

        The default index is always needed, because everything except torch comes from it.
        """
        silent, supply = error.unreachable, self.context.supply
        if silent is None or silent == "pypi":
            return False
        if self.context.request.index != "auto" or silent in supply.unreachable:
            return False
        self._note(f"{error.message}; resolving again without it", "warning")
        supply = dataclasses.replace(supply, unreachable=(*supply.unreachable, silent))
        self.context = dataclasses.replace(self.context, supply=supply)
        return True

    def _other_companion(self, _plan: Plan, error: LockError) -> bool:
        """Plan another build if a companion package is available only for that.

        The next plan treats the package as requested, so that builds without it are passed over.
        """
        request = self.context.request
        if error.companion is None or error.companion in request.along:
            return False
        self._note(f"{error.message}; resolving again")
        self._ask(dataclasses.replace(request, along=(*request.along, error.companion)))
        return True

    def _more_frameworks(self, _plan: Plan, error: LockError) -> bool:
        """Plan an indirectly required framework too, so that its build is chosen for the GPU."""
        request = self.context.request
        more = [name for name in error.brought if name not in {w.name for w in request.frameworks}]
        if not more:
            return False
        self._note(f"the packages require {' and '.join(more)}: planning them too")
        frameworks = (*request.frameworks, *(FrameworkRequest(name=name) for name in more))
        self._ask(dataclasses.replace(request, frameworks=frameworks))
        return True

    def _other_python(self, plan: Plan, error: LockError) -> bool:
        """Try another Python if a package has no wheel for the planned one or rejects it.

        A package without a wheel for any Python may be built from source.
        """
        refuses = "Python>" in (error.log or "") or "Python<" in (error.log or "")
        if not error.contradiction or not (error.no_wheel or refuses):
            return False
        others, why = self._minors(plan), "the requirements do not support it"
        if name := error.no_wheel:
            if name in FRAMEWORKS or name in self.builds.allowed:
                return False
            bounds = find_bounds_without_wheel(name, error.log or "") or find_bounds(
                name, self._list_requirements()
            )
            minors = (plan.python or "", *others)
            index = next((n.index for n in self.context.demands.needs if n.name == name and n.index), None)
            others = pythons_with_wheels.find_pythons_with_wheel(
                Requirement(name + bounds), plan, self.context.sources, minors, index=index
            )
            why = f"{name} has no wheel for it"
            if not others or plan.python in others or self.python_is_given:
                if OTHER_PYTHONS.search(" ".join((error.log or "").split())):
                    return False  # it has no source archive
                # Another Python does not help: the requested versions have no wheel.
                self.builds.allow_wheelless(name, f"Python {plan.python} on {plan.platform}")
                return True
            self.lacking.append(name)
        if self.python_is_given:
            return False
        self.refused = self.refused or error
        self.before_pythons = self.before_pythons or self.context.request
        self._note(f"Python {plan.python} is not possible: {why}. Trying another Python")
        self._bar([plan.python or "", *(m for m in self._minors(plan) if m not in others)])
        return True

    def _bar(self, minors: list[str]) -> None:
        """Exclude Python versions from now on."""
        request = self.context.request
        bound = ",".join(filter(None, (request.requires_python, *(f"!={m}.*" for m in sorted(minors)))))
        origin = request.python_origin or "the project's packages"
        self._ask(dataclasses.replace(request, requires_python=bound, python_origin=origin))

    def _list_requirements(self) -> list[str]:
        return [*(n.text for n in self.context.demands.needs), *self.context.request.packages]

    def _minors(self, plan: Plan) -> tuple[str, ...]:
        """Return the Pythons of all known builds, except the planned one, newest first."""
        known = {p for b in self.context.profiles.builds for p in b.python} - {plan.python or ""}
        return tuple(sorted(known, key=lambda m: -int(m.split(".")[1])))

    def _other_build(self, plan: Plan, error: LockError) -> bool:
        """Limit the framework to an older version if the project's packages conflict with the planned one."""
        limited = self.context.sources.exclude_newer
        requires_packages = self.context.demands.needs or self.context.request.packages
        if not plan.builds or not error.contradiction or not (requires_packages or limited):
            return False
        try:
            fitting = solve_wheels.allowed(
                plan, self.context.sources, self.context.demands.needs, self.builds
            )
        except LockError as without:
            # The packages conflict without the plan too; only another Python may help.
            return self._other_python(plan, without)
        self.refused = self.refused or error
        origin = self._origin(error)
        bounds = []
        for build in plan.builds:
            newest = fitting.get(build.framework, build.version)
            operator = "<=" if newest != build.version else "!="
            bounds.append(VersionBound(name=build.framework, specifier=f"{operator}{newest}", origin=origin))
        moved = [b for b in bounds if b.specifier.startswith("<=")] or bounds[:1]
        for bound in moved:
            self._note(f"{origin} supports only {bound.name}{bound.specifier}. Resolving again")
        request = self.context.request
        self._ask(dataclasses.replace(request, bounds=(*request.bounds, *moved)))
        return True

    def _origin(self, error: LockError) -> str:
        """Return who requires it: the project's lines in the refusal, otherwise all other requested packages."""
        _, named, lines = error.message.partition(": see ")
        if named:
            return lines
        if self.context.sources.exclude_newer and "exclude-newer" in (error.log or ""):
            return f"--exclude-newer {self.context.sources.exclude_newer}"
        return (
            ", ".join(f"--with {p}" for p in self.context.request.packages) or "the other requested packages"
        )
