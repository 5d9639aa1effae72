"""The plan and its lock together: where the solver refuses a plan because of what the project needs
besides, the plan is made again with what was learnt, until both hold."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name

from .. import index
from ..errors import LockError
from ..index import pytorch
from ..model import FRAMEWORKS, Bound, Emit, Event, Lock, Plan, PlannedBuild, Request, Sources, Wanted
from ..request import ask
from ..request import paths as where
from ..request.options import Choices
from ..system.redaction import redact
from ..wheels import pypi, wheel_pythons
from ..wheels.disk_space import is_cached, size
from ..wheels.source_builds import SourceBuilds, source_builds
from .judging import made_for
from .planning import plan_for

# Each try is a whole solve. What is learnt of one refusal mostly settles it; a project that is refused
# this often contradicts itself.
_TRIES = 20


def locked(
    asked: ask.Asked,
    choices: Choices,
    emit: Emit,
    *,
    prefer: Mapping[str, str] | None = None,
    from_source: Sequence[str] = (),
) -> tuple[Plan, Lock | None]:
    """The plan and its lock, no lock where no build fits. `prefer` are versions that stay where they
    can, `from_source` packages that are known to have no wheel. Raises LockError where no plan's
    packages can be solved."""
    builds = asked.builds or source_builds(asked.sources, emit)
    for name in from_source if builds.forbidden_by is None else ():
        if name not in builds.only_binary:
            builds.allow_wheelless(name, asked.target.platform)
    with made_for(asked.request.device):
        return _searched(_Search(asked, choices, emit, dict(prefer or {}), builds), choices)


def _searched(search: _Search, choices: Choices) -> tuple[Plan, Lock | None]:
    for _ in range(_TRIES):
        plan = plan_for(search.asked, choices)
        if plan.builds:
            try:
                lock = search.solve(plan)
            except LockError as error:
                if (kept := search.solve_from_cache(plan, error)) is not None:
                    return plan, kept
                search.learn(plan, error)
            else:
                search.warn_of_cuda_wheels(plan, lock)
                return plan, lock
        elif search.refused is None:
            return plan, None
        elif not search.with_sources():
            raise search.refused
    assert search.refused is not None  # every turn of the loop returned, raised, or noted a refusal
    raise search.refused


def _lacking_bounds(name: str, log: str) -> str:
    """The versions that the solver found without a wheel ("fire>=4.9,<=4.9.3 has no usable wheels")."""
    found = re.search(rf"{re.escape(name)}([<>=!~]\S*) has no usable wheels", " ".join(log.split()))
    try:
        return str(SpecifierSet(found[1])) if found else ""
    except InvalidSpecifier:
        return ""


def _label(build: PlannedBuild) -> str:
    """A build as wheels' local labels name it: "cu128", "cpu"."""
    return f"cu{build.cuda.replace('.', '')}" if build.cuda else "cpu"


def _pinned(build: PlannedBuild) -> str:
    """The version of a build as its wheel has it, label included: "2.13.0+cpu"."""
    pins = (Requirement(text) for text in build.requirements)
    exact = (
        s.version for pin in pins if pin.name == build.framework for s in pin.specifier if s.operator == "==="
    )
    return next(exact, build.version)


