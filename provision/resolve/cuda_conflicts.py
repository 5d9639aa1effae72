"""Find locked packages that conflict with the CUDA of the builds. Pure: no I/O.

A wheel of NVIDIA's states its CUDA major in its name (nvidia-cublas-cu11), or its version states it (profiles/toolkits.yaml).
What other packages need is measured (profiles/satellites.yaml).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from ..model import Build, Lock, LockedPackage, Satellite, ToolkitRelease
from .question import Question
from .satellite_fit import SatelliteRows, brings_its_cuda, objection
from .versions import major, meets

_SUFFIX = re.compile(r"-cu(?:da)?(\d\d)\d?$")


@dataclass(frozen=True)
class OtherCuda:
    """A package that does not go with the builds ("kernels 1.2"), why ("which is from CUDA 11, but torch uses CUDA 13"), and
    the named packages that bring it. `cuda` is its CUDA major where that alone decides."""

    package: str
    why: str
    roots: tuple[str, ...]
    cuda: str | None = None


def sentence_of(found: OtherCuda) -> str:
    """What came along, in a sentence."""
    roots = " and ".join(found.roots[:3])
    brings = (
        f"{roots} {'bring' if len(found.roots) > 1 else 'brings'}"
        if roots
        else "the requested packages bring"
    )
    return f"{brings} {found.package}, {found.why}"


@dataclass(frozen=True)
class LockedSet:
    """A lock beside the question that it answers. `builds` are the plan's, `named` the packages that the user or the
    project names, `measured` the rows of a wheel that was measured on this machine."""

    asked: Question
    rows: SatelliteRows
    builds: Sequence[Build]
    lock: Lock
    named: frozenset[str]
    measured: Callable[[str | None], tuple[Satellite, ...]] = lambda _sha256: ()

    def strangers(self) -> Iterator[OtherCuda]:
        """What came along unnamed and does not go with the builds. Nothing where a solver did not say who brings
        what; who does is asked last, as it can take another solve."""
        if self.asked.request.device != "cuda" or not self._majors:
            return
        for package in self.lock.packages:
            if package.name in self.named or package.name in self._planned:
                continue
            mine = self._other_major(package)
            why = self._why(mine) if mine else self._of_measured(package)
            if why and self.lock.required_by:
                yield OtherCuda(f"{package.name} {package.version}", why, self._roots(package.name), mine)

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
        """The CUDA major of a wheel of NVIDIA's where the builds have another one and nothing excuses it."""
        mine = self._cuda_of(package)
        fits = mine is None or mine in self._majors or self._is_excused(package.name, mine)
        return None if fits else mine

    def _why(self, mine: str) -> str:
        build = next(b for b in self.builds if b.cuda)
        return f"which is from CUDA {mine}, but {build.framework} uses CUDA {major(build.cuda or '')}"

    def _of_measured(self, package: LockedPackage) -> str | None:
        release = package.version.partition("+")[0]
        rows = self.rows.rows(package.name, release, self.measured(package.sha256))
        why = objection(self.asked, rows, self.builds, serve_gpus=False)
        return why and f"and {why}"

    def _cuda_of(self, package: LockedPackage) -> str | None:
        """The CUDA major of a wheel of NVIDIA's; None for other packages."""
        if not package.name.startswith(("nvidia-", "cuda-toolkit")):
            return None
        if found := _SUFFIX.search(package.name):
            return found[1]
        if package.name == "cuda-toolkit":
            return major(package.version)
        return cuda_of_part(package, self.asked.profiles.toolkits)

    def _is_excused(self, name: str, cuda: str, seen: frozenset[str] = frozenset()) -> bool:
        """Whether each package that requires a wheel brings one for the plan's CUDA too, has that CUDA in its own
        name because it was named so, or brings its own CUDA."""
        requirers = [r for r in self.lock.required_by.get(name, ()) if r not in seen]
        return bool(requirers) and all(self._excuses(r, name, cuda, seen | {name}) for r in requirers)

    def _excuses(self, requirer: str, name: str, cuda: str, seen: frozenset[str]) -> bool:
        bare = _SUFFIX.sub("", name)
        siblings = (n for n, by in self.lock.required_by.items() if requirer in by and n != name)
        if any(_SUFFIX.sub("", n) == bare for n in siblings):
            return True
        version = next((p.version for p in self.lock.packages if p.name == requirer), "0")
        if any(brings_its_cuda(row) for row in self.rows.rows(requirer, version)):
            return True
        found = _SUFFIX.search(requirer)
        own = found and found[1] == cuda
        return bool(own) and (requirer in self.named or self._is_excused(requirer, cuda, seen))

    def _roots(self, name: str) -> tuple[str, ...]:
        """The named packages that a package comes along with."""
        seen: dict[str, None] = {}
        todo = [name]
        while todo:
            one = todo.pop()
            if one not in seen:
                seen[one] = None
                todo += self.lock.required_by.get(one, ())
        return tuple(n for n in seen if n in self.named)


def cuda_of_part(package: LockedPackage, toolkits: Sequence[ToolkitRelease]) -> str | None:
    """The CUDA major of a part of the toolkit without one in its name: of the releases with this version of it, else
    of all that have the part; None for what is no part, and where that leaves several."""
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
