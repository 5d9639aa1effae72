"""The wheels that are available, and the cuDNN release of a build."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from ..index.wheel_names import wheel_tags
from ..model import (
    AvailableWheel,
    Build,
    CudnnRelease,
    RejectionReason,
)
from ..system.kernels import find_run_mode
from ..system.versions import is_exact, major, meets, version
from .boards import name_gpu
from .question import Question
from .toolkit import bounds_of


@cache
def supported_tags(python: str, platform: str, glibc: str | None) -> frozenset[str]:
    """Return the wheel tags that CPython `python` supports on `platform` with `glibc` (PEP 600)."""
    return frozenset(map(str, wheel_tags(python, platform, glibc)))


def wheels_for(question: Question, name: str, python: str) -> list[AvailableWheel]:
    """Return the available wheels of a distribution that all targets can use, newest first."""
    usable = supported_tags(python, question.target.platform, question.oldest_glibc)
    wanted = canonicalize_name(name)
    fitting = [w for w in question.available.wheels if w.name == wanted and not usable.isdisjoint(w.tags)]
    return sorted(fitting, key=lambda w: version(w.version), reverse=True)


def is_available(question: Question, build: Build, python: str) -> bool:
    """Return whether the framework wheel of this build is available."""
    wanted = f"{build.version}+{build.local}" if build.local else build.version
    return any(w.version == wanted for w in wheels_for(question, build.package_name, python))


def find_missing(question: Question, build: Build, python: str) -> str | None:
    """Return the first requirement of a build that no available wheel meets, or None."""
    if not is_available(question, build, python):
        return "a wheel of it"  # no version, so that equal objections to many versions can be merged
    for text in build.requires:
        need = Requirement(text)
        wheels = wheels_for(question, need.name, python)
        if not any(meets(w.version, str(need.specifier)) for w in wheels):
            return text
    return None


def local_builds(question: Question, framework: str, known: Iterable[Build]) -> list[Build]:
    """Return builds whose wheels are available with a local label ("+cpu", "+cu126").

    They need no index. The profile row of such a build applies; a CPU build needs no row.
    """
    rows = {(b.version, b.local): b for b in known if b.local}
    pythons_of_build: dict[tuple[str, str], set[str]] = {}
    for wheel in question.available.wheels:
        public, _, local = wheel.version.partition("+")
        if wheel.name == framework and local and (local == "cpu" or (public, local) in rows):
            pythons_of_build.setdefault((public, local), set()).update(_minors(wheel))
    builds = []
    for (public, local), minors in pythons_of_build.items():
        bare = Build(
            framework=framework, version=public, cuda=None, platform=question.target.platform, index="", python=()
        )  # fmt: skip
        row = rows.get((public, local), bare)
        pythons = tuple(sorted(minors, key=version))
        builds.append(row._replace(index="find-links", python=pythons, local=local))
    return builds


def _minors(wheel: AvailableWheel) -> set[str]:
    """Return the Python minor versions in a wheel's tags: 3.12 for cp312-cp312-..."""
    heads = {t.split("-")[0] for t in wheel.tags}
    return {f"{h[2]}.{h[3:]}" for h in heads if h.startswith("cp3") and h[3:].isdigit()}


def cudnn_choice(
    question: Question, build: Build, partners: Iterable[Build] = ()
) -> tuple[CudnnRelease | None, list[RejectionReason]]:
    """Return the newest cuDNN release that the build and its partners allow and the target supports.

    If there is none, also return the objections to the best one. Releases with known defects are last
    (`avoid`) or excluded.
    """
    bounds = [b.cudnn or "" for b in partners]
    allowed = [
        r for r in _releases(question, build) if not r.yanked and all(meets(r.version, b) for b in bounds)
    ]
    refused: list[RejectionReason] = []
    second: CudnnRelease | None = None
    for release in allowed:
        reasons = [r for q in question.per_target for r in _release_objections(q, build, release)]
        if not reasons:
            if _find_effect(question, build, release) != "avoid":
                return release, []
            second = second or release
        refused = refused or reasons
    if second is None and not refused and not is_exact(build.cudnn or ""):
        text = f"gpuenv knows no release of cuDNN {build.cudnn}, which this build requires"
        refused.append(RejectionReason("not_available", text))
    return second, [] if second else refused