@dataclasses.dataclass
class _Search:
    asked: ask.Asked
    choices: Choices
    emit: Emit
    prefer: dict[str, str]
    builds: SourceBuilds
    refused: LockError | None = None
    lacking: list[str] = dataclasses.field(default_factory=list)  # packages that some Python has no wheel of
    before_pythons: Request | None = None
    tried_without: bool = False  # a plan was solved without `prefer`, once

    def solve(self, plan: Plan) -> Lock:
        """Return the plan's lock. The first refusal that `prefer` may have caused is checked by one solve
        without it: another index can have wheels of these versions with other requirements."""
        self._check_index(plan)
        try:
            return self._solved(plan, self.prefer)
        except LockError as error:
            refused = error.contradiction or error.brought or error.companion
            if not refused or not self.prefer or self.tried_without:
                raise
        self.tried_without = True
        self._note("not with the versions of the lock that is there: solving once without them")
        return self._solved(plan, {})

    def _solved(self, plan: Plan, prefer: Mapping[str, str]) -> Lock:
        cache = where.cache_dir(self.choices)
        python = ask.interpreter(plan.python or "", self.asked.machine, None, cache)
        return pypi.lock(
            plan, self._with_pages(plan), self.emit, python=python, needs=self.asked.demands.needs,
            prefer=prefer, builds=self.builds,
        )  # fmt: skip

    def _with_pages(self, plan: Plan) -> Sources:
        """The sources, and the pages of wheels that are compiled against the plan's very builds, where a
        package of theirs is asked for."""
        request, sources = self.asked.request, self.asked.sources
        wanted = {n.name for n in self.asked.demands.needs}
        wanted |= {str(canonicalize_name(Requirement(p).name)) for p in request.packages}
        pages = [
            page.url.format(version=build.version, label=_label(build))
            for build in plan.builds
            for page in self.asked.profiles.pages
            if page.framework == build.framework and wanted & set(page.packages)
        ]
        if not pages or sources.offline or sources.no_index:
            return sources
        self._note(f"wheels that are compiled against the plan's build are looked for at {', '.join(pages)}")
        return dataclasses.replace(sources, find_links=(*sources.find_links, *pages))

    def solve_from_cache(self, plan: Plan, error: LockError) -> Lock | None:
        """The lock of a CPU build whose index does not answer, where the installer's cache has its wheel and all
        that goes with it; None where it has not."""
        sources = self.asked.sources
        if error.unreachable != "pytorch" or self.asked.request.device != "cpu":
            return None
        if not all(is_cached(sources, b.framework, _pinned(b)) for b in plan.builds):
            return None
        python = ask.interpreter(plan.python or "", self.asked.machine, None, where.cache_dir(self.choices))
        cached = dataclasses.replace(sources, offline=True, find_links=())
        try:
            lock = pypi.lock(
                plan, cached, self.emit, python=python, needs=self.asked.demands.needs,
                prefer=self.prefer, builds=self.builds,
            )  # fmt: skip
        except LockError:
            return None
        self._note(f"{error.message}; its wheels are taken from the cache")
        return lock

    def _check_index(self, plan: Plan) -> None:
        """Raise LockError where the plan needs the PyTorch index and no connection to it can be made. The solver
        would try it several times, some seconds each."""
        sources = self.asked.sources
        if sources.offline or sources.no_index or not pytorch.named_for(plan):
            return
        address = pytorch.address(sources.pytorch, plan)
        if why := index.connection_error(address, sources.proxy):
            raise LockError(
                f"the package index {redact(address)} {why}", hint=index.NETWORK_HINT, unreachable="pytorch"
            )

    def learn(self, plan: Plan, error: LockError) -> None:
        """Change the question by what a refusal tells. Raises the refusal where it tells nothing."""
        steps = (
            self._other_index, self._other_companion, self._more_frameworks, self._other_python, self._other_build
        )  # fmt: skip
        for step in steps:
            if step(plan, error):
                return
        raise self.refused if self.refused and error.contradiction else error

    def warn_of_cuda_wheels(self, plan: Plan, lock: Lock) -> None:
        """Say before the download what a CUDA build costs on a CPU, why it is taken, and how to avoid it."""
        builds = [b for b in plan.builds if b.cuda]
        if self.asked.request.device != "cpu" or not builds or not self.asked.supply.unreachable:
            return
        names = {b.framework for b in builds} | {
            canonicalize_name(Requirement(r).name) for b in builds for r in b.requirements
        }
        total = sum(p.size or 0 for p in lock.packages if p.name in names or p.name.startswith("nvidia-"))
        what = " and ".join(f"{b.framework} {b.version}" for b in builds)
        self._note(
            f"{what} is to be had only with CUDA ({size(total)}), since the PyTorch index does not answer; to "
            "avoid it: --find-links FOLDER with a CPU wheel, or GPUENV_INDEX_PYTORCH=ADDRESS of a mirror",
            "warning",
        )

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
        if self.choices.index != "auto" or silent in supply.unreachable:
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
        if not error.brought:
            return False
        request = self.asked.request
        self._note(f"the packages asked for bring {' and '.join(error.brought)}: planned as well")
        more = tuple(Wanted(name=name) for name in error.brought)
        self._ask(dataclasses.replace(request, frameworks=(*request.frameworks, *more)))
        return True

    def _other_python(self, plan: Plan, error: LockError) -> bool:
        """Another Python, where the one planned is why: a package has no wheel for it, or refuses it. A
        package that has no wheel for any Python is allowed its source."""
        refuses = "Python>" in (error.log or "") or "Python<" in (error.log or "")
        if not error.contradiction or not (error.no_wheel or refuses):
            return False
        others, why = self._minors(plan), "what is asked for does not support it"
        if name := error.no_wheel:
            if name in FRAMEWORKS or name in self.builds.allowed:
                return False
            bounds = _lacking_bounds(name, error.log or "") or self._bounds_of(name)
            minors = (plan.python or "", *others)
            others = wheel_pythons.pythons_with_wheel(name, bounds, plan, self.asked.sources, minors)
            why = f"{name} has no wheel for it"
            if not others or plan.python in others or self.choices.python:
                # No Python is the cure: the very versions that are wanted have no wheel.
                self.builds.allow_wheelless(name, f"Python {plan.python} on {plan.platform}")
                return True
            self.lacking.append(name)
        if self.choices.python:
            return False
        self.refused = self.refused or error
        self.before_pythons = self.before_pythons or self.asked.request
        self._note(f"not with Python {plan.python}: {why}; trying another")
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
        if not error.contradiction or not (
            self.asked.demands.needs or self.asked.request.packages or limited
        ):
            return False
        try:
            fitting = pypi.allowed(plan, self.asked.sources, self.asked.demands.needs, self.builds)
        except LockError as without:
            # Without any plan the packages contradict each other just the same, but for the Python.
            return self._other_python(plan, without)
        self.refused = self.refused or error
        origin = self._origin(error)
        bounds = []
        for build in plan.builds:
            newest = fitting.get(build.framework, build.version)
            operator = "<=" if newest != build.version else "!="
            bounds.append(Bound(name=build.framework, specifier=f"{operator}{newest}", origin=origin))
        moved = [b for b in bounds if b.specifier.startswith("<=")] or bounds[:1]
        for bound in moved:
            self._note(f"{origin} goes with {bound.name}{bound.specifier}: resolving again")
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
        return ", ".join(f"--with {p}" for p in self.asked.request.packages) or "what is asked for along"
