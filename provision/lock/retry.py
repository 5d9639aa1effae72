"""What follows a request without a solution: another request, or an error with the change that helps.

Packages can also bring further frameworks, which is another request too.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from ..errors import LockError, ResolveError
from ..model import (
    PROJECT_FRAMEWORKS,
    Build,
    FrameworkRequest,
    RequestContext,
    RequirementLine,
    drop_event,
    normalize_name,
    requirement_name,
)
from ..requirements.quote import try_requirement
from ..system.redaction import redact
from ..system.versions import major, meets, version
from .attempt import attempt_or_refuse, first_candidate
from .builds import FittingBuilds
from .named import NamedPackage
from .pinned import CompanionError, TwoBuildsError, TwoCudasError
from .search_state import Refusal, Solution, State
from .source_builds import source_rules

_CPU = "tensorflow-cpu"
_MOST_RELAXED = 3


def next_request(state: State, error: LockError) -> RequestContext | None:
    """Return the request to try after a failed one, or None."""
    if isinstance(error, TwoBuildsError):
        return _require_one_tensorflow(state, error)
    if isinstance(error, TwoCudasError):
        return _change_cuda(state)
    if isinstance(error, CompanionError):
        return _require_companion(state, error)
    if error.contradiction:
        return move_to_cpu(state, "the requirements forbid a common CUDA")
    index, context = error.unreachable, state.context
    if index == "pytorch" and context.request.index == "auto" and index not in context.available.unreachable:
        state.close_pytorch(error)
        return state.context
    if index and index not in ("pypi", "pytorch"):  # the address of a page, an index or a repository
        _name_line(state, error, index)
    return None


def move_to_cpu(state: State, why: str) -> RequestContext | None:
    """Return the request with its first framework for the GPU and the others for the CPU, or None if impossible.

    torch has no CPU build on the default index, and needs a place of its own.
    """
    request = state.context.request
    others = request.frameworks[1:]
    if request.device != "cuda" or not others or any(w.name == "torch" for w in others):
        return None
    texts = [text for w in others for text in _cpu_lines(state, w)]
    names = " and ".join(w.name for w in others)
    first = request.frameworks[0].name
    alone = state.context.with_request(
        frameworks=request.frameworks[:1], packages=(*request.packages, *texts)
    )
    if not FittingBuilds(alone).newest.builds:
        return None
    text = f"{names} is locked for the CPU beside {first} for the GPU: {why}. For both GPU builds create two environments"
    state.note(text, "warning")
    return alone


def _cpu_lines(state: State, wanted: FrameworkRequest) -> list[str]:
    """Return the requirements of a framework for the CPU, one for each bound that holds for some Pythons only."""
    theirs = [b for b in state.context.request.bounds if b.name == wanted.name and b.pythons]
    lines = [f"{wanted.name}{state.fitting.bounds(wanted, '')}"]
    for bound in theirs:
        pythons = " or ".join(f"python_version == '{p}'" for p in bound.pythons)
        lines.append(f"{wanted.name}{bound.specifier} ; {pythons}")
    return lines


def _require_one_tensorflow(state: State, error: LockError) -> RequestContext | None:
    """Return the request with one of tensorflow and tensorflow-cpu, which install the same files.

    Where tensorflow is planned, and other packages require the CPU build, that one stays. Otherwise packages require
    both: tensorflow stays, which runs on the CPU as well.
    """
    request, requirements = state.context.request, state.context.requirements
    frameworks = tuple(w for w in request.frameworks if w.name != "tensorflow")
    if frameworks and frameworks != request.frameworks:
        text = "the packages require the CPU build of tensorflow: it is not planned for the GPU"
        state.note(f"{text} ({error.message})", "warning")
        return state.context.with_request(frameworks=frameworks)
    if frameworks != request.frameworks or any(n.name == _CPU and n.override for n in requirements.lines):
        return None
    text = f"{_CPU} is left out: {error.message}, and tensorflow runs on the CPU as well"
    state.note(text, "warning")
    needs = (
        n
        if n.name != _CPU
        else dataclasses.replace(n, name="tensorflow", text=n.text.replace(_CPU, "tensorflow", 1))
        for n in requirements.lines
    )
    never = RequirementLine(text=f"{_CPU} ; python_version < '0'", name=_CPU, origin="gpuenv", override=True)
    context = state.context.with_request(
        packages=tuple(p.replace(_CPU, "tensorflow", 1) for p in request.packages)
    )
    left_out = (*(note for note in requirements.left_out if not note.startswith(_CPU)), text)
    return dataclasses.replace(
        context, requirements=dataclasses.replace(requirements, lines=(*needs, never), left_out=left_out)
    )


def _require_companion(state: State, error: CompanionError) -> RequestContext | None:
    """Return the request with a companion that its packages bring, so that builds without it are passed over."""
    request = state.context.request
    if error.package in request.along:
        return None
    state.note(f"{error.message}; solving again")
    return state.context.with_request(along=(*request.along, error.package))


def _change_cuda(state: State) -> RequestContext | None:
    """Return the request for another CUDA major, where a package requires another one than the newest build's."""
    request, first = state.context.request, state.fitting.newest.builds[0]
    if request.cuda or request.device != "cuda" or not first.cuda:
        return None
    majors = [major(b.cuda) for b in state.fitting.chains[0] if b.cuda]
    other = next((m for m in majors if m != major(first.cuda or "")), None)
    if other is None:
        return None
    state.note(f"the packages require another CUDA: solving with CUDA {other}")
    return state.context.with_request(cuda=other)


