"""Find the prebuilt wheel that fits a build, and the builds that have one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..index.prebuilt_names import find_cxx11, serves
from ..model import Build, PackageRelease, PrebuiltWheel
from .question import Question
from .versions import version

_MOST_BUILDS = 6
"""Minor releases of a framework that a sentence names at most."""


def find_prebuilt(
    question: Question, release: PackageRelease, builds: Sequence[Build], python: str
) -> PrebuiltWheel | None:
    """Return the prebuilt wheel of a release for builds and a Python, None where its page has none."""
    of_python = [w for w in release.prebuilt if python in w.pythons]
    for build in builds if of_python else ():
        cxx11 = find_cxx11(question.profiles.abis, build, question.target.platform)
        if fitting := [w for w in of_python if serves(w.built_for, build, cxx11)]:
            return max(fitting, key=lambda w: w.url)
    return None


def no_prebuilt(release: PackageRelease, builds: Sequence[Build], python: str) -> str:
    """Return the sentence for a release whose page has no wheel for builds."""
    cudas = " and ".join(
        f"{b.framework} {b.version}{f' with CUDA {b.cuda}' if b.cuda else ''}" for b in builds
    )
    return f"{release.package} {release.version} has no wheel for {cudas} and Python {python}"


def lacks_prebuilt(release: PackageRelease, builds: Sequence[Build], python: str) -> str:
    """Return the same without versions of builds, so that equal reasons against several builds are shown once."""
    names = " and ".join(b.framework for b in builds)
    return f"{release.package} {release.version} has no wheel for this build of {names} and Python {python}"


def builds_with_wheel(question: Question, releases: Iterable[PackageRelease], python: str) -> str:
    """Return the minor releases of a framework that have a build with a wheel, newest first: "torch 2.9, 2.8"."""
    paged = [r for r in releases if r.prebuilt]
    wanted = {w.name for w in question.request.frameworks}
    minors = {
        (b.framework, version(b.version).release[:2])
        for b in question.profiles.builds
        if b.framework in wanted and b.platform == question.target.platform and python in b.python
        and any(find_prebuilt(question, r, (b,), python) for r in paged)
    }  # fmt: skip
    newest = sorted(minors, key=lambda m: m[1], reverse=True)
    return " and ".join(
        f"{name} {', '.join(['.'.join(map(str, m)) for f, m in newest if f == name][:_MOST_BUILDS])}"
        for name in dict.fromkeys(framework for framework, _ in newest)
    )
