"""The objections to a build on a target, and to packages beside builds. A build without objections fits.

Each check is a generator of reasons with a code. Sentences contain both numbers, but not the build's own
version, so that equal objections to many versions can be merged."""

from __future__ import annotations

from collections.abc import Iterator

from packaging.requirements import Requirement

from ..model import (
    Build,
    FrameworkRequest,
    RejectionReason,
    TargetGpu,
)
from ..system.kernels import find_run_mode, needs_cuda
from ..system.versions import has_prefix, is_exact, major, meets, version
from .available import cudnn_objections, find_missing, is_available, wheels_for
from .boards import name_gpu
from .question import Question
from .satellites import companion_names
from .toolkit import compiler_objections


def objections(question: Question, wanted: FrameworkRequest, build: Build) -> tuple[RejectionReason, ...]:
    """Return all objections to a build, those about the user's request first."""
    reasons = [r for one in question.per_target for r in _objections(one, wanted, build)]
    return tuple(dict.fromkeys(reasons))


def fits(question: Question, wanted: FrameworkRequest, build: Build) -> bool:
    """Return whether a build has no objection. Stop at the first one."""
    return not any(next(_objections(one, wanted, build), None) for one in question.per_target)


def device_objections(question: Question, build: Build) -> tuple[RejectionReason, ...]:
    """Return the objections of the driver and GPUs of every target to a build of any package."""
    reasons: list[RejectionReason] = []
    for one in question.per_target:
        reasons += _platform(one, build)
        if one.request.device == "cuda" and build.cuda:
            reasons += [*_driver(one, build), *_kernels(one, build)]
    return tuple(dict.fromkeys(reasons))


def _objections(question: Question, wanted: FrameworkRequest, build: Build) -> Iterator[RejectionReason]:
    yield from _request(question, wanted, build)
    yield from _source(question, build)
    yield from _interpreter(question, build)
    yield from _platform(question, build)
    yield from _wheels(question, build)
    if question.request.device == "cuda" and build.cuda:
        yield from _driver(question, build)
        yield from _kernels(question, build)
        yield from cudnn_objections(question, build)
        yield from compiler_objections(question, build)


def _request(question: Question, wanted: FrameworkRequest, build: Build) -> Iterator[RejectionReason]:
    if not meets(build.version, wanted.specifier):
        yield RejectionReason("not_requested", f"{wanted.name}{wanted.specifier} was requested")
    for bound in question.request.bounds:
        if bound.name == wanted.name and not bound.pythons and not meets(build.version, bound.specifier):
            text = f"{bound.origin} requires {bound.name}{bound.specifier}"
            yield RejectionReason("requirement_conflict", text)
    cuda = question.request.cuda
    if cuda and not (build.cuda and has_prefix(build.cuda, cuda)):
        built = f"CUDA {build.cuda}" if build.cuda else "the CPU"
        yield RejectionReason("not_requested", f"CUDA {cuda} was requested; this build is for {built}")
    if version(build.version).is_prerelease and not question.request.pre:
        yield RejectionReason("prerelease", "is a pre-release; --pre allows pre-releases")
    if build.yanked and not is_exact(
        wanted.specifier
    ):  # PEP 592 allows a yanked release that is named exactly
        yield RejectionReason("yanked", "was withdrawn by its publisher (yanked)")
    bad = question.find_bad(build.framework, build.version, build)
    if bad and bad.effect == "refuse":
        yield RejectionReason("known_bad", f"{bad.why} ({bad.source})")
    for bad in question.list_pinned_bad(build):
        if bad.effect == "refuse":
            text = f"pins {bad.package} {bad.version}: {bad.why} ({bad.source})"
            yield RejectionReason("known_bad", text)


def _source(question: Question, build: Build) -> Iterator[RejectionReason]:
    index = question.request.index
    if question.available.only_wheels:
        return
    if build.index == "find-links":
        if index != "auto":
            yield RejectionReason("index_excluded", f"is a local wheel, but --index {index} was given")
    elif index != "auto" and build.index != _name_index(index):
        yield RejectionReason(
            "index_excluded", f"is on the {build.index} index, but --index {index} was given"
        )
    elif build.index in question.available.unreachable:
        yield RejectionReason("index_unreachable", f"the {build.index} index does not respond")


def _name_index(index: str) -> str:
    """Return which index a URL mirrors. The PyTorch index has its wheels under /whl, and its variants as other indexes."""
    if index in ("pypi", "pytorch"):
        return index
    return "pytorch" if "/whl" in index and not index.rstrip("/").endswith("/variant") else "pypi"


def _interpreter(question: Question, build: Build) -> Iterator[RejectionReason]:
    if question.pythons(build):
        return
    have = question.request.python or ", ".join(question.request.pythons) or "none"
    best_first = filter(None, (question.request.python, *question.request.pythons))
    why = dict(line.split(": ", 1) for line in build.unresolvable)
    for python in tuple(best_first) or reversed(build.python):
        if python in why:
            yield RejectionReason("python_unsupported", f"does not install on Python {python}: {why[python]}")
            return
    if (question.request.python or "").endswith("t"):
        text = f"has no known wheel for a free-threaded Python; requested: {question.request.python}"
        yield RejectionReason("python_unsupported", text)
        return
    served = " to ".join(dict.fromkeys((build.python[0], build.python[-1]))) if build.python else "none"
    if question.request.requires_python:
        bound = (
            f"{question.request.python_origin or 'the project'} requires {question.request.requires_python}"
        )
        have = bound if have == "none" else f"{have}, and {bound}"
    yield RejectionReason("python_unsupported", f"has wheels for Python {served}; requested: {have}")