def add_frameworks(state: State, solution: Solution) -> RequestContext | None:
    """Return the request with the frameworks that its packages bring, or None if there are none or none can share.

    They are for the GPU where builds serve all frameworks without lowering the first one.
    """
    request = state.context.request
    planned = {w.name for w in request.frameworks}
    lines = (n for n in state.context.requirements.lines if n.name and not n.constraint)
    named = {n.package for n in lines} | {requirement_name(p) for p in solution.plan.packages}
    locked = solution.answer.versions
    brought = [f for f in PROJECT_FRAMEWORKS if f in locked and f not in planned and f not in named]
    if not brought or request.device != "cuda":
        return None
    frameworks = (*request.frameworks, *(FrameworkRequest(name=n) for n in brought))
    more = state.context.with_request(frameworks=frameworks)
    plan, ours, names = FittingBuilds(more).newest, state.fitting.newest.builds[0], " and ".join(brought)
    if plan.builds and version(plan.builds[0].version) >= version(ours.version):
        state.note(f"the packages require {names}: planning them too")
        return more
    state.note(
        f"{names} {'share' if len(brought) > 1 else 'shares'} no CUDA with {ours.framework} {ours.version}, "
        f"and {'are' if len(brought) > 1 else 'is'} locked for the CPU",
        "warning",
    )
    return None


# --- errors ----------------------------------------------------------------------------------------


def _make_silent(state: State, context: RequestContext) -> State:
    """Return the state of another request, which is tried in silence for a hint, without source code."""
    context = dataclasses.replace(context, sources=dataclasses.replace(context.sources, no_code=True))
    rules = source_rules(context.sources, drop_event)
    return dataclasses.replace(state, fitting=FittingBuilds(context), rules=rules)


def _name_line(state: State, error: LockError, address: str) -> None:
    """Name the line of the project that has a closed address."""
    requirements = state.context.requirements
    closed = [
        n.origin for n in requirements.lines if address in redact(n.text) or redact(n.index or "") == address
    ]
    where = ", ".join(closed) or _find_line(address, requirements.files)
    if not any(origin in error.message for origin in closed or [where]):
        error.message = f"{error.message} ({where})"


def _find_line(address: str, files: Sequence[str]) -> str:
    """Return the line of a project's file that has an address, or "" if none has it."""
    bare = address.partition("://")[2]
    for path in filter(Path.is_file, map(Path, files)):
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
            if bare in line:
                return f"{path.name} line {number}"
    return ""


def explain_refusal(state: State, refusal: Refusal) -> LockError:
    """Return the error of a refusal: with the name that was meant, or the smallest change that helps.

    Raises ResolveError if only a measured row forbids the request.
    """
    error, builds = refusal.error, state.groups(refusal.asked)[0]
    for named in state.named:
        if named.name in error.named and _is_excluded(state, named, builds):
            why = state.compatibility.explain_exclusion(named.name, refusal.builds, named.specifier)
            raise ResolveError(
                f"{why} ({named.named_by})", log=error.log,
                hint=f"allow other releases of {named.name}, or another build of {builds[0].framework}",
            )  # fmt: skip
    if error.absent:
        known = {normalize_name(row.package) for row in state.context.profiles.imports}
        known |= state.compatibility.rows.packages.keys()
        known.discard(error.absent)
        import difflib

        module = next((r for r in state.context.profiles.imports if r.module.lower() == error.absent), None)
        if module and module.package != error.absent:
            error.hint = f"the module {module.module} is in the package {module.package}: name that"
        elif meant := difflib.get_close_matches(error.absent, known, 1, 0.75):
            error.hint = f"Did you mean {meant[0]}?"
    elif hint := _smallest_change(state, refusal):
        error.hint = hint
    return error


def _smallest_change(state: State, refusal: Refusal) -> str | None:
    """Return the first bound of the request without which uv finds a solution. Each is tried."""
    for named in [n for n in state.named if n.name in refusal.error.named and n.specifier][:_MOST_RELAXED]:
        freed = _make_silent(state, _drop_bounds(state.context, named.name))
        outcome = attempt_or_refuse(
            freed, dataclasses.replace(first_candidate(freed), only_binary=frozenset({":all:"}))
        )
        if isinstance(outcome, Solution):
            locked = outcome.answer.versions.get(named.name)
            bound = f"the bound{'s' * (len(named.bounded_by) > 1)} of {named.name}"
            return f"remove {bound} ({', '.join(named.bounded_by)}): with {named.name} {locked} a solution exists"
    return None


def _drop_bounds(context: RequestContext, name: str) -> RequestContext:
    """Return a request without the bounds of one package."""

    def free(text: str) -> str:
        need = try_requirement(text)
        if need is None or need.url or canonicalize_name(need.name) != name:
            return text
        need.specifier = SpecifierSet()
        return str(need)

    context = context.with_request(packages=tuple(map(free, context.request.packages)))
    needs = tuple(dataclasses.replace(n, text=free(n.text)) for n in context.requirements.lines)
    return dataclasses.replace(context, requirements=dataclasses.replace(context.requirements, lines=needs))


def _is_excluded(state: State, named: NamedPackage, builds: Sequence[Build]) -> bool:
    """Return whether the rows leave out every measured release within a package's bounds."""
    within = [r for r in state.compatibility.rows.packages.get(named.name, {}) if meets(r, named.specifier)]
    left_out = state.compatibility.exclude_releases([(b,) for b in builds])
    limits = SpecifierSet(
        next((t.removeprefix(named.name) for t in left_out if requirement_name(t) == named.name), "")
    )
    return bool(within and limits) and not any(limits.contains(r, prereleases=True) for r in within)
