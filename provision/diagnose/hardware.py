"""Compare the GPU with the kernels of the build, and the build with the system."""

from __future__ import annotations

import re
from collections.abc import Sequence

from packaging.version import Version

from ..model import Build, Confidence, Evidence, GpuModel
from .candidates import Case, CauseCandidate
from .facts import meets
from .pattern_search import evidence

_NEW, _OLD = "arch_not_in_wheel_too_new", "arch_dropped_too_old"
_SAYS = ("not_compatible", "no_kernel", "too_old_gpu", "needs_newer_cuda")
_PTX_ONLY = "The build has only PTX for this GPU ({}), and the driver failed to compile it"
_NO_GPUS = re.compile(
    r"\bgpus?\b[\w ]{0,30}[:=(] {0,3}\[\]|\bgpus? count ?[:=] ?0\b|\b(?:number|num|count)\b.{0,20}\bgpus?\b[\w ]{0,12}[:=] {0,3}0\b",
    re.IGNORECASE,
)
_WEAK = ("cudnn_status", "dnn_handle", "dnn_library")


def kernels(case: Case) -> list[CauseCandidate]:
    """Compare the GPU's capability with the arch list of the text or of its build.

    Without an arch list, compare it with the CUDA releases that support the GPU.
    """
    shows = next((case.said.group(n) for n in (*_SAYS, *_WEAK) if case.said.group(n)), ())
    capability = case.facts.first("capability") or case.facts.first("board_capability")
    if not shows or not capability or case.said.group("too_old_gpu"):
        return []
    plain = any(case.said.group(n) for n in _SAYS)
    where = case.facts.where("capability", "board_capability", "kernels", "kernel", "cuda_build")
    listed = case.facts.first("kernels") or " ".join(case.facts.all("kernel"))
    have = listed.split() if listed else _is_of_build(case, capability)
    if have:
        if case.serves(have, capability):
            if untranslated := _judge_untranslated(case, have, capability):
                return [
                    _make_candidate(True, 86, "likely", (*untranslated, *where), _PTX_ONLY.format(capability))
                ]
            case.ruled_out.update((_NEW, _OLD))
            return _has_other_code((*shows, *where)) if case.said.group("no_kernel") else []
        newer = Version(capability) > max(Version(_parse_number(k)) for k in have)
        title = f"The build has no kernels for this GPU ({capability}), only for {' '.join(have)}"
        return [
            _make_candidate(
                newer, 98 if plain else 72, "certain" if plain else "likely", (*shows, *where), title
            )
        ]
    by_cuda = _is_of_cuda(case, capability)
    if by_cuda is not None:
        newer, title = by_cuda
        return [
            _make_candidate(
                newer, 96 if plain else 74, "certain" if plain else "likely", (*shows, *where), title
            )
        ]
    return _by_age(case, capability, (*shows, *where)) if plain else []


def _judge_untranslated(case: Case, have: Sequence[str], capability: str) -> tuple[Evidence, ...]:
    """Return the lines that show a failed PTX compilation, if the build has only PTX for the GPU."""
    if case.serves([k.removesuffix("+PTX") for k in have], capability):
        return ()
    return case.said.group("ptx_failed") or case.said.group("needs_newer_cuda")


def _make_candidate(
    newer: bool, weight: int, confidence: Confidence, evidence: Sequence[Evidence], title: str | None
) -> CauseCandidate:
    return CauseCandidate(
        cause=_NEW if newer else _OLD, weight=weight, confidence=confidence,
        evidence=tuple(dict.fromkeys(evidence)), title=title,
    )  # fmt: skip


def _has_other_code(evidence: Sequence[Evidence]) -> list[CauseCandidate]:
    """Return an extension as the cause: the framework itself has kernels for the GPU."""
    return [
        CauseCandidate(
            cause="extension_built_for_other_torch_or_cuda", weight=66, confidence="likely",
            evidence=tuple(dict.fromkeys(evidence)),
            title="The framework has kernels for this GPU, but a compiled extension has none",
        )
    ]  # fmt: skip


def _parse_number(kernel: str) -> str:
    return kernel.removesuffix("+PTX").rstrip("af")


