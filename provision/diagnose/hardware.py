"""Judge driver, GPU and its memory: driver against CUDA, kernels of the build against the GPU, and GPUs that are hidden."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from packaging.version import Version

from ..model import Build, Confidence, Evidence
from ..system.versions import major, meets
from .case import Candidate, Case, candidate, rule_out
from .lines import Line

# --- the driver --------------------------------------------------------------------------------

_RELEASE = re.compile(r"(?<![\w.])(\d{1,2}\.\d{1,3}\.\d{1,3}[\w.+-]{0,80})")
_DKMS = re.compile(
    r"^nvidia[\w-]{0,30}(?:/|, ?)\S{1,40}, (\d{1,2}\.\d{1,3}\.\d{1,3}[\w.+-]{0,80}),.{0,60}\binstalled"
)
_MODULE = re.compile(r"/lib/modules/([\w.+-]{1,80})/\S{0,120}\bnvidia\.ko")


def judge_driver(case: Case) -> Iterator[Candidate]:
    """Find a driver older than the build's CUDA requires.

    By NVIDIA's release notes, one driver version is the minimum for each major from CUDA 11 on
    (minor-version compatibility). Each older release has its own minimum.
    """
    facts, built = case.facts, case.cuda_built
    have, speaks = facts.first("driver"), facts.first("driver_cuda")
    if case.find_message("forward_compat", "library_mismatch") or not built or not (have or speaks):
        return
    floor = case.find_driver_floor(built)
    if have:
        too_old = floor is not None and Version(have) < Version(floor)
    else:
        too_old = int(major(speaks or "")) < int(major(built))
    if not too_old:
        yield from rule_out("driver_too_old_for_runtime")
        return
    shows = case.find_message(
        "driver_insufficient", "sees_no_gpu", "no_cuda_gpus", "cudnn_status", "dnn_library"
    )
    if not shows:
        return
    needs = f"driver {floor}" if floor else f"a driver for CUDA {major(built)}"
    yield candidate(
        "driver_too_old_for_runtime", 95, (*shows[:1], *facts.find_lines("driver", "driver_cuda", "cuda_build")),
        f"This build's CUDA {built} requires {needs}; found {have or f'a driver for CUDA {speaks}'}",
        confidence="certain" if have and floor else "likely",
    )  # fmt: skip


def judge_kernel_module(case: Case) -> Iterator[Candidate]:
    """Compare the kernels for which the driver's module is built with the running kernel."""

    def list_output(command: str) -> list[Line]:
        return [line for c in case.commands if re.search(command, c.typed) for line in c.output]

    running = [(m[1], x.evidence) for x in list_output(r"^uname\b") if (m := _RELEASE.search(x.text))]
    files = list_output(r"\bdkms\b|/lib/modules|\bmodinfo\b")
    matches = ((_DKMS.match(x.text.strip()) or _MODULE.search(x.text), x.evidence) for x in files)
    built = {m[1]: shown for m, shown in matches if m}
    if any(line.text.strip().startswith("nvidia") for line in list_output(r"\blsmod\b")):
        return  # the module is loaded
    unloaded = [c.line.evidence for c in case.commands if re.search(r"\blsmod\b", c.typed) and c.ended]
    shows = case.find_message(
        "sees_no_gpu", "no_device", "no_cuda_gpus", "no_driver", "no_communication", "no_devices_found", "dlopen"
    )  # fmt: skip
    if (
        not running
        or not built
        or running[0][0] in built
        or case.find_message("wsl")
        or not (unloaded or shows)
    ):
        return
    release, where = running[0]
    yield candidate(
        "driver_module_not_loaded", 94, (*unloaded[:1], *shows[:1], where, *[*built.values()][:1]),
        f"The driver's kernel module is built for another kernel ({', '.join(built)}) than the running one ({release})",
    )  # fmt: skip


def judge_hidden_gpus(case: Case) -> Iterator[Candidate]:
    """Find a CUDA_VISIBLE_DEVICES that names no GPU of this machine, and a program without a GPU."""
    machine = case.circumstances.machine if case.circumstances.ran else None
    visible = machine.environment.get("CUDA_VISIBLE_DEVICES") if machine else None
    shows = case.find_message("no_cuda_gpus", "no_device", "sees_no_gpu", "bad_ordinal")
    if machine is None or visible is None or not shows or not machine.gpus:
        return
    first = visible.split(",", maxsplit=1)[0].strip()  # it decides; a UUID may be a MIG device's
    if (
        int(first) < len(machine.gpus)
        if re.fullmatch(r"\d{1,9}", first)
        else first.startswith(("GPU-", "MIG-"))
    ):
        return
    where = Evidence(f"CUDA_VISIBLE_DEVICES={visible}", "environment")
    yield candidate(
        "visible_devices_invalid", 96, (*shows[:1], where),
        f"CUDA_VISIBLE_DEVICES={visible!r} names none of the {len(machine.gpus)} GPUs of this machine",
        confidence="certain", visible=visible or "empty",
    )  # fmt: skip