def _platform(question: Question, build: Build) -> Iterator[RejectionReason]:
    target = question.target
    if question.request.device == "cuda" and not build.cuda:
        index = {"pypi": " of the default index", "pytorch": " of the PyTorch index"}.get(build.index, "")
        yield RejectionReason("platform_unsupported", f"is a CPU build on {target.platform}{index}")
    on_linux = target.platform.startswith("linux")
    if on_linux and target.glibc and build.glibc and version(target.glibc) < version(build.glibc):
        yield RejectionReason("glibc_too_old", f"needs glibc {build.glibc}; the system has {target.glibc}")


def _driver(question: Question, build: Build) -> Iterator[RejectionReason]:
    target, cuda = question.target, build.cuda or ""
    if not target.driver:
        # If only the driver's CUDA is known (CONDA_OVERRIDE_CUDA), only minor-version compatibility can be checked.
        if cuda and question.driver_cuda and int(major(question.driver_cuda)) < int(major(cuda)):
            yield RejectionReason(
                "driver_too_old",
                f"is built for CUDA {cuda}; the driver supports CUDA {question.driver_cuda}",
            )
        return
    floor = question.find_driver_floor(cuda)
    compat = question.compat_cuda
    # The newer libcuda has minor-version compatibility too, so its major decides.
    covered = compat is not None and int(major(compat)) >= int(major(cuda))
    if floor is None:
        yield RejectionReason("driver_too_old", f"no driver is known to run CUDA {cuda}")
    elif version(target.driver) < version(floor) and not covered:
        compatible = any(row.major == major(cuda) for row in question.profiles.majors)
        name = major(cuda) if compatible else cuda
        yield RejectionReason(
            "driver_too_old",
            f"CUDA {name} needs driver {floor}; the driver is {target.driver}",
        )
    for gpu in target.gpus:
        yield from _driver_serves(question, gpu)


def _driver_serves(question: Question, gpu: TargetGpu) -> Iterator[RejectionReason]:
    known = question.gpus.get(gpu.capability)
    driver = question.target.driver or ""
    if known is None:
        return
    branch = int(question.branch(driver))
    if known.last_driver and branch > int(known.last_driver):
        yield RejectionReason(
            "driver_drops_gpu",
            f"driver {driver} does not support {name_gpu(gpu)}; the last driver branch that supports it is {known.last_driver}",
        )
    if known.first_driver and int(major(driver)) < int(known.first_driver):
        yield RejectionReason(
            "driver_too_old",
            f"{name_gpu(gpu)} needs driver {known.first_driver}; the driver is {driver}",
        )


def _kernels(question: Question, build: Build) -> Iterator[RejectionReason]:
    for gpu in question.target.gpus:
        yield from _kernels_for(question, build, gpu)


def _kernels_for(question: Question, build: Build, gpu: TargetGpu) -> Iterator[RejectionReason]:
    cuda, built = build.cuda or "", " ".join(build.kernels)
    if not build.kernels:
        yield RejectionReason("gpu_too_new", f"its kernels are unknown; it may not run on {name_gpu(gpu)}")
        return
    oldest = needs_cuda(gpu.capability)
    how = find_run_mode(build.kernels, gpu.capability, question.profiles.tegra)
    if how == "cubin":
        if oldest and version(cuda) < version(oldest):
            yield RejectionReason("gpu_too_new", f"{name_gpu(gpu)} needs CUDA {oldest}; built with {cuda}")
        return
    first = question.gpus[gpu.capability].first_cuda if gpu.capability in question.gpus else None
    if how == "ptx":
        # PTX contains only the framework's own kernels. The CUDA libraries must support the GPU.
        if first and version(cuda) < version(first):
            yield RejectionReason(
                "gpu_too_new",
                f"{name_gpu(gpu)} needs CUDA {first} or newer; built with {cuda}",
            )
        elif question.driver_cuda and version(question.driver_cuda) < version(cuda):
            yield RejectionReason(
                "ptx_needs_driver",
                f"{name_gpu(gpu)} requires compilation of PTX code, which requires a driver that supports CUDA {cuda}; "
                f"driver {question.target.driver} supports CUDA {question.driver_cuda}",
            )
        return
    newest = max((k.removesuffix("+PTX").rstrip("af") for k in build.kernels), key=version)
    code = "gpu_too_new" if version(gpu.capability) > version(newest) else "gpu_too_old"
    yield RejectionReason(code, f"no kernels for {name_gpu(gpu)}; built for {built}")


# --- available wheels ------------------------------------------------------------------------


def _wheels(question: Question, build: Build) -> Iterator[RejectionReason]:
    pythons = question.pythons(build)
    if build.index == "find-links" and build.local and pythons:
        yield from _companions(question, build, pythons[0])
    if not question.available.only_wheels or not pythons:
        if build.index == "find-links" and pythons and not is_available(question, build, pythons[0]):
            yield RejectionReason("not_available", "the available wheel does not fit this platform")
        return
    lacks = [find_missing(question, build, p) for p in pythons]
    if all(lacks):
        none = "no index is asked, and no folder has a wheel"
        text = f"no folder of wheels has {lacks[0]}" if question.available.wheels else none
        yield RejectionReason("not_available", text)


def _companions(question: Question, build: Build, python: str) -> Iterator[RejectionReason]:
    """Yield objections to a build with a label ("+cpu") whose companions are not available with that label.

    A companion from the default index is compiled for another torch, and its operators do not load.
    """
    companions = companion_names(b for b in question.profiles.builds if b.framework == build.framework)
    named = {Requirement(p).name for p in question.request.packages} | set(question.request.along)
    for name in sorted(companions & named):
        wheels = wheels_for(question, name, python)
        if not any(w.version.endswith(f"+{build.local}") for w in wheels):
            text = f"is available as a +{build.local} wheel, but the requested {name} is not available as +{build.local}"
            yield RejectionReason("not_available", text)
