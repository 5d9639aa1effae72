"""The search for a lock: plan and solve, and where that is refused, change the question by what the refusal says."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name

from ..errors import LockError, ResolveError
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
)
from ..request import environment_paths as where
from ..request.options import Choices
from ..resolve.cuda_conflicts import sentence_of
from ..wheels import several_pythons, solve_wheels
from ..wheels.allowed_source_builds import SourceBuilds, source_builds
from ..wheels.solve_failure import OTHER_PYTHONS
from .stages_for_managers import get_stages
from .verdict_inputs import get_planned_device

if TYPE_CHECKING:
    from .joint_choice import JointChoice

# Each try is a whole solve. What is learnt of one refusal mostly settles it; a project that is refused
# this often contradicts itself.
_TRIES = 20
_FROM_SCRATCH = Near()


def solve_packages(
    context: RequestContext,
    choices: Choices,
    emit: Emit,
    near: Near = _FROM_SCRATCH,
    from_source: Sequence[str] = (),
) -> tuple[Plan, Lock | None]:
    """Return the plan and its lock, no lock where no build fits. `near` is a lock whose versions stay where they
    can, `from_source` are packages that are known to have no wheel. Raises LockError, ResolveError."""
    builds = source_builds(context.sources, emit, reading=context.reading, before=context.brought)
    for name in from_source if builds.forbidden_by is None else ():
        if name not in builds.only_binary:
            builds.allow_wheelless(name, context.target.platform)
    task = Task(
        emit=emit, first=context, stages=get_stages(where.get_cache_dir(choices)), builds=builds, near=near
    )
    from .joint_choice import JointChoice

    held = frozenset(p.name for p in near.lock.packages) - near.moving if near.lock else frozenset()
    wheels = locking(
        context.request.manager
    ).PLANS_FIRST  # conda's solver chooses among the channels' packages
    joint = JointChoice(emit, allow_old=choices.allow_old, held=held, off=not wheels)
    with get_planned_device(context.request.device):
        return _Search(context, builds, emit, joint, python_is_given=bool(choices.python)).done(task)


def _with_held_back(plan: Plan, lock: Lock) -> Lock:
    return dataclasses.replace(lock, plan=plan, held_back=plan.held_back)


def _lacking_bounds(name: str, log: str) -> str:
    """The versions that the solver found without a wheel ("fire>=4.9,<=4.9.3 has no usable wheels")."""
    found = re.search(rf"{re.escape(name)}([<>=!~]\S*) has no usable wheels", " ".join(log.split()))
    try:
        return str(SpecifierSet(found[1])) if found else ""
    except InvalidSpecifier:
        return ""


@dataclasses.dataclass
class _Search:
    """The question as it is now, and what refusals said."""

    asked: RequestContext
    builds: SourceBuilds
    emit: Emit
    joint: JointChoice
    python_is_given: bool
    refused: LockError | None = None
    lacking: list[str] = dataclasses.field(default_factory=list)  # packages that some Python has no wheel of
    before_pythons: Request | None = None

    def done(self, task: Task) -> tuple[Plan, Lock | None]:
        """The lock; with warnings where packages that came along do not go with it and no other set is found. Raises
        LockError, ResolveError."""
        try:
            return self._found(task)
        except (LockError, ResolveError):
            if (kept := self.joint.kept) is None:
                raise
        for one in kept.found:
            self._note(sentence_of(one), "warning")
        return kept.plan, _with_held_back(kept.plan, kept.lock)

    def _found(self, task: Task) -> tuple[Plan, Lock | None]:
        """Try until a lock is found or a refusal says nothing new. Raises LockError, ResolveError."""
        search = locking(self.asked.request.manager).search(task)
        for attempt in range(1, _TRIES + 1):
            try:
                asked = self.joint.applied(self.asked)
                self.builds.allow_chosen(self.joint.wheelless)
                plan, lock = search.solve(asked)
                if lock is None and self.refused is None:
                    return plan, None
                if lock:
                    self._note(f"solves: {attempt} of at most {_TRIES}", "done")
                    plan = self.joint.settled(self.asked, plan, lock)
                    return plan, _with_held_back(plan, lock)
            except LockError as error:
                if not self.joint.learn(error):
                    self.learn(error)
                continue
            except ResolveError:
                if self.refused is None:
                    raise
            if self.refused and not self.with_sources():
                raise self.refused
        assert self.refused is not None  # every turn of the loop returned, raised, or noted a refusal
        raise self.refused

    def learn(self, error: LockError) -> None:
        """Change the question by what a refusal tells. Raises the refusal where it tells nothing."""
        steps = (
            self._other_index, self._other_companion, self._more_frameworks, self._other_python, self._other_build
        )  # fmt: skip
        for step in steps if error.plan else ():
            if error.plan and step(error.plan, error):
                return
        raise self.refused if self.refused and error.contradiction else error

    def with_sources(self) -> bool:
        """Where no Python is left that has wheels of everything: the Python as it was, and sources. Raises
        LockError where that is forbidden."""
        if self.before_pythons is None or set(self.lacking) <= set(self.builds.allowed):
            return False
        for name in self.lacking:
            self.builds.allow_wheelless(name, f"any Python on {self.asked.target.platform}")
        self._ask(self.before_pythons)
        return True

    def _ask(self, request: Request) -> None:
        self.asked = dataclasses.replace(self.asked, request=request)

    def _note(self, text: str, kind: str = "note") -> None:
        self.emit(Event(kind=kind, stage="lock", text=text))

    def _other_index(self, _plan: Plan, error: LockError) -> bool:
        """With `--index auto`, an index that does not answer is left out; everything but torch itself
        comes from the default index, so that one is needed."""
        silent, supply = error.unreachable, self.asked.supply
        if silent is None or silent == "pypi":
            return False
        if self.asked.request.index != "auto" or silent in supply.unreachable:
            return False
        self._note(f"{error.message}; resolving again without it", "warning")
        supply = dataclasses.replace(supply, unreachable=(*supply.unreachable, silent))
        self.asked = dataclasses.replace(self.asked, supply=supply)
        return True

    def _other_companion(self, _plan: Plan, error: LockError) -> bool:
        """Another build, where a package that comes along is to be had only for another one. The next plan takes
        the package for one that was asked for, so that builds without it are passed over."""
        request = self.asked.request
        if error.companion is None or error.companion in request.along:
            return False
        self._note(f"{error.message}; resolving again")
        self._ask(dataclasses.replace(request, along=(*request.along, error.companion)))
        return True

    def _more_frameworks(self, _plan: Plan, error: LockError) -> bool:
        """A framework that comes along is planned as one: its build is chosen for the GPU too."""
        request = self.asked.request
        more = [name for name in error.brought if name not in {w.name for w in request.frameworks}]
        if not more:
            return False
        self._note(f"the packages require {' and '.join(more)}: planning them too")
        frameworks = (*request.frameworks, *(FrameworkRequest(name=name) for name in more))
        self._ask(dataclasses.replace(request, frameworks=frameworks))
        return True

    def _other_python(self, plan: Plan, error: LockError) -> bool:
        """Another Python, where the one planned is why: a package has no wheel for it, or refuses it. A
        package that has no wheel for any Python is allowed its source."""
        refuses = "Python>" in (error.log or "") or "Python<" in (error.log or "")
        if not error.contradiction or not (error.no_wheel or refuses):
            return False
        others, why = self._minors(plan), "the requirements do not support it"
        if name := error.no_wheel:
            if name in FRAMEWORKS or name in self.builds.allowed:
                return False
            bounds = _lacking_bounds(name, error.log or "") or self._bounds_of(name)
            minors = (plan.python or "", *others)
            index = next((n.index for n in self.asked.demands.needs if n.name == name and n.index), None)
            others = several_pythons.pythons_with_wheel(
                Requirement(name + bounds), plan, self.asked.sources, minors, index=index
            )
            why = f"{name} has no wheel for it"
            if not others or plan.python in others or self.python_is_given:
                if OTHER_PYTHONS.search(" ".join((error.log or "").split())):
                    return False  # there is no source to allow
                # No Python is the cure: the very versions that are wanted have no wheel.
                self.builds.allow_wheelless(name, f"Python {plan.python} on {plan.platform}")
                return True
            self.lacking.append(name)
        if self.python_is_given:
            return False
        self.refused = self.refused or error
        self.before_pythons = self.before_pythons or self.asked.request
        self._note(f"Python {plan.python} is not possible: {why}. Trying another Python")
        self._bar([plan.python or "", *(m for m in self._minors(plan) if m not in others)])
        return True

    def _bar(self, minors: list[str]) -> None:
        """Leave Pythons out from now on."""
        request = self.asked.request
        bound = ",".join(filter(None, (request.requires_python, *(f"!={m}.*" for m in sorted(minors)))))
        origin = request.python_origin or "the project's packages"
        self._ask(dataclasses.replace(request, requires_python=bound, python_origin=origin))

    def _minors(self, plan: Plan) -> tuple[str, ...]:
        """The Pythons that any build is made for, but the plan's."""
        known = {p for b in self.asked.profiles.builds for p in b.python} - {plan.python or ""}
        return tuple(sorted(known, key=lambda m: -int(m.split(".")[1])))

    def _bounds_of(self, name: str) -> str:
        for text in (*(n.text for n in self.asked.demands.needs), *self.asked.request.packages):
            try:
                need = Requirement(text)
            except InvalidRequirement:
                continue  # a folder or an editable: no bounds of a release
            if canonicalize_name(need.name) == name:
                return str(need.specifier)
        return ""

    def _other_build(self, plan: Plan, error: LockError) -> bool:
        """An older framework, where the project's packages do not go with the planned one."""
        limited = self.asked.sources.exclude_newer
        asked_along = self.asked.demands.needs or self.asked.request.packages
        if not plan.builds or not error.contradiction or not (asked_along or limited):
            return False
        try:
            fitting = solve_wheels.allowed(plan, self.asked.sources, self.asked.demands.needs, self.builds)
        except LockError as without:
            # Without any plan the packages contradict each other just the same, but for the Python.
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
            self._note(f"{origin} is compatible with {bound.name}{bound.specifier}. Resolving again")
        request = self.asked.request
        self._ask(dataclasses.replace(request, bounds=(*request.bounds, *moved)))
        return True

    def _origin(self, error: LockError) -> str:
        """Who asks for it: the project's lines that the refusal names, else all that was asked along."""
        _, named, lines = error.message.partition(": see ")
        if named:
            return lines
        if self.asked.sources.exclude_newer and "exclude-newer" in (error.log or ""):
            return f"--exclude-newer {self.asked.sources.exclude_newer}"
        return ", ".join(f"--with {p}" for p in self.asked.request.packages) or "the other requested packages"
