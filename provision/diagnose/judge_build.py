"""The GPU against the kernels of the build, and the build against the system."""

from __future__ import annotations

from collections.abc import Sequence

from packaging.version import Version

from ..model import Build, Confidence, Evidence, GpuModel
from .candidates import Candidate, Case
from .facts import meets

_NEW, _OLD = "arch_not_in_wheel_too_new", "arch_dropped_too_old"
_SAYS = ("not_compatible", "no_kernel", "too_old_gpu", "needs_newer_cuda")
_PTX_ONLY = "The build has no machine code for the GPU ({}), only PTX, and its translation failed"
_WEAK = ("cudnn_status", "dnn_handle", "dnn_library")


def kernels(case: Case) -> list[Candidate]:
    """A card's capability against the arch list: the text's own, that of the build which the text names,
    or the CUDA releases that know the card."""
    shows = next((case.said.group(n) for n in (*_SAYS, *_WEAK) if case.said.group(n)), ())
    capability = case.facts.first("capability") or case.facts.first("board_capability")
    if not shows or not capability or case.said.group("too_old_gpu"):
        return []
    plain = any(case.said.group(n) for n in _SAYS)
    where = case.facts.where("capability", "board_capability", "kernels", "kernel", "cuda_build")
    listed = case.facts.first("kernels") or " ".join(case.facts.all("kernel"))
    have = listed.split() if listed else _of_build(case, capability)
    if have:
        if case.serves(have, capability):
            if untranslated := _untranslated(case, have, capability):
                return [_candidate(True, 86, "likely", (*untranslated, *where), _PTX_ONLY.format(capability))]
            case.ruled_out.update((_NEW, _OLD))
            return _other_code((*shows, *where)) if case.said.group("no_kernel") else []
        newer = Version(capability) > max(Version(_number(k)) for k in have)
        title = f"The GPU is {capability}; the build has kernels for {' '.join(have)}"
        return [
            _candidate(newer, 98 if plain else 72, "certain" if plain else "likely", (*shows, *where), title)
        ]
    by_cuda = _of_cuda(case, capability)
    if by_cuda is not None:
        newer, title = by_cuda
        return [
            _candidate(newer, 96 if plain else 74, "certain" if plain else "likely", (*shows, *where), title)
        ]
    return _by_age(case, capability, (*shows, *where)) if plain else []


def _untranslated(case: Case, have: Sequence[str], capability: str) -> tuple[Evidence, ...]:
    """Where the text says that the driver's translation of PTX failed or was needed, for a GPU that the build serves
    by PTX alone."""
    if case.serves([k.removesuffix("+PTX") for k in have], capability):
        return ()
    return case.said.group("ptx_failed") or case.said.group("needs_newer_cuda")


def _candidate(
    newer: bool, weight: int, confidence: Confidence, evidence: Sequence[Evidence], title: str | None
) -> Candidate:
    return Candidate(
        cause=_NEW if newer else _OLD, weight=weight, confidence=confidence,
        evidence=tuple(dict.fromkeys(evidence)), title=title,
    )  # fmt: skip


def _other_code(evidence: Sequence[Evidence]) -> list[Candidate]:
    """The framework's own kernels serve the GPU: what has none for it is an extension."""
    return [
        Candidate(
            cause="extension_built_for_other_torch_or_cuda", weight=66, confidence="likely",
            evidence=tuple(dict.fromkeys(evidence)),
            title="The framework's kernels serve this GPU; a compiled extension was built without any for it",
        )
    ]  # fmt: skip


def _number(kernel: str) -> str:
    return kernel.removesuffix("+PTX").rstrip("af")


def _of_build(case: Case, capability: str) -> list[str]:
    """The kernels of the build that the text names by version or CUDA, where all such builds agree."""
    facts = case.facts
    for name in ("torch", "tensorflow"):
        version, cuda = facts.first(name), facts.first("cuda_build")
        if not version and not (cuda and name == "torch"):
            continue
        named = [
            b for b in case.profiles.builds
            if b.framework == name and b.kernels and b.cuda and (not version or _same(b, version))
            and (not cuda or b.cuda == cuda or b.cuda.startswith(cuda + "."))
        ]  # fmt: skip
        if not cuda:
            named = [b for b in named if b.index == "pypi"] or named
        answers = {case.serves(b.kernels, capability) for b in named}
        if len(answers) == 1:
            return list(named[0].kernels)
    return []


def _same(build: Build, version: str) -> bool:
    """Whether a build is of that version; a nightly counts as its release."""
    return meets(version, f"=={build.version}") or Version(version).base_version == build.version


def _of_cuda(case: Case, capability: str) -> tuple[bool, str] | None:
    """(newer, title) where no build of that CUDA can hold kernels for the card."""
    cuda = case.facts.first("cuda_build")
    model = _model(case, capability)
    if not cuda or "." not in cuda or model is None:
        return None
    if model.first_cuda and Version(model.first_cuda) > Version(cuda):
        return (
            True,
            f"The GPU ({capability}) is known to CUDA from {model.first_cuda} on; the build is for {cuda}",
        )
    if model.last_cuda and Version(model.last_cuda) < Version(cuda):
        return (
            False,
            f"CUDA {model.last_cuda} is the last that knows the GPU ({capability}); the build is for {cuda}",
        )
    return None


def _model(case: Case, capability: str) -> GpuModel | None:
    return next((g for g in case.profiles.gpus if g.capability == capability), None)


def _by_age(case: Case, capability: str, evidence: Sequence[Evidence]) -> list[Candidate]:
    """Nothing is known of the build. Releases drop cards and never take them back, so a card that every build
    of the newest torch serves was dropped by none: it is too new for the build at hand. One that only some
    of them serve, or none, is old, unless it is newer than all their kernels."""
    torch = [
        b
        for b in case.profiles.builds
        if b.framework == "torch" and b.kernels and b.platform == "linux-x86_64"
    ]
    latest = max((Version(b.version) for b in torch), default=None)
    newest = [b for b in torch if Version(b.version) == latest]
    if not newest:
        return []
    beyond = Version(capability) > max(Version(_number(k)) for b in newest for k in b.kernels)
    newer = beyond or all(case.serves(b.kernels, capability) for b in newest)
    return [
        _candidate(newer, 84, "likely", evidence, None),
        _candidate(not newer, 50, "possible", evidence, None),
    ]


def platform(case: Case) -> list[Candidate]:
    """A release that has no GPU build for the system it runs on."""
    facts = case.facts
    native = (facts.holds("os=windows") or case.said.group("native_windows")) and not case.said.group("wsl")
    shows = next(
        (
            case.said.group(n)
            for n in ("sees_no_gpu", "dlopen", "cpu_build", "jax_fell_back")
            if case.said.group(n)
        ),
        (),
    )
    if not shows or not native or facts.holds("os=wsl"):
        return []
    for name in ("tensorflow", "jax"):
        version = facts.first(name)
        there = [b for b in case.profiles.builds if b.framework == name and b.platform == "windows-x86_64"]
        if not version or any(b.cuda and _same(b, version) for b in there):
            continue
        with_gpu = max((Version(b.version) for b in there if b.cuda), default=None)
        if with_gpu is None and name == "tensorflow":
            continue
        if with_gpu is None or Version(version) > with_gpu:
            last = f"; the last with one is {with_gpu}" if with_gpu else ""
            return [
                Candidate(
                    cause="no_gpu_build_for_platform", weight=93, confidence="certain",
                    evidence=(*shows[:1], *facts.where(name, "os")),
                    title=f"{name} {version} has no GPU build for Windows itself{last}",
                )
            ]  # fmt: skip
    return []
