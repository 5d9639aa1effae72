"""The request to try in place of one that has no solution, or whose packages bring further frameworks."""

from __future__ import annotations

import dataclasses

from packaging.utils import canonicalize_name

from ..errors import LockError
from ..model import PROJECT_FRAMEWORKS, FrameworkRequest, RequestContext, RequirementLine
from ..resolve.question import major, version
from .builds import Fitting
from .known import Known, Solution
from .named import name_of
from .pinned import CompanionError

_CPU = "tensorflow-cpu"


def for_cpu(one: Known, why: str) -> RequestContext | None:
    """Return the request with its first framework for the GPU and the others for the CPU, or None if impossible.

    torch has no CPU build on the default index, and needs a place of its own.
    """
    request = one.context.request
    others = request.frameworks[1:]
    if request.device != "cuda" or not others or any(w.name == "torch" for w in others):
        return None
    texts = [text for w in others for text in _cpu_lines(one, w)]
    names = " and ".join(w.name for w in others)
    first = request.frameworks[0].name
    alone = one.asking(frameworks=request.frameworks[:1], packages=(*request.packages, *texts))
    if not Fitting(alone).newest.builds:
        return None
    text = f"{names} is locked for the CPU beside {first} for the GPU: {why}. For both GPU builds create two environments"
    one.note(text, "warning")
    return alone


def _cpu_lines(one: Known, wanted: FrameworkRequest) -> list[str]:
    """Return the requirements of a framework for the CPU, one for each bound that holds for some Pythons only."""
    theirs = [b for b in one.context.request.bounds if b.name == wanted.name and b.pythons]
    lines = [f"{wanted.name}{one.fitting.bounds(wanted, '')}"]
    for bound in theirs:
        pythons = " or ".join(f"python_version == '{p}'" for p in bound.pythons)
        lines.append(f"{wanted.name}{bound.specifier} ; {pythons}")
    return lines


def with_one_tensorflow(one: Known, error: LockError) -> RequestContext | None:
    """Return the request with one of tensorflow and tensorflow-cpu, which install the same files.

    Where tensorflow is planned, and other packages require the CPU build, that one stays. Otherwise packages require
    both: tensorflow stays, which runs on the CPU as well.
    """
    request, demands = one.context.request, one.context.demands
    frameworks = tuple(w for w in request.frameworks if w.name != "tensorflow")
    if frameworks and frameworks != request.frameworks:
        text = "the packages require the CPU build of tensorflow: it is not planned for the GPU"
        one.note(f"{text} ({error.message})", "warning")
        return one.asking(frameworks=frameworks)
    if frameworks != request.frameworks or any(n.name == _CPU and n.override for n in demands.needs):
        return None
    text = f"{_CPU} is left out: {error.message}, and tensorflow runs on the CPU as well"
    one.note(text, "warning")
    needs = (
        n
        if n.name != _CPU
        else dataclasses.replace(n, name="tensorflow", text=n.text.replace(_CPU, "tensorflow", 1))
        for n in demands.needs
    )
    never = RequirementLine(text=f"{_CPU} ; python_version < '0'", name=_CPU, origin="gpuenv", override=True)
    context = one.asking(packages=tuple(p.replace(_CPU, "tensorflow", 1) for p in request.packages))
    said = (*(note for note in demands.left_out if not note.startswith(_CPU)), text)
    return dataclasses.replace(
        context, demands=dataclasses.replace(demands, needs=(*needs, never), left_out=said)
    )


def with_companion(one: Known, error: CompanionError) -> RequestContext | None:
    """Return the request with a companion that its packages bring, so that builds without it are passed over."""
    request = one.context.request
    if error.package in request.along:
        return None
    one.note(f"{error.message}; solving again")
    return one.asking(along=(*request.along, error.package))


def with_other_cuda(one: Known) -> RequestContext | None:
    """Return the request for another CUDA major, where a package requires another one than the newest build's."""
    request, first = one.context.request, one.fitting.newest.builds[0]
    if request.cuda or request.device != "cuda" or not first.cuda:
        return None
    majors = [major(b.cuda) for b in one.fitting.chains[0] if b.cuda]
    other = next((m for m in majors if m != major(first.cuda or "")), None)
    if other is None:
        return None
    one.note(f"the packages require another CUDA: solving with CUDA {other}")
    return one.asking(cuda=other)


def with_brought(one: Known, solution: Solution) -> RequestContext | None:
    """Return the request with the frameworks that its packages bring, or None if there are none or none can share.

    They are for the GPU where builds serve all frameworks without lowering the first one.
    """
    request = one.context.request
    planned = {w.name for w in request.frameworks}
    lines = (n for n in one.context.demands.needs if n.name and not n.constraint)
    named = {str(canonicalize_name(n.name or "")) for n in lines} | {
        name_of(p) for p in solution.plan.packages
    }
    locked = solution.answer.versions
    brought = [f for f in PROJECT_FRAMEWORKS if f in locked and f not in planned and f not in named]
    if not brought or request.device != "cuda":
        return None
    frameworks = (*request.frameworks, *(FrameworkRequest(name=n) for n in brought))
    more = one.asking(frameworks=frameworks)
    plan, ours, names = Fitting(more).newest, one.fitting.newest.builds[0], " and ".join(brought)
    if plan.builds and version(plan.builds[0].version) >= version(ours.version):
        one.note(f"the packages require {names}: planning them too")
        return more
    one.note(
        f"{names} shares no CUDA with {ours.framework} {ours.version}, and is locked for the CPU",
        "warning",
    )
    return None
