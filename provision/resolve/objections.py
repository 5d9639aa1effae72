"""Every objection that can be made to one build on one target. A build with none fits.

Each check is a generator of reasons; codes are those of the design. Sentences carry both numbers
and leave the build's own version out, so that equal objections to many versions can be folded.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from ..model import (
    Build,
    CudnnRelease,
    GpuModel,
    KnownBad,
    Profiles,
    Reason,
    Request,
    Supply,
    Target,
    TargetGpu,
    Wanted,
)
from .kernels import by_cubin, by_ptx, needs_cuda
from .supply import at_hand, missing, wheels_for
from .versions import has_prefix, is_exact, major, meets, version


@dataclass(frozen=True)
class Question:
    """What is asked, with the profiles made quick to look up. `device` is cuda or cpu."""

    request: Request
    target: Target
    profiles: Profiles
    supply: Supply

    @cached_property
    def gpus(self) -> dict[str, GpuModel]:
        return {g.capability: g for g in self.profiles.gpus}

    @cached_property
    def releases(self) -> dict[tuple[str, str], tuple[CudnnRelease, ...]]:
        """CuDNN releases by CUDA major and platform, newest first."""
        found: dict[tuple[str, str], list[CudnnRelease]] = {}
        for release in self.profiles.cudnn:
            found.setdefault((release.cuda, release.platform), []).append(release)
        return {
            key: tuple(sorted(rows, key=lambda r: version(r.version), reverse=True))
            for key, rows in found.items()
        }

    @cached_property
    def bad(self) -> dict[tuple[str, str], KnownBad]:
        return {(b.package, b.version): b for b in self.profiles.known_bad}

    @cached_property
    def driver_os(self) -> str:
        return self.target.driver_os or ("windows" if self.target.platform.startswith("windows") else "linux")

    @cached_property
    def speaks(self) -> str | None:
        """The CUDA that the target's libcuda speaks natively, None when no driver binds."""
        known = [c for c in (self.target.driver_cuda, self.target.forward_compat) if c]
        if self.target.driver:
            branch = self.branch(self.target.driver)
            known += [b.cuda for b in self.profiles.branches if b.branch == branch]
        return max(known, key=version) if known else None

    def branch(self, driver: str) -> str:
        """The newest known branch that a driver number belongs to ("475.14" belongs to 470)."""
        numbers = [b.branch for b in self.profiles.branches if int(b.branch) <= int(major(driver))]
        return max(numbers, key=int) if numbers else major(driver)

    def pythons(self, build: Build) -> tuple[str, ...]:
        """The Pythons this build may be used with, best first."""
        refused = {u.split(":", 1)[0] for u in build.unresolvable}
        usable = [p for p in build.python if p not in refused]
        if self.request.python:
            return tuple(p for p in usable if p == self.request.python)
        if self.request.pythons:
            return tuple(p for p in self.request.pythons if p in usable)
        return tuple(sorted(usable, key=version, reverse=True))


def objections(asked: Question, wanted: Wanted, build: Build) -> tuple[Reason, ...]:
    """All that speaks against a build, what the user asked for first."""
    reasons = [*_not_wanted(asked, wanted, build), *_source(asked, build), *_interpreter(asked, build)]
    reasons += _platform(asked, build)
    reasons += _supply(asked, build)
    if asked.request.device == "cuda" and build.cuda:
        reasons += _driver(asked, build)
        reasons += _kernels(asked, build)
        reasons += _cudnn(asked, build)
    return tuple(reasons)


def _not_wanted(asked: Question, wanted: Wanted, build: Build) -> Iterator[Reason]:
    if not meets(build.version, wanted.specifier):
        yield Reason(code="not_requested", text=f"{wanted.name}{wanted.specifier} was asked for")
    cuda = asked.request.cuda
    if cuda and not (build.cuda and has_prefix(build.cuda, cuda)):
        built = f"CUDA {build.cuda}" if build.cuda else "the CPU"
        yield Reason(code="not_requested", text=f"CUDA {cuda} was asked for; this is built for {built}")
    asked_so = is_exact(wanted.specifier) if wanted.specifier else False
    if version(build.version).is_prerelease and not (asked.request.pre or asked_so):
        yield Reason(code="prerelease", text="a pre-release; --pre allows them")
    if build.yanked and not asked_so:
        yield Reason(code="yanked", text="withdrawn (yanked) from the index by its makers")
    bad = asked.bad.get((build.framework, build.version))
    if bad and bad.effect == "refuse":
        yield Reason(code="known_bad", text=f"{bad.why} ({bad.source})")


