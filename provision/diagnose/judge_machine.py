"""Compare the driver with the CUDA of the build, and judge the free GPU memory."""

from __future__ import annotations

from packaging.version import Version

from .candidates import Case, CauseCandidate

_STARVED = 0.06  # of the card's memory; cuDNN's handle and workspace need some hundred MiB
_PLENTY = 0.12
_FILLED = 0.7  # of the reserved memory that tensors of the job use when it runs out


def driver(case: Case) -> list[CauseCandidate]:
    """Find a driver older than the build's CUDA requires.

    By NVIDIA's release notes, one driver version is the minimum for each major from CUDA 11 on
    (minor-version compatibility). Each older release has its own minimum.
    """
    facts = case.facts
    if case.said.group("forward_compat") or case.said.group("library_mismatch"):
        return []
    have, speaks, built = facts.first("driver"), facts.first("driver_cuda"), cuda_built(case)
    if not built or not (have or speaks):
        return []
    floor = floor_of(case, built)
    too_old = bool(have and floor and Version(have) < Version(floor))
    too_old |= bool(not have and speaks and _find_major(speaks) < _find_major(built))
    if not too_old:
        case.ruled_out.add("driver_too_old_for_runtime")
        return []
    shows = next(
        (
            case.said.group(n)
            for n in ("driver_insufficient", "sees_no_gpu", "no_cuda_gpus", "cudnn_status", "dnn_library")
            if case.said.group(n)
        ),
        (),
    )
    if not shows:
        return []
    needs = f"driver {floor}" if floor else f"a driver for CUDA {_find_major(built)}"
    return [
        CauseCandidate(
            cause="driver_too_old_for_runtime",
            weight=95,
            confidence="certain" if have and floor else "likely",
            evidence=(*shows[:1], *facts.where("driver", "driver_cuda", "cuda_build")),
            title=f"This build's CUDA {built} requires {needs}; found {have or 'a driver for CUDA ' + str(speaks)}",
        )
    ]


def cuda_built(case: Case) -> str | None:
    """Return the CUDA of the framework's build, from the text or from its release on the default index."""
    said = case.facts.first("cuda_build")
    if said:
        return said
    for name in ("torch", "tensorflow"):
        version = case.facts.first(name)
        builds = {
            b.cuda
            for b in case.profiles.builds
            if b.framework == name and b.version == version and b.index == "pypi" and b.cuda
        }
        if version and len(builds) == 1:
            return builds.pop()
    return None


def floor_of(case: Case, cuda: str) -> str | None:
    """Return the oldest driver for a CUDA on the text's system."""
    windows = case.facts.holds("os=windows") or case.facts.holds("os=wsl")
    for major in case.profiles.majors:
        if major.major == cuda.split(".", maxsplit=1)[0]:
            return major.windows if windows else major.linux
    for release in case.profiles.cuda:
        if release.cuda == cuda:
            return release.windows if windows else release.linux
    return None


def _find_major(cuda: str) -> int:
    return int(cuda.split(".", maxsplit=1)[0])


def memory(case: Case) -> list[CauseCandidate]:
    """Judge the free memory that XLA and TensorFlow print when cuDNN cannot start."""
    free, total = case.facts.first("free_bytes"), case.facts.first("total_bytes")
    shows = case.said.group("dnn_handle") or case.said.group("dnn_library")
    if not free or not total or not int(total) or not shows:
        return []
    share = int(free) / int(total)
    evidence = (*shows[:1], *case.facts.where("free_bytes"))
    text = f"{int(free) >> 20} of {int(total) >> 20} MiB were free"
    if share < _STARVED:
        return [
            CauseCandidate(cause="preallocation_leaves_no_memory", weight=85, confidence="likely", evidence=evidence,
                      title=f"The framework reserved nearly all GPU memory: {text} when cuDNN started"),
            CauseCandidate(cause="gpu_memory_exhausted", weight=60, confidence="possible", evidence=evidence,
                      title=f"Other processes use the GPU's memory: {text} when cuDNN started"),
        ]  # fmt: skip
    if share < _PLENTY:
        return []
    case.ruled_out.update(("preallocation_leaves_no_memory", "gpu_memory_exhausted"))
    return [
        CauseCandidate(cause="cudnn_major_mismatch", weight=66, confidence="possible", evidence=evidence,
                  title=f"{text}, which is enough memory: the cuDNN found is not the one that this build requires"),
        CauseCandidate(cause="cudnn_not_found", weight=60, confidence="possible", evidence=evidence),
    ]  # fmt: skip


def reserved_memory(case: Case) -> list[CauseCandidate]:
    """Judge the statistics that the allocator of TensorFlow and XLA prints when a tensor does not fit."""
    limit, used = case.facts.first("bfc_limit"), case.facts.first("bfc_in_use")
    shows = case.said.group("oom") or case.said.group("oom_xla")
    if not limit or not used or not int(limit) or not shows or int(used) < _FILLED * int(limit):
        return []
    case.ruled_out.add("preallocation_leaves_no_memory")
    return [
        CauseCandidate(cause="gpu_memory_exhausted", weight=84, confidence="likely",
                  evidence=(*shows[:1], *case.facts.where("bfc_limit", "bfc_in_use")),
                  title=f"The job's own tensors use {int(used) >> 20} of the {int(limit) >> 20} MiB that it reserved"),
    ]  # fmt: skip