def serving_releases(question: Question, build: Build) -> frozenset[str]:
    """Return the cuDNN releases that the build allows and the target supports; none if the build has no
    cuDNN."""
    if not build.cudnn:
        return frozenset()
    releases = (r for r in _releases(question, build) if not r.yanked)
    return frozenset(
        r.version for r in releases if next(_release_objections(question, build, r), None) is None
    )


def _releases(question: Question, build: Build) -> list[CudnnRelease]:
    """Return the releases that the build allows.

    A pinned release may be inside a wheel and missing on the index for this platform. It has the kernels of
    the same release for another platform.
    """
    wanted, cuda = build.cudnn or "", major(build.cuda or "")
    here = [r for r in question.releases.get((cuda, build.platform), ()) if meets(r.version, wanted)]
    if here or not wanted or not is_exact(wanted):
        return here if wanted else []
    return [
        r._replace(platform=build.platform, glibc=None)
        for (other, _), rows in question.releases.items() for r in rows
        if other == cuda and meets(r.version, wanted)
    ]  # fmt: skip


def _find_effect(question: Question, build: Build, release: CudnnRelease) -> str | None:
    bad = question.find_bad(release.package, release.version, build)
    return bad.effect if bad else None


def _release_objections(question: Question, build: Build, release: CudnnRelease) -> Iterator[RejectionReason]:
    target = question.target
    if _find_effect(question, build, release) == "refuse":
        yield RejectionReason("known_bad", f"cuDNN {release.version} has a known defect")
    for gpu in target.gpus:
        if release.kernels and not find_run_mode(release.kernels, gpu.capability, question.profiles.tegra):
            yield RejectionReason(
                "cudnn_drops_gpu",
                f"cuDNN {release.version} has no kernels for {name_gpu(gpu)}",
            )
    if target.glibc and release.glibc and version(target.glibc) < version(release.glibc):
        yield RejectionReason(
            "glibc_too_old",
            f"cuDNN {release.version} needs glibc {release.glibc}; the system has {target.glibc}",
        )
    if question.available.only_wheels and build.cudnn and cudnn_package(build):
        wheels = (w for p in question.pythons(build)[:1] for w in wheels_for(question, release.package, p))
        if not any(w.version == release.version for w in wheels):
            yield RejectionReason("not_available", f"{release.package} {release.version} is not available")


def cudnn_package(build: Build) -> str | None:
    """Return the package of cuDNN that a wheel requires, or None for a wheel that contains it."""
    return next((n for n in bounds_of(build.requires) if n.startswith("nvidia-cudnn")), None)


def cudnn_objections(question: Question, build: Build) -> tuple[RejectionReason, ...]:
    """Return the objections to every cuDNN that the build allows, or nothing if one fits."""
    if not build.cudnn:
        return ()
    pythons = question.pythons(build)[:1] if question.available.only_wheels else ()
    key = ("cudnn", build.framework, build.cudnn, build.cuda, build.platform, cudnn_package(build), pythons)
    if key not in question.known:
        question.known[key] = tuple(cudnn_choice(question, build)[1])
    reasons: tuple[RejectionReason, ...] = question.known[key]
    return reasons


def share_cudnn(question: Question, one: Build, other: Build) -> bool:
    """Return whether a cuDNN supports two builds on this target, if both leave it to the plan."""
    if not (one.cudnn and other.cudnn) or is_exact(one.cudnn) or is_exact(other.cudnn):
        return True
    key = ("shared", one.cudnn, other.cudnn, one.cuda)
    if key not in question.known:
        question.known[key] = cudnn_choice(question, one, [other])[0] is not None
    return bool(question.known[key])
