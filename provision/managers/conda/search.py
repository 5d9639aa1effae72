"""The conda solve and the wheels on top together: where one refuses what the other took, both are asked
again with what was learnt, until they agree."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from packaging.markers import UndefinedComparison, UndefinedEnvironmentName, default_environment
from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from ...errors import LockError
from ...model import FRAMEWORKS, Bound, Emit, Event, Lock, Need, Request, Wanted
from ...request import ask
from . import on_top as conda_wheels
from . import question as conda_target
from . import solve as solver

# Each turn is a whole solve. What is learnt of one refusal mostly settles it.
_TURNS = 8


@dataclasses.dataclass(frozen=True)
class Near:
    """A lock that is there, whose packages stay where they can; `moving` are those that may not."""

    lock: Lock | None = None
    moving: frozenset[str] = frozenset()

    @property
    def conda(self) -> tuple[str, ...]:
        """The addresses of conda packages."""
        held = self.lock.packages if self.lock else ()
        return tuple(p.url for p in held if solver.is_conda(p) and p.name not in self.moving)

    @property
    def wheels(self) -> dict[str, str]:
        """The versions of wheels."""
        held = self.lock.packages if self.lock else ()
        mine = [p for p in held if not (solver.is_conda(p) or p.unhashed)]
        return {p.name: p.version for p in mine if p.name not in self.moving}


def settled(asked: ask.Asked, question: solver.Question, emit: Emit, near: Near) -> Lock:
    """The lock on which both agree. Raises LockError, ResolveError."""
    asked, question = _companions(asked, question)
    question = dataclasses.replace(question, prefer=near.conda)
    first: LockError | None = None
    for _ in range(_TURNS):
        solution = solver.solve(question, emit, conda_target.alternatives(question, asked.profiles))
        made = solver.lock(question, solution)
        limits = _exceeded(asked.demands.needs, made, asked.target.platform)
        if set(limits) - set(question.limits):
            question = dataclasses.replace(question, limits=(*question.limits, *limits))
            continue
        if not (solution.lacking or solution.wheels or asked.demands.needs):
            return made
        plan = conda_wheels.plan_for(asked, solution, made)
        if plan.python != made.plan.python:  # the wheels want another Python than the solver would take
            question = _with(question, dataclasses.replace(question.request, python=plan.python))
            continue
        try:
            return conda_wheels.on_top(asked, plan, made, emit, near.wheels)
        except LockError as error:
            first = first or error
            request = _learnt(question.request, plan.python or "", error, emit)
            if request is None:
                raise (first if error.contradiction else error) from None
            asked, question = dataclasses.replace(asked, request=request), _with(question, request)
    raise first or LockError("the conda packages and the wheels on top agree on nothing",
                             hint="name --python, or loosen what the project's files ask for")  # fmt: skip


def _with(question: solver.Question, request: Request) -> solver.Question:
    return dataclasses.replace(question, request=request)


def _companions(asked: ask.Asked, question: solver.Question) -> tuple[ask.Asked, solver.Question]:
    """What is compiled against a framework (torchvision) is asked of the channels, as the framework is: a
    wheel of it is built for the wheel of the framework."""
    names = {canonicalize_name(Requirement(x).name) for b in asked.profiles.builds for x in b.companions}
    mine = [
        n for n in asked.demands.needs if n.name and canonicalize_name(n.name) in names and not _placed(n)
    ]
    applied = [n for n in mine if not n.constraint]
    if not applied:
        return asked, question
    texts = tuple(f"{r.name}{r.specifier}" for r in (Requirement(n.text) for n in applied))
    packages = tuple(dict.fromkeys([*asked.request.packages, *texts]))
    request = dataclasses.replace(asked.request, packages=packages)
    needs = tuple(n for n in asked.demands.needs if n not in applied)
    demands = dataclasses.replace(asked.demands, needs=needs)
    return dataclasses.replace(asked, request=request, demands=demands), _with(question, request)


def _placed(need: Need) -> bool:
    return bool(need.local or need.vcs or "@" in need.text.partition(";")[0])


def _exceeded(needs: Sequence[Need], made: Lock, platform: str) -> list[Bound]:
    """The bounds of the project's files that the solver's packages do not keep."""
    versions = {canonicalize_name(p.name): p.version for p in made.packages}
    known = {
        **_markers(platform),
        "python_version": made.plan.python or "",
        "python_full_version": f"{made.plan.python}.99",
    }
    found = []
    for need in needs:
        name = canonicalize_name(need.name) if need.name and not _placed(need) else None
        if name in versions and (specifier := _specifier(need, known)):
            try:
                kept = SpecifierSet(specifier).contains(Version(versions[name]), prereleases=True)
            except InvalidVersion:
                continue  # conda has versions that PEP 440 does not know
            if not kept:
                found.append(Bound(name=name, specifier=specifier, origin=need.origin))
    return found


def _specifier(need: Need, known: Mapping[str, str]) -> str:
    """The bound of a need, where its marker holds."""
    try:
        read = Requirement(need.text)
        holds = read.marker is None or read.marker.evaluate(dict(known))
    except (InvalidRequirement, UndefinedComparison, UndefinedEnvironmentName):
        return ""
    return str(read.specifier) if holds else ""


def _markers(platform: str) -> dict[str, str]:
    """The marker variables of CPython on a platform."""
    system, _, machine = platform.partition("-")
    windows = {
        "os_name": "nt",
        "sys_platform": "win32",
        "platform_system": "Windows",
        "platform_machine": "AMD64",
    }
    linux = {
        "os_name": "posix",
        "sys_platform": "linux",
        "platform_system": "Linux",
        "platform_machine": machine,
    }
    here = {k: str(v) for k, v in default_environment().items()}
    cpython = {"implementation_name": "cpython", "platform_python_implementation": "CPython", "extra": ""}
    return {**here, **cpython, **(windows if system == "windows" else linux)}


def _learnt(request: Request, python: str, error: LockError, emit: Emit) -> Request | None:
    """The request with what a refusal of the wheels tells: a framework that comes along is planned as one,
    a Python without a wheel is left out. None where it tells nothing."""
    more = [n for n in error.brought if n not in {w.name for w in request.frameworks}]
    if more:
        emit(
            Event(
                kind="note",
                stage="lock",
                text=f"the packages asked for bring {' and '.join(more)}: solving with it",
            )
        )
        return dataclasses.replace(
            request, frameworks=(*request.frameworks, *(Wanted(name=n) for n in more if n in FRAMEWORKS))
        )
    log = " ".join((error.log or "").split())
    refuses = error.contradiction and (error.no_wheel or "Python>" in log or "Python<" in log)
    if not refuses or request.python:
        return None
    emit(Event(kind="note", stage="lock", text=f"not with Python {python}: {error.message}; trying another"))
    bound = ",".join(filter(None, (request.requires_python, f"!={python}.*")))
    return dataclasses.replace(
        request, requires_python=bound, python_origin=request.python_origin or "the project's packages"
    )
