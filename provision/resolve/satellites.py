"""Compare packages with builds: companions, packages with compiled code, and the CUDA of locked packages.

A wheel from NVIDIA states its CUDA major in its name (nvidia-cublas-cu11), or its version implies it
(profiles/toolkits.yaml). The needs of other packages are measured (profiles/satellites.yaml).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, cached_property

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from ..model import Build, LockedPackage, Profiles, Satellite, TargetGpu, ToolkitRelease
from ..model.values import dataclass
from ..system.kernels import how_they_run
from ..system.versions import has_prefix, is_exact, major, meets, specifiers, version
from .boards import named
from .question import Question


@dataclass(frozen=True)
class SatelliteRows:
    """The profile rows for one platform, by package and version. Rows of one version are alternatives."""

    profiles: Profiles
    platform: str

    @cached_property
    def packages(self) -> Mapping[str, Mapping[str, tuple[Satellite, ...]]]:
        by_package: dict[str, dict[str, tuple[Satellite, ...]]] = {}
        for row in self.profiles.satellites:
            if row.platform == self.platform:
                versions = by_package.setdefault(row.package, {})
                versions[row.version] = (*versions.get(row.version, ()), row)
        return by_package

    def newest_first(self, package: str) -> list[Satellite]:
        """Return the rows of a package, the newest release first."""
        rows = (row for alternatives in self.packages.get(package, {}).values() for row in alternatives)
        return sorted(rows, key=lambda row: version(row.version), reverse=True)

    def rows(self, package: str, release: str, measured: tuple[Satellite, ...] = ()) -> tuple[Satellite, ...]:
        """Return the rows of a release, or none if nothing was measured.

        Its local label does not count. They are those of the profiles, otherwise those `measured` on this machine, otherwise those of its
        minor series.
        """
        versions, release = self.packages.get(package, {}), release.partition("+")[0]
        if release in versions or measured:
            return versions.get(release, measured)
        if not release:  # installed from a folder or a commit
            return ()
        return next((rows for v, rows in versions.items() if series(v) == series(release)), ())


def series(release: str) -> tuple[int, ...]:
    """Return the numbers that releases built alike share: 1.4 of 1.4.2, and 0.0.35 of 0.0.35.post1."""
    numbers = version(release).release
    return numbers[:2] if any(numbers[:2]) else numbers[:3]


def objection(
    question: Question,
    rows: Sequence[Satellite],
    builds: Sequence[Build],
    *,
    ignore_gpus_of: Sequence[Question] = (),
) -> str | None:
    """Return why a release is incompatible with builds on a target of the question, or None.

    The sentence is that of the closest alternative. Its kernels must support every GPU, except those of
    `ignore_gpus_of`.
    """
    targets = question.every
    reasons = [next(_on_all(targets, row, builds, ignore_gpus_of), None) for row in rows]
    return None if not reasons or None in reasons else reasons[-1]


def without_kernels(
    question: Question, versions: Mapping[str, tuple[Satellite, ...]]
) -> tuple[Question, ...]:
    """Return the targets for whose GPUs no release of a package has kernels: there kernels do not decide."""
    rows = [row for rows in versions.values() for row in rows]
    return tuple(q for q in question.every if not any(serves_gpus(q, row) for row in rows))


def _on_all(
    targets: Sequence[Question], row: Satellite, builds: Sequence[Build], ignored: Sequence[Question]
) -> Iterator[str]:
    for one in targets:
        yield from _objections(one, row, builds, not any(one is other for other in ignored))


def serves_gpus(question: Question, row: Satellite) -> bool:
    """Return whether a release has kernels for every GPU of the target, or no kernels at all."""
    return next(_list_unserved(question, row), None) is None


def _list_unserved(question: Question, row: Satellite) -> Iterator[TargetGpu]:
    """Yield the GPUs of the target that a release has no kernels for."""
    for gpu in question.target.gpus if row.kernels else ():
        if how_they_run(row.kernels, gpu.capability, question.tegra) is None:
            yield gpu


def _objections(
    question: Question, row: Satellite, builds: Sequence[Build], serve_gpus: bool
) -> Iterator[str]:
    yield from _abi(row, builds)
    yield from _cuda(question, row, builds)
    if question.request.device != "cuda":
        return
    yield from _cudnn(row, builds)
    if serve_gpus and (gpu := next(_list_unserved(question, row), None)):
        yield f"{_name(row)} has no kernels for {named(gpu)}; built for {' '.join(row.kernels)}"


def _name(row: Satellite) -> str:
    return f"{row.package} {row.version}"


def _abi(row: Satellite, builds: Sequence[Build]) -> Iterator[str]:
    """Yield an objection if a release was compiled for another framework release.

    With a stable ABI it is also compatible with later ones.
    """
    if not (row.abi and row.built_for):
        return
    framework, bounds, floors = _built_for(row.built_for)
    for build in builds:
        if framework != build.framework or meets(build.version, bounds):
            continue
        if row.abi == "stable" and floors and version(build.version) >= max(floors):
            continue
        yield f"{_name(row)} is compiled for {row.built_for}"


@cache
def _built_for(text: str) -> tuple[str, str, tuple[Version, ...]]:
    """Return the framework that a release is compiled for, its bounds, and the versions from which they begin."""
    need = Requirement(text)
    floors = [
        version(s.version.removesuffix(".*")) for s in need.specifier if s.operator in ("==", ">=", "~=")
    ]
    return str(canonicalize_name(need.name)), str(need.specifier), tuple(floors)


def _cuda(question: Question, row: Satellite, builds: Sequence[Build]) -> Iterator[str]:
    cudas = [b for b in builds if b.cuda]
    if row.cuda is None:
        return
    if brings_its_cuda(row) or not cudas:
        floor, driver = question.find_driver_floor(row.cuda), question.target.driver
        on_gpu = question.request.device == "cuda"
        if on_gpu and floor and driver and version(driver) < version(floor):
            yield f"{_name(row)} has CUDA {row.cuda}, which needs driver {floor}; the driver is {driver}"
        return
    for build in cudas:
        same = has_prefix(build.cuda or "", row.cuda if "." in row.cuda else major(row.cuda))
        if not same:
            needed = f"CUDA {row.cuda}" if has_prefix(build.cuda or "", major(row.cuda)) else _needed(row)
            yield f"{_name(row)} needs {needed}; {build.framework} has CUDA {_same_depth(build.cuda or '', row.cuda)}"


def _same_depth(cuda: str, like: str) -> str:
    """Return a CUDA release with as many parts as another: "13.0" like "12" is "13"."""
    return ".".join(cuda.split(".")[: like.count(".") + 1])


def brings_its_cuda(row: Satellite) -> bool:
    """Return whether a release contains its CUDA libraries. Only its name states which CUDA that is."""
    return row.cuda_by == "name" and not row.needs


def _needed(row: Satellite) -> str:
    runtime = [n for n in row.needs if n.startswith("libcudart.")]
    return runtime[0] if runtime else f"CUDA {row.cuda}"


def _cudnn(row: Satellite, builds: Sequence[Build]) -> Iterator[str]:
    for build in builds if row.cudnn else ():
        if build.cudnn and is_exact(build.cudnn):
            pinned = next(s.version for s in specifiers(build.cudnn) if s.operator in ("==", "==="))
            if not meets(pinned, row.cudnn or ""):
                yield f"{_name(row)} needs cuDNN {row.cudnn}; {build.framework} {build.version} has {pinned}"


_SUFFIX = re.compile(r"-cu(?:da)?(\d\d)\d?$")


@dataclass(frozen=True, kw_only=True)
class Conflict:
    """A package of a lock that does not go with the builds: "which is from CUDA 11, but torch uses CUDA 13".

    `roots` are the requested packages that bring it; for a requested package they are empty. `cuda` is its CUDA major if
    that alone decides.
    """

    name: str
    version: str
    why: str
    roots: tuple[str, ...] = ()
    cuda: str | None = None

    @property
    def sentence(self) -> str:
        """The conflict as a sentence."""
        if not self.roots:
            return self.why
        brings = "bring" if len(self.roots) > 1 else "brings"
        return f"{' and '.join(self.roots[:3])} {brings} {self.name} {self.version}, {self.why}"


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

    def strangers(self) -> Iterator[Conflict]:
        """Yield the indirect packages that conflict with the builds.

        Nothing is yielded if the solver did not state who requires what. That is read last, because it can
        take another solve.
        """
        on_gpu = self.question.request.device == "cuda" and bool(self._majors)
        for package in self.packages:
            if package.name in self.named or package.name in self._planned:
                continue
            other_cuda = self._other_major(package) if on_gpu else None
            why = self._why(other_cuda) if other_cuda else self._of_measured(package)
            if why and self.required_by:
                yield Conflict(
                    name=package.name, version=package.version, why=why, roots=self._roots(package.name), cuda=other_cuda
                )  # fmt: skip

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
        rows = self.rows.rows(package.name, package.version, self.measured(package.sha256))
        why = objection(self.question, rows, self.builds, ignore_gpus_of=self.question.every)
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


# --- companions (torchvision) and requirements (triton) of a build ---------------------


def companion_names(builds: Iterable[Build]) -> frozenset[str]:
    """Return the packages that are companions of any of the builds."""
    texts = {c for b in builds for c in b.companions}
    return frozenset(_named(t)[0] for t in texts)


def companions_of_builds(builds: Iterable[Build]) -> dict[tuple[str, str], str]:
    """Return the framework release for which a companion release is compiled, by the companion's name and its pin
    ("==2.5.1")."""
    return {_named(text): f"{b.framework} {b.version}" for b in builds for text in b.companions}


@cache
def _named(text: str) -> tuple[str, str]:
    need = Requirement(text)
    return str(canonicalize_name(need.name)), str(need.specifier)


def lone_companions(build: Build, builds: Iterable[Build]) -> frozenset[str]:
    """Return the companions that other versions of a framework have and this one does not."""
    return companion_names(b for b in builds if b.framework == build.framework) - companion_names([build])