def _source(asked: Question, build: Build) -> Iterator[Reason]:
    index = asked.request.index
    if asked.supply.only_wheels:
        return
    if build.index == "find-links":
        if index != "auto":
            yield Reason(code="index_excluded", text=f"is a wheel at hand; --index {index} was given")
    elif index != "auto" and build.index != _kind_of(index):
        yield Reason(code="index_excluded", text=f"is on the {build.index} index; --index {index} was given")
    elif build.index in asked.supply.unreachable:
        yield Reason(code="index_excluded", text=f"the {build.index} index does not answer")


def _kind_of(index: str) -> str:
    """Which of the two indexes a URL mirrors: the PyTorch index keeps its wheels under /whl."""
    if index in ("pypi", "pytorch"):
        return index
    return "pytorch" if "/whl" in index else "pypi"


def _interpreter(asked: Question, build: Build) -> Iterator[Reason]:
    if asked.pythons(build):
        return
    have = asked.request.python or ", ".join(asked.request.pythons) or "none"
    for line in build.unresolvable:
        python, _, why = line.partition(":")
        if python in (asked.request.python, *asked.request.pythons):
            yield Reason(code="python_unsupported", text=f"not on Python {python}: {why.strip()}")
            return
    served = f"{build.python[0]} to {build.python[-1]}" if build.python else "none"
    yield Reason(code="python_unsupported", text=f"has wheels for Python {served}; asked for {have}")


def _platform(asked: Question, build: Build) -> Iterator[Reason]:
    target = asked.target
    if asked.request.device == "cuda" and not build.cuda:
        yield Reason(
            code="platform_unsupported",
            text=f"is a CPU build on {target.platform}" + _on_index(build),
        )
    on_linux = target.platform.startswith("linux")
    if on_linux and target.glibc and build.glibc and version(target.glibc) < version(build.glibc):
        yield Reason(code="glibc_too_old", text=f"needs glibc {build.glibc}; this machine has {target.glibc}")


def _on_index(build: Build) -> str:
    return {"pypi": " of the default index", "pytorch": " of the PyTorch index"}.get(build.index, "")


def _driver(asked: Question, build: Build) -> Iterator[Reason]:
    target, cuda = asked.target, build.cuda or ""
    if not target.driver:
        return
    floor = floor_of(asked, cuda)
    compat = target.forward_compat
    covered = compat is not None and version(compat) >= version(cuda)
    if floor is None:
        yield Reason(code="driver_too_old", text=f"no driver is known to run CUDA {cuda}")
    elif version(target.driver) < version(floor) and not covered:
        name = major(cuda) if _has_minor_compat(asked, cuda) else cuda
        yield Reason(
            code="driver_too_old",
            text=f"CUDA {name} needs driver {floor}; this machine has {target.driver}",
        )
    for gpu in target.gpus:
        yield from _driver_serves(asked, gpu)


def floor_of(asked: Question, cuda: str) -> str | None:
    """The oldest driver for a CUDA release: by minor-version compatibility where its major has
    it, natively otherwise (CUDA Compatibility document)."""
    for row in asked.profiles.majors:
        if row.major == major(cuda):
            return row.windows if asked.driver_os == "windows" else row.linux
    for release in asked.profiles.cuda:
        if release.cuda == cuda:
            return release.windows if asked.driver_os == "windows" else release.linux
    return None


def _has_minor_compat(asked: Question, cuda: str) -> bool:
    return any(row.major == major(cuda) for row in asked.profiles.majors)


def _driver_serves(asked: Question, gpu: TargetGpu) -> Iterator[Reason]:
    known = asked.gpus.get(gpu.capability)
    driver = asked.target.driver or ""
    if known is None:
        return
    branch = int(asked.branch(driver))
    if known.last_driver and branch > int(known.last_driver):
        yield Reason(
            code="driver_drops_gpu",
            text=f"driver {driver} does not serve {named(gpu)}; branch {known.last_driver} is its last",
        )
    if known.first_driver and int(major(driver)) < int(known.first_driver):
        yield Reason(
            code="driver_too_old",
            text=f"{named(gpu)} needs driver {known.first_driver}; this machine has {driver}",
        )


def named(gpu: TargetGpu) -> str:
    return f"{gpu.name} ({gpu.capability})" if gpu.name else f"a GPU of capability {gpu.capability}"


def _kernels(asked: Question, build: Build) -> Iterator[Reason]:
    for gpu in asked.target.gpus:
        yield from _kernels_for(asked, build, gpu)