# --- memory of the GPU -------------------------------------------------------------------------

_STARVED = 0.06  # of the card's memory; cuDNN's handle and workspace need some hundred MiB
_PLENTY = 0.12
_FILLED = 0.7  # of the reserved memory that tensors of the job use when it runs out


def judge_free_memory(case: Case) -> Iterator[Candidate]:
    """Judge the free memory that XLA and TensorFlow print when cuDNN cannot start."""
    free, total = (int(case.facts.first(name) or 0) for name in ("free_bytes", "total_bytes"))
    shows = case.find_message("dnn_handle", "dnn_library")
    if not case.facts.first("free_bytes") or not total or not shows:
        return
    where = (*shows[:1], *case.facts.find_lines("free_bytes"))
    text = f"{free >> 20} of {total >> 20} MiB were free"
    if free / total < _STARVED:
        title = f"The framework reserved nearly all GPU memory: {text} when cuDNN started"
        yield candidate("preallocation_leaves_no_memory", 85, where, title)
        title = f"Other processes use the GPU's memory: {text} when cuDNN started"
        yield candidate("gpu_memory_exhausted", 60, where, title)
        return
    if free / total < _PLENTY:
        return
    title = f"cuDNN did not start, although {text}: it may be of another release than this build requires"
    yield from rule_out("preallocation_leaves_no_memory", "gpu_memory_exhausted")
    yield candidate("cudnn_major_mismatch", 66, where, title, confidence="possible")
    yield candidate("cudnn_not_found", 60, where)


def judge_reserved_memory(case: Case) -> Iterator[Candidate]:
    """Judge the statistics that the allocator of TensorFlow and XLA prints when a tensor does not fit."""
    limit, used = (int(case.facts.first(name) or 0) for name in ("bfc_limit", "bfc_in_use"))
    shows = case.find_message("oom", "oom_xla")
    if not limit or not used or not shows or used < _FILLED * limit:
        return
    where = (*shows[:1], *case.facts.find_lines("bfc_limit", "bfc_in_use"))
    title = f"The job's own tensors use {used >> 20} of the {limit >> 20} MiB that it reserved"
    yield from rule_out("preallocation_leaves_no_memory")
    yield candidate("gpu_memory_exhausted", 84, where, title)


# --- kernels of the build ----------------------------------------------------------------------

_NEW, _OLD = "arch_not_in_wheel_too_new", "arch_dropped_too_old"
_NO_GPUS = re.compile(
    r"\bgpus?\b[\w ]{0,30}[:=(] {0,3}\[\]|\bgpus? count ?[:=] ?0\b|\b(?:number|num|count)\b.{0,20}\bgpus?\b[\w ]{0,12}[:=] {0,3}0\b",
    re.IGNORECASE,
)  # fmt: skip


def judge_kernels(case: Case) -> Iterator[Candidate]:
    """Compare the GPU's capability with the arch list of the text or of its build.

    Without an arch list, compare it with the CUDA releases that support the GPU.
    """
    facts = case.facts
    plain = case.find_message("not_compatible", "no_kernel", "needs_newer_cuda")
    shows = plain or case.find_message("cudnn_status", "dnn_handle", "dnn_library")
    capability = case.capability
    if not shows or not capability or case.find_message("too_old_gpu"):
        return
    compared = facts.find_lines("capability", "board_capability", "kernels", "kernel", "cuda_build")
    where = (*shows, *compared)
    listed = facts.first("kernels") or " ".join(facts.all("kernel"))
    have = listed.split() if listed else _find_kernels_of_build(case, capability)
    if have and case.runs_any(have, capability):
        compiled = case.runs_any([k.removesuffix("+PTX") for k in have], capability)
        if not compiled and (failed := case.find_message("ptx_failed", "needs_newer_cuda")):
            title = f"The build has only PTX for this GPU ({capability}), and the driver failed to compile it"
            yield candidate(_NEW, 86, (*failed, *compared), title)
            return
        title = "The framework has kernels for this GPU, but a compiled extension has none"
        yield from rule_out(_NEW, _OLD)
        if case.find_message("no_kernel"):
            yield candidate("extension_built_for_other_torch_or_cuda", 66, where, title)
        return
    if have:
        newer = Version(capability) > max(map(_parse_kernel, have))
        title = f"The build has no kernels for this GPU ({capability}), only for {' '.join(have)}"
        weight = 98 if plain else 72
    elif by_cuda := _compare_with_cuda(case, capability):
        newer, title = by_cuda
        weight = 96 if plain else 74
    else:
        if plain:
            yield from _judge_by_age(case, capability, where)
        return
    confidence: Confidence = "certain" if plain else "likely"
    yield candidate(_NEW if newer else _OLD, weight, where, title, confidence=confidence)


def _parse_kernel(kernel: str) -> Version:
    return Version(kernel.removesuffix("+PTX").rstrip("af"))


