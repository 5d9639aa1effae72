"""Compare packages with builds: companions, and packages whose needs were measured (profiles/satellites.yaml).

Some packages have extras that bring their CUDA libraries: those that nothing requests are added.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, cached_property

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from ..model import Build, Plan, Profiles, RequestContext, Satellite, TargetGpu, requirement_name
from ..model.values import Value
from ..system.kernels import find_run_mode
from ..system.versions import exact, has_prefix, major, meets, public, version
from .boards import name_gpu
from .question import Question
from .toolkit import bounds_of


class SatelliteRows(Value, kw_only=False):
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
        versions, release = self.packages.get(package, {}), public(release)
        if release in versions or measured:
            return versions.get(release, measured)
        if not release:  # installed from a folder or a commit
            return ()
        alike = next((rows for v, rows in versions.items() if series(v) == series(release)), ())
        return tuple(map(of_series, alike))


def series(release: str) -> tuple[int, ...]:
    """Return the numbers that releases built alike share: 1.4 of 1.4.2, and 0.0.35 of 0.0.35.post1."""
    numbers = version(release).release
    return numbers[:2] if any(numbers[:2]) else numbers[:3]


def of_series(row: Satellite) -> Satellite:
    """Return a row as it speaks for the releases of its series. A framework that its metadata states is its own."""
    return row if row.built_by else row._replace(abi=None)


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
    served = [(q, not any(q is other for other in ignore_gpus_of)) for q in question.per_target]
    reasons = [
        next((why for q, serve_gpus in served for why in _objections(q, row, builds, serve_gpus)), None)
        for row in rows
    ]
    return None if not reasons or None in reasons else reasons[-1]


def without_kernels(
    question: Question, versions: Mapping[str, tuple[Satellite, ...]]
) -> tuple[Question, ...]:
    """Return the targets for whose GPUs no release of a package has kernels: there kernels do not decide."""
    rows = [row for rows in versions.values() for row in rows]
    return tuple(q for q in question.per_target if not any(serves_gpus(q, row) for row in rows))


def serves_gpus(question: Question, row: Satellite) -> bool:
    """Return whether a release has kernels for every GPU of the target, or no kernels at all."""
    return next(_list_unserved(question, row), None) is None


def _list_unserved(question: Question, row: Satellite) -> Iterator[TargetGpu]:
    """Yield the GPUs of the target that a release has no kernels for."""
    for gpu in question.target.gpus if row.kernels else ():
        if find_run_mode(row.kernels, gpu.capability, question.profiles.tegra) is None:
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
        yield f"{_name(row)} has no kernels for {name_gpu(gpu)}; built for {' '.join(row.kernels)}"


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
            needed = (
                f"CUDA {row.cuda}" if has_prefix(build.cuda or "", major(row.cuda)) else _describe_needed(row)
            )
            yield f"{_name(row)} needs {needed}; {build.framework} has CUDA {_same_depth(build.cuda or '', row.cuda)}"


def _same_depth(cuda: str, like: str) -> str:
    """Return a CUDA release with as many parts as another: "13.0" like "12" is "13"."""
    return ".".join(cuda.split(".")[: like.count(".") + 1])


def brings_its_cuda(row: Satellite) -> bool:
    """Return whether a release contains its CUDA libraries. Only its name states which CUDA that is."""
    return row.cuda_by == "name" and not row.needs


def _describe_needed(row: Satellite) -> str:
    runtime = [n for n in row.needs if n.startswith("libcudart.")]
    return runtime[0] if runtime else f"CUDA {row.cuda}"


def _cudnn(row: Satellite, builds: Sequence[Build]) -> Iterator[str]:
    for build in builds if row.cudnn else ():
        pinned = exact(build.cudnn or "")
        if pinned and not meets(pinned, row.cudnn or ""):
            yield f"{_name(row)} needs cuDNN {row.cudnn}; {build.framework} {build.version} has {pinned}"


# --- companions (torchvision) and requirements (triton) of a build ---------------------


def companion_names(builds: Iterable[Build]) -> frozenset[str]:
    """Return the packages that are companions of any of the builds."""
    return frozenset(name for b in builds for name in bounds_of(b.companions))


def companions_of_builds(builds: Iterable[Build]) -> dict[tuple[str, str], str]:
    """Return the framework release for which a companion release is compiled, by the companion's name and its pin
    ("==2.5.1")."""
    return {pin: f"{b.framework} {b.version}" for b in builds for pin in bounds_of(b.companions).items()}


def lone_companions(build: Build, builds: Iterable[Build]) -> frozenset[str]:
    """Return the companions that other versions of a framework have and this one does not."""
    return companion_names(b for b in builds if b.framework == build.framework) - companion_names([build])


# --- the extras (`name[cuda12]`) that bring the CUDA libraries of a package ---------------


def add_extras(plan: Plan, context: RequestContext, pins: Sequence[str] = ()) -> Plan:
    """Return the plan with the missing extras of its packages and of the project's packages, and one note on
    them. `pins` are the releases that a solve chose."""
    if not plan.builds or plan.device != "cuda" or plan.manager != "venv":
        return plan  # the CPU needs no CUDA libraries, and conda packages require their own
    rows = SatelliteRows(context.profiles, plan.platform)
    lines = [n for n in context.requirements.lines if n.name and not (n.local or n.vcs or n.editable)]
    wanted = [n.text for n in lines if not n.constraint]
    needs = group_needs((*plan.packages, *wanted), (*(n.text for n in lines if n.constraint), *pins))
    for line in lines:
        if line.override:
            needs.pop(line.package, None)
    found = {name: missing_extras(name, theirs, rows, plan.cuda_major) for name, theirs in needs.items()}
    missing = {name: extras for name, extras in found.items() if extras}
    if not missing:
        return plan
    packages = [_add_extras(text, missing) for text in plan.packages]
    have = {requirement_name(text) for text in packages}
    packages += [
        _format_extras(text, missing)
        for text in wanted
        if (name := requirement_name(text)) in missing and name not in have
    ]
    added = ", ".join(f"{name}[{','.join(extras)}]" for name, extras in missing.items())
    note = f"{added}: adding these extras, because they install required CUDA libraries"
    return dataclasses.replace(plan, packages=tuple(dict.fromkeys(packages)), notes=(*plan.notes, note))


def group_needs(requirements: Iterable[str], constraints: Iterable[str] = ()) -> dict[str, list[Requirement]]:
    """Return all requirements and constraints on each required package, without those with an address."""
    needs: dict[str, list[Requirement]] = {}
    for need in map(Requirement, requirements):
        if not need.url:
            needs.setdefault(canonicalize_name(need.name), []).append(need)
    for need in map(Requirement, constraints):
        if not need.url and canonicalize_name(need.name) in needs:
            needs[canonicalize_name(need.name)].append(need)
    return needs


def missing_extras(
    name: str, needs: Sequence[Requirement], rows: SatelliteRows, cuda_major: str | None
) -> tuple[str, ...]:
    """Return the extras that the newest release of a package within its bounds needs and nothing requests.

    Return none if that release is for another CUDA than the plan's, because its libraries would be too.
    """
    bounds = ",".join(sorted({str(s) for need in needs for s in need.specifier}))
    newest = next((row for row in rows.newest_first(name) if _is_allowed(bounds, row)), None)
    if newest is None or cuda_major is None or major(newest.cuda or "") != cuda_major:
        return ()
    have = {extra for need in needs for extra in need.extras}
    return tuple(e for e in newest.extras if e not in have)


def _is_allowed(bounds: str, row: Satellite) -> bool:
    """Return whether bounds allow a release of a row's series. A row is the newest release of its series."""
    pinned = exact(bounds)
    return meets(row.version, bounds) or (pinned is not None and series(pinned) == series(row.version))


def _add_extras(text: str, missing: Mapping[str, tuple[str, ...]]) -> str:
    need = Requirement(text)
    extras = missing.get(canonicalize_name(need.name), ())
    if need.url or not extras:
        return text
    need.extras |= set(extras)
    return str(need)


def _format_extras(text: str, missing: Mapping[str, tuple[str, ...]]) -> str:
    """Return the extras of a requirement as a line without bounds and hashes. Those stay in their own line."""
    need = Requirement(text)
    marker = f"; {need.marker}" if need.marker else ""
    return f"{need.name}[{','.join(missing[canonicalize_name(need.name)])}]{marker}"
