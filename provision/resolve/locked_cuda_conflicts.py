"""Find locked packages that conflict with the CUDA of the builds. Pure: no I/O.

A wheel from NVIDIA states its CUDA major in its name (nvidia-cublas-cu11), or its version implies it
(profiles/toolkits.yaml). The needs of other packages are measured (profiles/satellites.yaml).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from ..model import Build, LockedPackage, Satellite, ToolkitRelease
from .question import Question
from .satellite_fit import SatelliteRows, brings_its_cuda, objection, targets_of
from .versions import major, meets

_SUFFIX = re.compile(r"-cu(?:da)?(\d\d)\d?$")


@dataclass(frozen=True)
class OtherCuda:
    """A package that conflicts with the builds, the reason, and the named packages that bring it.

    The package has the form "kernels 1.2" and the reason "which is from CUDA 11, but torch uses CUDA 13".
    `cuda` is its CUDA major if that alone decides.
    """

    package: str
    why: str
    roots: tuple[str, ...]
    cuda: str | None = None


def sentence_of(conflict: OtherCuda) -> str:
    """Return the conflict as a sentence."""
    roots = " and ".join(conflict.roots[:3])
    brings = (
        f"{roots} {'bring' if len(conflict.roots) > 1 else 'brings'}"
        if roots
        else "the requested packages bring"
    )
    return f"{brings} {conflict.package}, {conflict.why}"


@dataclass(frozen=True)
class LockedSet:
    """The packages of a lock with the question that they answer, and the packages that each is `required_by`.

    `builds` are those of the plan. `named` are the packages that the user or the project names. `measured`
    returns the rows of a wheel that was measured on this machine.
    """

    question: Question
    rows: SatelliteRows
    builds: Sequence[Build]
    packages: Sequence[LockedPackage]
    required_by: Mapping[str, Sequence[str]]
    named: frozenset[str]
    measured: Callable[[str | None], tuple[Satellite, ...]] = lambda _sha256: ()

    def strangers(self) -> Iterator[OtherCuda]:
        """Yield the indirect packages that conflict with the builds.

        Nothing is yielded if the solver did not state who requires what. That is read last, because it can
        take another solve.
        """
        if self.question.request.device != "cuda" or not self._majors:
            return
        for package in self.packages:
            if package.name in self.named or package.name in self._planned:
                continue
            other_cuda = self._other_major(package)
            why = self._why(other_cuda) if other_cuda else self._of_measured(package)
            if why and self.required_by:
                yield OtherCuda(
                    f"{package.name} {package.version}", why, self._roots(package.name), other_cuda
                )

    @cached_property
    def _majors(self) -> frozenset[str]:
        return frozenset(major(b.cuda) for b in self.builds if b.cuda)

    @cached_property
    def _planned(self) -> frozenset[str]:
        required = (Requirement(r) for b in self.builds for r in b.requires)
        return frozenset(
            {b.package_name for b in self.builds} | {canonicalize_name(r.name) for r in required}
        )

    def _other_major(self, package: LockedPackage) -> str | None:
        """Return the CUDA major of a wheel from NVIDIA if the builds have another one without an exception."""
        cuda = self._cuda_of(package)
        fits = cuda is None or cuda in self._majors or self._is_excused(package.name, cuda)
        return None if fits else cuda

    def _why(self, cuda: str) -> str:
        build = next(b for b in self.builds if b.cuda)
        return f"which is from CUDA {cuda}, but {build.framework} uses CUDA {major(build.cuda or '')}"

    def _of_measured(self, package: LockedPackage) -> str | None:
        release = package.version.partition("+")[0]
        rows = self.rows.rows(package.name, release, self.measured(package.sha256))
        why = objection(self.question, rows, self.builds, ignore_gpus_of=targets_of(self.question))
        return why and f"and {why}"

    def _cuda_of(self, package: LockedPackage) -> str | None:
        """Return the CUDA major of a wheel from NVIDIA, or None for other packages."""
        if not package.name.startswith(("nvidia-", "cuda-toolkit")):
            return None
        if match := _SUFFIX.search(package.name):
            return match[1]
        if package.name == "cuda-toolkit":
            return major(package.version)
        return cuda_of_part(package, self.question.profiles.toolkits)

    def _is_excused(self, name: str, cuda: str, seen: frozenset[str] = frozenset()) -> bool:
        """Return whether every package that requires a wheel makes its CUDA acceptable.

        It requires a wheel for the plan's CUDA too, was named with this CUDA in its name, or contains its own
        CUDA.
        """
        requirers = [r for r in self.required_by.get(name, ()) if r not in seen]
        return bool(requirers) and all(self._excuses(r, name, cuda, seen | {name}) for r in requirers)

    def _excuses(self, requirer: str, name: str, cuda: str, seen: frozenset[str]) -> bool:
        bare = _SUFFIX.sub("", name)
        siblings = (n for n, by in self.required_by.items() if requirer in by and n != name)
        if any(_SUFFIX.sub("", n) == bare for n in siblings):
            return True
        version = next((p.version for p in self.packages if p.name == requirer), "0")
        if any(brings_its_cuda(row) for row in self.rows.rows(requirer, version)):
            return True
        match = _SUFFIX.search(requirer)
        is_named_for_it = match and match[1] == cuda
        return bool(is_named_for_it) and (requirer in self.named or self._is_excused(requirer, cuda, seen))

    def _roots(self, name: str) -> tuple[str, ...]:
        """Return the named packages that require a package, directly or not."""
        seen: dict[str, None] = {}
        todo = [name]
        while todo:
            one = todo.pop()
            if one not in seen:
                seen[one] = None
                todo += self.required_by.get(one, ())
        return tuple(n for n in seen if n in self.named)


def cuda_of_part(package: LockedPackage, toolkits: Sequence[ToolkitRelease]) -> str | None:
    """Return the CUDA major of a toolkit part whose name has none.

    It is that of the releases with this version of the part, otherwise of all with the part. Return None for
    other packages, or if several majors remain.
    """
    of_name: set[str] = set()
    of_version: set[str] = set()
    part = re.compile(rf"{re.escape(package.name)}(?![A-Za-z0-9._-])")
    for release in toolkits:
        for text in (t for p in release.parts for t in p.split(" ")[1:] if part.match(t)):
            of_name.add(major(release.version))
            if meets(package.version, str(Requirement(text).specifier)):
                of_version.add(major(release.version))
    majors = of_version or of_name
    return majors.pop() if len(majors) == 1 else None
