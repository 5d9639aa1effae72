"""Find the smallest change of a request for which a build fits.

A change lies on an axis: the index, the Python, the version, the driver. An axis can be freed
(judged as though it bound nothing) and has steps, the nearest first. Looked for are the fewest axes
whose freeing opens a build, and then on each of them the first step that still does.
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

_MOST_AXES = 3  # more changes than this are another question, not a hint


def hint_for(question: Question, plan: Plan) -> str | None:
    """The fewest and nearest changes under which some build fits, cheapest for the user first. None
    if none helps. `plan` is the one that came out empty."""
    parts = [*_newer_than_known(question), *_apart(question, plan), *_without_nvcc(question)]
    if change := _smallest_change(question):
        parts.append(change)
    return "; or ".join(parts) or None


def _smallest_change(question: Question) -> str | None:
    """Who asks for a GPU is told of the CPU only where nothing else helps."""
    binding = [axis for axis in AXES if axis.free(question) is not None]
    last = [CPU] if CPU.free(question) is not None else []
    for needed in ([], last) if last else ([],):
        for count in range(_MOST_AXES + 1):
            for axes in combinations(binding, count):
                if (axes or needed) and (sentence := _settled(question, (*axes, *needed))):
                    return sentence
    return None


def _settled(question: Question, axes: tuple[Axis, ...]) -> str | None:
    """The first step on each axis with which a build still opens while the later axes are free."""
    if not opens(_freed(question, axes)):
        return None
    now, said = question, []
    for i, axis in enumerate(axes):
        found = _first_step(now, axis, axes[i + 1 :])
        if found is None:
            return None
        sentence, now = found
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


# --- what no step on an axis says --------------------------------------------------------------


def _newer_than_known(question: Question) -> Iterator[str]:
    """A version above every row of the profiles may exist by now: the index is to be asked."""
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
    """Builds for a CUDA whose nvcc no wheel has: the compiler comes from elsewhere."""
    if asks_for_nvcc(question):
        others = tuple(p for p in question.request.packages if canonicalize_name(Requirement(p).name) != NVCC)
        if opens(with_request(question, packages=others)):
            yield "remove nvcc and install the system's CUDA toolkit, or use --manager conda --with cuda-nvcc"


def _apart(question: Question, plan: Plan) -> Iterator[str]:
    """Frameworks that clash, each of which fits alone: an environment each."""
    frameworks = question.request.frameworks
    if len(frameworks) < 2 or any(
        not opens(with_request(question, frameworks=(wanted,))) for wanted in frameworks
    ):
        return
    reasons = [
        (r, reason) for r in plan.rejected for reason in r.reasons
        if reason.code in ("library_conflict", "cuda_conflict", "python_unsupported")
    ]  # fmt: skip
    told = [(r, why) for r, why in reasons if why.code == "library_conflict"][-1:] or reasons[:1]
    clash = "".join(f" ({r.framework} {r.version} {why.text})" for r, why in told)
    each = " and ".join(f"one with --framework '{w.name}{w.specifier}'" for w in frameworks)
    yield f"create two environments{clash}: {each}".replace("two", str(len(frameworks)), len(frameworks) > 2)