def _find_kernels_of_build(case: Case, capability: str) -> list[str]:
    """Return the kernels of the build with the text's version or CUDA, if all such builds agree."""
    cuda = case.facts.first("cuda_build")
    for name in ("torch", "tensorflow"):
        version = case.facts.first(name)
        if not version and not (cuda and name == "torch"):
            continue
        named = [
            b for b in case.profiles.builds
            if b.framework == name and b.kernels and b.cuda and (not version or _is_release(b, version))
            and (not cuda or b.cuda == cuda or b.cuda.startswith(cuda + "."))
        ]  # fmt: skip
        if not cuda:
            named = [b for b in named if b.index == "pypi"] or named
        if len({case.runs_any(b.kernels, capability) for b in named}) == 1:
            return list(named[0].kernels)
    return []


def _is_release(build: Build, version: str) -> bool:
    """Return whether a build has that version. A nightly counts as its release."""
    return meets(version, f"=={build.version}") or Version(version).base_version == build.version


def _compare_with_cuda(case: Case, capability: str) -> tuple[bool, str] | None:
    """Return (newer, title) if no build of that CUDA can have kernels for the GPU."""
    cuda = case.facts.first("cuda_build")
    model = next((g for g in case.profiles.gpus if g.capability == capability), None)
    if not cuda or "." not in cuda or model is None:
        return None
    if model.first_cuda and Version(model.first_cuda) > Version(cuda):
        bound = f"{model.first_cuda} or newer"
    elif model.last_cuda and Version(model.last_cuda) < Version(cuda):
        bound = f"{model.last_cuda} or older"
    else:
        return None
    title = f"This GPU ({capability}) requires CUDA {bound}; the build is for {cuda}"
    return bound.endswith("newer"), title


def _judge_by_age(case: Case, capability: str, where: Sequence[Evidence]) -> Iterator[Candidate]:
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
    latest = max(Version(b.version) for b in torch)
    newest = [b for b in torch if Version(b.version) == latest]
    beyond = Version(capability) > max(_parse_kernel(k) for b in newest for k in b.kernels)
    newer = beyond or all(case.runs_any(b.kernels, capability) for b in newest)
    likelier, other = (_NEW, _OLD) if newer else (_OLD, _NEW)
    yield candidate(likelier, 84, where)
    yield candidate(other, 50, where)


def judge_platform(case: Case) -> Iterator[Candidate]:
    """Find a release without a GPU build for its system."""
    facts = case.facts
    native = (facts.holds("os=windows") or case.find_message("native_windows")) and not case.find_message(
        "wsl"
    )
    has_gpu = any('device_type: "GPU"' in line.text for line in case.lines)
    # the program prints that it has no GPU: an empty list, a count of 0, or only the CPU
    listed = (
        line.evidence
        for line in case.lines
        if _NO_GPUS.search(line.text) or ('device_type: "CPU"' in line.text and not has_gpu)
    )
    shows = case.find_message("sees_no_gpu", "dlopen", "cpu_build_words", "jax_fell_back") or tuple(listed)
    if not shows or not native or facts.holds("os=wsl"):
        return
    for name in ("tensorflow", "jax"):
        version = facts.first(name)
        there = [b for b in case.profiles.builds if b.framework == name and b.platform == "windows-x86_64"]
        if not version or any(b.cuda and _is_release(b, version) for b in there):
            continue
        with_gpu = max((Version(b.version) for b in there if b.cuda), default=None)
        if with_gpu is None or Version(version) > with_gpu:
            last = f"; {with_gpu} is the last release with one" if with_gpu else ""
            yield candidate(
                "no_gpu_build_for_platform", 93, (*shows[:1], *facts.find_lines(name, "os")),
                f"{name} {version} has no GPU build for native Windows{last}", confidence="certain",
            )  # fmt: skip
            return


def judge_no_gpu(case: Case, found: Sequence[Candidate]) -> Iterator[Candidate]:
    """Judge a program that ends because it sees no GPU, in whatever words. The place decides between the causes.

    It speaks where nothing else does: the text ends with the line, or with an exception that says so.
    """
    if found or not case.lines or case.find_message("only_warned"):
        return
    last = case.exceptions[-1].line if case.exceptions else None
    ends = [f.evidence for f in case.facts.seen.get("no_gpu", ())]
    shows = [e for e in ends if last is None or (e.line or 0) >= last.number]
    if not shows:
        return
    if case.facts.holds("container"):
        without = 90 if case.facts.holds("gpu_flag=no") else 60
        weights = {"container_without_gpu": without, "driver_missing": 40, "visible_devices_invalid": 38}
    elif case.facts.holds("system=wsl"):
        weights = {"wsl_driver_missing": 60, "wsl_libcuda_wrong_or_unlinked": 45}
    elif case.facts.holds("owner=notebook"):
        weights = {"driver_missing": 58, "cpu_only_build": 42, "visible_devices_invalid": 38}
    else:
        weights = {"cpu_only_build": 50, "driver_missing": 40, "visible_devices_invalid": 38}
    for cause, weight in weights.items():
        yield candidate(cause, weight, shows)