def _kernels_for(asked: Question, build: Build, gpu: TargetGpu) -> Iterator[Reason]:
    cuda, built = build.cuda or "", " ".join(build.kernels)
    if not build.kernels:
        yield Reason(code="gpu_too_new", text=f"its kernels are not known; {named(gpu)} is not promised")
        return
    oldest = needs_cuda(gpu.capability)
    if any(by_cubin(k, gpu.capability, asked.gpus) for k in build.kernels):
        if oldest and version(cuda) < version(oldest):
            yield Reason(code="gpu_too_new", text=f"{named(gpu)} needs CUDA {oldest}; built with {cuda}")
        return
    first = asked.gpus[gpu.capability].first_cuda if gpu.capability in asked.gpus else None
    if any(by_ptx(k, gpu.capability) for k in build.kernels):
        # Compiled PTX serves the framework's own kernels only; its CUDA libraries must know the GPU.
        if first and version(cuda) < version(first):
            yield Reason(
                code="gpu_too_new",
                text=f"{named(gpu)} is known from CUDA {first} on; built with {cuda}",
            )
        elif asked.speaks and version(asked.speaks) < version(cuda):
            yield Reason(
                code="ptx_needs_driver",
                text=f"{named(gpu)} needs its PTX compiled, by a driver that speaks CUDA {cuda}; "
                f"driver {asked.target.driver} speaks {asked.speaks}",
            )
        return
    newest = max((k.removesuffix("+PTX").rstrip("af") for k in build.kernels), key=version)
    code = "gpu_too_new" if version(gpu.capability) > version(newest) else "gpu_too_old"
    yield Reason(code=code, text=f"no kernels for {named(gpu)}; built for {built}")


# --- cuDNN -----------------------------------------------------------------------------------


def cudnn_choice(asked: Question, build: Build) -> tuple[CudnnRelease | None, list[Reason]]:
    """The newest cuDNN release that the build allows and the target can use, and if there is
    none, what speaks against the best one. Known-bad releases come last (`avoid`) or never."""
    allowed = [r for r in _releases(asked, build) if not r.yanked]
    refused: list[Reason] = []
    second: CudnnRelease | None = None
    for release in allowed:
        reasons = list(_release_objections(asked, build, release))
        if not reasons:
            if _effect(asked, build, release) != "avoid":
                return release, []
            second = second or release
        refused = refused or reasons
    return second, [] if second else refused


def _releases(asked: Question, build: Build) -> list[CudnnRelease]:
    rows = asked.releases.get((major(build.cuda or ""), build.platform), ())
    return [r for r in rows if build.cudnn and meets(r.version, build.cudnn)]


def _effect(asked: Question, build: Build, release: CudnnRelease) -> str | None:
    bad = asked.bad.get((release.package, release.version))
    scoped = asked.bad.get((f"{build.framework}:{release.package}", release.version))
    return (scoped or bad).effect if (scoped or bad) else None  # type: ignore[union-attr]  # one is set


def _release_objections(asked: Question, build: Build, release: CudnnRelease) -> Iterator[Reason]:
    target = asked.target
    if _effect(asked, build, release) == "refuse":
        yield Reason(code="known_bad", text=f"cuDNN {release.version} is known to be bad")
    for gpu in target.gpus:
        served = any(
            by_cubin(k, gpu.capability, asked.gpus) or by_ptx(k, gpu.capability) for k in release.kernels
        )
        if release.kernels and not served:
            yield Reason(
                code="cudnn_drops_gpu",
                text=f"cuDNN {release.version} has no kernels for {named(gpu)}",
            )
    if target.glibc and release.glibc and version(target.glibc) < version(release.glibc):
        yield Reason(
            code="glibc_too_old",
            text=f"cuDNN {release.version} needs glibc {release.glibc}; this machine has {target.glibc}",
        )
    if asked.supply.only_wheels and build.cudnn and not _carried(build):
        names = [w for p in asked.pythons(build)[:1]
                 for w in wheels_for(asked.supply, release.package, p, build.platform, target.glibc)]  # fmt: skip
        if not any(w.version == release.version for w in names):
            yield Reason(code="not_available", text=f"{release.package} {release.version} is not at hand")


def _carried(build: Build) -> bool:
    """Whether the wheel carries cuDNN inside instead of requiring a package."""
    return not any(r.startswith("nvidia-cudnn") for r in build.requires)


def _cudnn(asked: Question, build: Build) -> Iterator[Reason]:
    if not build.cudnn:
        return
    release, reasons = cudnn_choice(asked, build)
    if release is None:
        yield from reasons
        if not reasons and not is_exact(build.cudnn):
            yield Reason(code="not_available", text=f"no known cuDNN release is {build.cudnn}")


# --- what is at hand -------------------------------------------------------------------------


def _supply(asked: Question, build: Build) -> Iterator[Reason]:
    pythons = asked.pythons(build)
    if not asked.supply.only_wheels or not pythons:
        if build.index == "find-links" and pythons and not at_hand(
            asked.supply, build, pythons[0], asked.target.glibc
        ):  # fmt: skip
            yield Reason(code="not_available", text="the wheel at hand does not fit this platform")
        return
    lacks = [missing(asked.supply, build, p, asked.target.glibc) for p in pythons]
    if all(lacks):
        yield Reason(code="not_available", text=f"{lacks[0]} is not among the wheels given")
