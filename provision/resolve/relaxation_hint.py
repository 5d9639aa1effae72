"""Find the smallest change of a request for which a build fits.

A change is on an axis: the index, the Python, the version, the driver. An axis can be freed (ignored) and has
steps, the nearest first. The search finds the fewest axes whose freeing allows a build, then on each of them
the first step that still allows one.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from ..model import Plan
from .build_choice import opens
from .changeable_constraints import AXES, CPU, Axis, with_request
from .question import Question
from .toolkit import NVCC, asks_for_nvcc
from .versions import meets, specifiers, version

_MOST_AXES = 3  # more changes than this are not a useful hint


def hint_for(question: Question, plan: Plan) -> str | None:
    """Return the fewest and nearest changes under which a build fits, cheapest for the user first, or None.

    `plan` is the empty plan.
    """
    parts = [*_newer_than_known(question), *_apart(question, plan), *_without_nvcc(question)]
    if change := _smallest_change(question):
        parts.append(change)
    return "; or ".join(parts) or None


def _smallest_change(question: Question) -> str | None:
    """Return the smallest change. A change to the CPU is suggested only if nothing else helps."""
    binding = [axis for axis in AXES if axis.free(question) is not None]
    last = [CPU] if CPU.free(question) is not None else []
    for needed in ([], last) if last else ([],):
        for count in range(_MOST_AXES + 1):
            for axes in combinations(binding, count):
                if (axes or needed) and (sentence := _settled(question, (*axes, *needed))):
                    return sentence
    return None


def _settled(question: Question, axes: tuple[Axis, ...]) -> str | None:
    """Return the first step on each axis that allows a build while the later axes are free."""
    if not opens(_freed(question, axes)):
        return None
    now, said = question, []
    for i, axis in enumerate(axes):
        step = _first_step(now, axis, axes[i + 1 :])
        if step is None:
            return None
        sentence, now = step
        said.append(sentence)
    return ", and ".join(said)


def _first_step(now: Question, axis: Axis, later: tuple[Axis, ...]) -> tuple[str, Question] | None:
    for sentence, changed in axis.steps(now):
        if opens(_freed(changed, later)):
            return sentence, changed
    return None


def _freed(question: Question, axes: tuple[Axis, ...]) -> Question:
    for axis in axes:
        question = axis.free(question) or question
    return question


# --- hints that are not steps -------------------------------------------------------------


def _newer_than_known(question: Question) -> Iterator[str]:
    """Yield a hint to update the profiles if the requested version is newer than all their rows."""
    for wanted in question.request.frameworks:
        known = {b.version for b in question.profiles.builds if b.framework == wanted.name}
        newest = max(known, key=version, default=None)
        if newest is None or any(meets(v, wanted.specifier) for v in known):
            continue
        named = [s.version.removesuffix(".*") for s in specifiers(wanted.specifier) if s.operator != "!="]
        if any(version(v) > version(newest) for v in named):
            yield (
                f"run gpuenv profiles update: {wanted.name}{wanted.specifier} is newer than "
                f"{newest}, the newest in the profiles"
            )


def _without_nvcc(question: Question) -> Iterator[str]:
    """Yield a hint to get nvcc from elsewhere if no wheel has it for the CUDA of any build."""
    if asks_for_nvcc(question):
        others = tuple(p for p in question.request.packages if canonicalize_name(Requirement(p).name) != NVCC)
        if opens(with_request(question, packages=others)):
            yield "remove nvcc and install the system's CUDA toolkit, or use --manager conda --with cuda-nvcc"


def _apart(question: Question, plan: Plan) -> Iterator[str]:
    """Yield a hint to create one environment for each framework if they conflict but fit alone."""
    frameworks = question.request.frameworks
    if len(frameworks) < 2 or any(
        not opens(with_request(question, frameworks=(wanted,))) for wanted in frameworks
    ):
        return
    reasons = [
        (r, reason) for r in plan.rejected for reason in r.reasons
        if reason.code in ("library_conflict", "cuda_conflict", "python_unsupported")
    ]  # fmt: skip
    shown = [(r, why) for r, why in reasons if why.code == "library_conflict"][-1:] or reasons[:1]
    clash = "".join(f" ({r.framework} {r.version} {why.text})" for r, why in shown)
    each = " and ".join(f"one with --framework '{w.name}{w.specifier}'" for w in frameworks)
    yield f"create two environments{clash}: {each}".replace("two", str(len(frameworks)), len(frameworks) > 2)
