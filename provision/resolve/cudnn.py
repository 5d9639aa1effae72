"""Which cuDNN goes with a build on a target, and what speaks against those that do not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from ..model import Build, CudnnRelease, Reason
from .kernels import how_they_run, named
from .question import Question
from .supply import wheels_for
from .versions import is_exact, major, meets, version


def cudnn_choice(
    asked: Question, build: Build, partners: Iterable[Build] = ()
) -> tuple[CudnnRelease | None, list[Reason]]:
    """The newest cuDNN release that the build (and its partners) allow and the target can use, and
    if there is none, what speaks against the best one. Known-bad releases come last (`avoid`) or
    never."""
    bounds = [b.cudnn or "" for b in partners]
    allowed = [
        r for r in _releases(asked, build) if not r.yanked and all(meets(r.version, b) for b in bounds)
    ]
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
    """What the build allows. A pin that is not on the index for this platform (a wheel can carry it)
    has the kernels of the same release for another one."""
    wanted, cuda = build.cudnn or "", major(build.cuda or "")
    here = [r for r in asked.releases.get((cuda, build.platform), ()) if meets(r.version, wanted)]
    if here or not wanted or not is_exact(wanted):
        return here if wanted else []
    return [
        replace(r, platform=build.platform, glibc=None)
        for (other, _), rows in asked.releases.items() for r in rows
        if other == cuda and meets(r.version, wanted)
    ]  # fmt: skip


def _effect(asked: Question, build: Build, release: CudnnRelease) -> str | None:
    bad = asked.bad.get((release.package, release.version))
    scoped = asked.bad.get((f"{build.framework}:{release.package}", release.version))
    return (scoped or bad).effect if (scoped or bad) else None  # type: ignore[union-attr]  # one is set


def _release_objections(asked: Question, build: Build, release: CudnnRelease) -> Iterator[Reason]:
    target = asked.target
    if _effect(asked, build, release) == "refuse":
        yield Reason(code="known_bad", text=f"cuDNN {release.version} is known to be bad")
    for gpu in target.gpus:
        if release.kernels and not how_they_run(release.kernels, gpu.capability, asked.tegra):
            yield Reason(
                code="cudnn_drops_gpu",
                text=f"cuDNN {release.version} has no kernels for {named(gpu)}",
            )
    if target.glibc and release.glibc and version(target.glibc) < version(release.glibc):
        yield Reason(
            code="glibc_too_old",
            text=f"cuDNN {release.version} needs glibc {release.glibc}; the system has {target.glibc}",
        )
    if asked.supply.only_wheels and build.cudnn and not carries_cudnn(build):
        names = [w for p in asked.pythons(build)[:1]
                 for w in wheels_for(asked.supply, release.package, p, build.platform, target.glibc)]  # fmt: skip
        if not any(w.version == release.version for w in names):
            yield Reason(code="not_available", text=f"{release.package} {release.version} is not at hand")


def carries_cudnn(build: Build) -> bool:
    """Whether the wheel carries cuDNN inside instead of requiring a package."""
    return not any(r.startswith("nvidia-cudnn") for r in build.requires)


def cudnn_objections(asked: Question, build: Build) -> tuple[Reason, ...]:
    """What speaks against every cuDNN that the build allows; nothing where one fits."""
    if not build.cudnn:
        return ()
    pythons = asked.pythons(build)[:1] if asked.supply.only_wheels else ()
    key = ("cudnn", build.framework, build.cudnn, build.cuda, build.platform, carries_cudnn(build), pythons)
    return asked.once(key, lambda: _objections(asked, build))


def share_cudnn(asked: Question, one: Build, other: Build) -> bool:
    """Whether some cuDNN serves two builds on this target, where both leave it to the plan."""
    if not (one.cudnn and other.cudnn) or is_exact(one.cudnn) or is_exact(other.cudnn):
        return True
    key = ("shared", one.cudnn, other.cudnn, one.cuda)
    nothing = Reason(code="library_conflict", text="")
    return not asked.once(key, lambda: () if cudnn_choice(asked, one, [other])[0] else (nothing,))


def _objections(asked: Question, build: Build) -> Iterator[Reason]:
    release, reasons = cudnn_choice(asked, build)
    if release is None:
        yield from reasons
        if not reasons and not is_exact(build.cudnn or ""):
            yield Reason(code="not_available", text=f"no known cuDNN release is {build.cudnn}")