def _is_of_build(case: Case, capability: str) -> list[str]:
    """Return the kernels of the build with the text's version or CUDA, if all such builds agree."""
    facts = case.facts
    for name in ("torch", "tensorflow"):
        version, cuda = facts.first(name), facts.first("cuda_build")
        if not version and not (cuda and name == "torch"):
            continue
        named = [
            b for b in case.profiles.builds
            if b.framework == name and b.kernels and b.cuda and (not version or _is_same(b, version))
            and (not cuda or b.cuda == cuda or b.cuda.startswith(cuda + "."))
        ]  # fmt: skip
        if not cuda:
            named = [b for b in named if b.index == "pypi"] or named
        answers = {case.serves(b.kernels, capability) for b in named}
        if len(answers) == 1:
            return list(named[0].kernels)
    return []


def _is_same(build: Build, version: str) -> bool:
    """Return whether a build has that version. A nightly counts as its release."""
    return meets(version, f"=={build.version}") or Version(version).base_version == build.version


def _is_of_cuda(case: Case, capability: str) -> tuple[bool, str] | None:
    """Return (newer, title) if no build of that CUDA can have kernels for the GPU."""
    cuda = case.facts.first("cuda_build")
    model = _find_model(case, capability)
    if not cuda or "." not in cuda or model is None:
        return None
    if model.first_cuda and Version(model.first_cuda) > Version(cuda):
        return (
            True,
            f"This GPU ({capability}) requires CUDA {model.first_cuda} or newer; the build is for {cuda}",
        )
    if model.last_cuda and Version(model.last_cuda) < Version(cuda):
        return (
            False,
            f"This GPU ({capability}) requires CUDA {model.last_cuda} or older; the build is for {cuda}",
        )
    return None


def _find_model(case: Case, capability: str) -> GpuModel | None:
    return next((g for g in case.profiles.gpus if g.capability == capability), None)


def _by_age(case: Case, capability: str, evidence: Sequence[Evidence]) -> list[CauseCandidate]:
    """Judge a GPU by its age, as nothing is known of the build.

    Releases drop old GPUs and never add them again. No release dropped a GPU that every build of the newest
    torch supports, so it is too new for the text's build. Any other GPU is old, unless it is newer than all
    their kernels.
    """
    torch = [
        b
        for b in case.profiles.builds
        if b.framework == "torch" and b.kernels and b.platform == "linux-x86_64"
    ]
    latest = max((Version(b.version) for b in torch), default=None)
    newest = [b for b in torch if Version(b.version) == latest]
    if not newest:
        return []
    beyond = Version(capability) > max(Version(_parse_number(k)) for b in newest for k in b.kernels)
    newer = beyond or all(case.serves(b.kernels, capability) for b in newest)
    return [
        _make_candidate(newer, 84, "likely", evidence, None),
        _make_candidate(not newer, 50, "possible", evidence, None),
    ]


def _find_empty_list(case: Case) -> tuple[Evidence, ...]:
    """Return the first line in which the program prints that it has no GPU: an empty list, or a count of 0."""
    return tuple(evidence(line) for line in case.said.lines if _NO_GPUS.search(line.text))[:1]


def platform(case: Case) -> list[CauseCandidate]:
    """Find a release without a GPU build for its system."""
    facts = case.facts
    native = (facts.holds("os=windows") or case.said.group("native_windows")) and not case.said.group("wsl")
    shows = next(
        (
            case.said.group(n)
            for n in ("sees_no_gpu", "dlopen", "cpu_build", "jax_fell_back")
            if case.said.group(n)
        ),
        _find_empty_list(case),
    )
    if not shows or not native or facts.holds("os=wsl"):
        return []
    for name in ("tensorflow", "jax"):
        version = facts.first(name)
        there = [b for b in case.profiles.builds if b.framework == name and b.platform == "windows-x86_64"]
        if not version or any(b.cuda and _is_same(b, version) for b in there):
            continue
        with_gpu = max((Version(b.version) for b in there if b.cuda), default=None)
        if with_gpu is None and name == "tensorflow":
            continue
        if with_gpu is None or Version(version) > with_gpu:
            last = f"; {with_gpu} is the last release with one" if with_gpu else ""
            return [
                CauseCandidate(
                    cause="no_gpu_build_for_platform", weight=93, confidence="certain",
                    evidence=(*shows[:1], *facts.where(name, "os")),
                    title=f"{name} {version} has no GPU build for native Windows{last}",
                )
            ]  # fmt: skip
    return []
