"""Compares uv's answer with the measured rows, and states which releases a query leaves out.

A wheel from NVIDIA states its CUDA major in its name (nvidia-cublas-cu11), or its version implies it
(profiles/toolkits.yaml).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, partial

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from ..index.wheel_names import applies, cpython_markers
from ..model import PYTORCH_INDEX_PACKAGES, Build, CompanionLimit, LockedPackage, Satellite, ToolkitRelease
from ..model.values import Value
from ..requirements.quote import try_requirement
from ..resolve.question import Question
from ..resolve.satellites import (
    SatelliteRows,
    brings_its_cuda,
    companions_of_builds,
    objection,
    of_series,
    series,
    without_kernels,
)
from ..system.versions import major, meets, public, version
from .compile import Answer
from .measured import MeasuredRows
from .pages import find_pages


class Conflict(Value):
    """A package of a lock that does not go with the builds: "which is from CUDA 11, but torch uses CUDA 13".

    `roots` are the requested packages that bring it; for a requested package they are empty.
    """

    name: str
    version: str
    why: str
    roots: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        """The conflict as a sentence."""
        if not self.roots:
            return self.why
        brings = "bring" if len(self.roots) > 1 else "brings"
        return f"{' and '.join(self.roots[:3])} {brings} {self.name} {self.version}, {self.why}"


class Compatibility(Value, kw_only=False):
    """The measured rows of a question's platform. `named` are the requested packages.

    `bounds_of` returns the bounds on frameworks that a release states, by framework. `measured` are the rows of wheels that
    were measured on this machine.
    """

    question: Question
    named: frozenset[str]
    bounds_of: Callable[[LockedPackage], Mapping[str, str]]
    measured: MeasuredRows

    @cached_property
    def rows(self) -> SatelliteRows:
        """The rows of the platform."""
        return SatelliteRows(self.question.profiles, self.question.target.platform)

    def exclude_releases(self, options: Sequence[Sequence[Build]]) -> list[str]:
        """Return constraints that leave out each measured release that fits none of several sets of builds.

        A series without a fitting release is left out whole: its other releases are built alike, but for a framework that
        their metadata states.
        """
        lines = []
        for package, versions in self.rows.packages.items():
            fits = partial(self._fits_any, package, options, self._find_ignored(package))
            unfit = [release for release, rows in versions.items() if not fits(rows)]
            left = (r for r, rows in versions.items() if r not in unfit or fits([*map(of_series, rows)]))
            whole = {series(release) for release in unfit} - {series(release) for release in left}
            bounds = [f"!={'.'.join(map(str, s))}.*" for s in sorted(whole)]
            bounds += [f"!={r}" for r in unfit if series(r) not in whole]
            if bounds:
                lines.append(package + ",".join(bounds))
        return lines

    def _fits_any(
        self,
        package: str,
        options: Sequence[Sequence[Build]],
        ignored: Sequence[Question],
        rows: Sequence[Satellite],
    ) -> bool:
        return any(
            _is_from_label_index(package, builds)
            or objection(self.question, rows, builds, ignore_gpus_of=ignored) is None
            for builds in options
        )

    def limits(self, groups: Sequence[Sequence[Build]]) -> list[CompanionLimit]:
        """Return the limits on other packages that hold whichever build of each framework is chosen."""
        return [
            row for row in self.question.profiles.limits
            if any(all(b.framework == row.package and meets(b.version, row.versions) for b in g) for g in groups)
        ]  # fmt: skip

    def has_row(self, package: str, bounds: str) -> bool:
        """Return whether a measured release of a package is within bounds."""
        return any(meets(release, bounds) for release in self.rows.packages.get(package, {}))

    def explain_exclusion(self, package: str, builds: Sequence[Build], bounds: str = "") -> str | None:
        """Return the objection to the newest measured release within bounds that does not fit builds, or None."""
        rows = self.rows
        within = (r for r in rows.packages.get(package, {}) if meets(r, bounds))
        releases = sorted(within, key=version, reverse=True)
        ignored = self._find_ignored(package)
        reasons = (
            objection(self.question, rows.rows(package, r), builds, ignore_gpus_of=ignored) for r in releases
        )
        return next(filter(None, reasons), None)

    def explain_unfit(self, package: LockedPackage, builds: Sequence[Build]) -> str | None:
        """Return why a release does not go with builds, or None."""
        if _is_from_label_index(package.name, builds):
            return None
        rows = self.rows.rows(package.name, package.version, self.measured.rows(package.sha256))
        return objection(self.question, rows, builds, ignore_gpus_of=self._find_ignored(package.name))

    def kernel_notes(self, packages: Sequence[LockedPackage], builds: Sequence[Build]) -> Iterator[str]:
        """Yield notes on named packages that have GPU code, but in no release for the GPUs of the target."""
        for package in packages:
            if package.name in self.named and self._find_ignored(package.name):
                rows = self.rows.rows(package.name, package.version)
                if why := objection(self.question, rows, builds):
                    optional = self._works_without_kernels(package.name)
                    other = "no other release of this package has kernels for these GPUs"
                    yield f"{why}; {'its other functions work' if optional else other}"

    def conflicts(self, builds: Sequence[Build], answer: Answer) -> list[Conflict]:
        """Return the packages of an answer that do not go with its builds, unnamed ones too."""
        found = [
            Conflict(name=p.name, version=p.version, why=why)
            for p in answer.packages
            if p.name in self.named and (why := self._judge_named(p, builds))
        ]
        return [*found, *_Dependencies(self, builds, answer).conflicts()]

    def judge(self, package: LockedPackage, builds: Sequence[Build]) -> str | None:
        """Return what a row says against a package. Where it is of another release, the package's own bounds decide."""
        why = self.explain_unfit(package, builds)
        return None if why and not self._has_own_row(package) and self.bounds_of(package) else why

    def _has_own_row(self, package: LockedPackage) -> bool:
        release = public(package.version)
        return release in self.rows.packages.get(package.name, {}) or bool(self.measured.rows(package.sha256))

    def _judge_named(self, package: LockedPackage, builds: Sequence[Build]) -> str | None:
        if package.index is None and find_pages(package.name, self.question.profiles.pages):
            return None  # a file of a page is chosen by its label; rows are about the index's files
        return self.judge(package, builds) or self._judge_companion(package, builds)

    def _judge_companion(self, package: LockedPackage, builds: Sequence[Build]) -> str | None:
        """Return for which framework release a companion without a row is compiled, if the builds have another."""
        release = public(package.version)
        compiled_for = companions_of_builds(self.question.profiles.builds).get((package.name, f"=={release}"))
        fitting = {None, *(f"{b.framework} {b.version}" for b in builds)}
        if compiled_for in fitting or self._has_own_row(package):
            return None
        return f"{package.name} {release} is compiled for {compiled_for}"

    def _works_without_kernels(self, package: str) -> bool:
        return any(
            row.kernels and row.package == package for row in self.question.profiles.optional_libraries
        )

    def _find_ignored(self, package: str) -> Sequence[Question]:
        """Return the targets whose GPUs do not decide: no release of a package has kernels for them, or needs them."""
        if package not in self.named or self._works_without_kernels(package):
            return self.question.per_target
        return without_kernels(self.question, self.rows.packages.get(package, {}))


def _is_from_label_index(package: str, builds: Sequence[Build]) -> bool:
    """Return whether a package comes from the index of a labelled build (+cu126), which builds it for each label.

    The rows are of the default index.
    """
    return package in PYTORCH_INDEX_PACKAGES and any(b.local for b in builds)


def stated_bounds(requires: Sequence[str], platform: str, python: str) -> dict[str, str]:
    """Return the bounds in Requires-Dist for a platform and a Python, by package. Those of an extra do not count."""
    markers = cpython_markers(platform, python)
    bounds: dict[str, str] = {}
    for need in filter(None, map(try_requirement, requires)):
        if applies(need.marker, markers):
            name = str(canonicalize_name(need.name))
            bounds[name] = ",".join(filter(None, (bounds.get(name, ""), str(need.specifier))))
    return bounds


# --- packages that others bring --------------------------------------------------------------------

_SUFFIX = re.compile(r"-cu(?:da)?(\d\d)\d?$")


class _Dependencies(Value, kw_only=False):
    """The packages of an answer that nobody named. `builds` are those of the plan."""

    compatibility: Compatibility
    builds: Sequence[Build]
    answer: Answer

    def conflicts(self) -> Iterator[Conflict]:
        """Yield the packages that conflict with the builds.

        Nothing is yielded if the solver did not state who requires what. That is read last, because it can
        take another solve.
        """
        on_gpu = self.compatibility.question.request.device == "cuda" and bool(self._majors)
        for package in self.answer.packages:
            name = package.name
            if (
                name in self.compatibility.named
                or name in self._planned
                or _is_from_label_index(name, self.builds)
            ):
                continue
            why = self._other_cuda(package) if on_gpu else None
            if why is None and (unfit := self.compatibility.judge(package, self.builds)):
                why = f"and {unfit}"
            if why and self.answer.required_by:
                roots = self._roots(name)
                why = why if roots else f"the requested packages bring {name} {package.version}, {why}"
                yield Conflict(name=name, version=package.version, why=why, roots=roots)

    @cached_property
    def _majors(self) -> frozenset[str]:
        return frozenset(major(b.cuda) for b in self.builds if b.cuda)

    @cached_property
    def _planned(self) -> frozenset[str]:
        required = (Requirement(r) for b in self.builds for r in b.requires)
        return frozenset(
            {b.package_name for b in self.builds} | {canonicalize_name(r.name) for r in required}
        )

    def _other_cuda(self, package: LockedPackage) -> str | None:
        """Return why a wheel from NVIDIA for another CUDA major than the builds' does not go with them, or None."""
        cuda = self._cuda_of(package)
        if cuda is None or cuda in self._majors or self._is_excused(package.name, cuda):
            return None
        build = next(b for b in self.builds if b.cuda)
        return f"which is from CUDA {cuda}, but {build.framework} uses CUDA {major(build.cuda or '')}"

    def _cuda_of(self, package: LockedPackage) -> str | None:
        """Return the CUDA major of a wheel from NVIDIA, or None for other packages."""
        if not package.name.startswith(("nvidia-", "cuda-toolkit")):
            return None
        if match := _SUFFIX.search(package.name):
            return match[1]
        if package.name == "cuda-toolkit":
            return major(package.version)
        return cuda_of_part(package, self.compatibility.question.profiles.toolkits)

    def _is_excused(self, name: str, cuda: str, seen: frozenset[str] = frozenset()) -> bool:
        """Return whether every package that requires a wheel makes its CUDA acceptable.

        It requires a wheel for the plan's CUDA too, was named with this CUDA in its name, or contains its own
        CUDA.
        """
        requirers = [r for r in self.answer.required_by.get(name, ()) if r not in seen]
        return bool(requirers) and all(self._excuses(r, name, cuda, seen | {name}) for r in requirers)

    def _excuses(self, requirer: str, name: str, cuda: str, seen: frozenset[str]) -> bool:
        bare = _SUFFIX.sub("", name)
        siblings = (n for n, by in self.answer.required_by.items() if requirer in by and n != name)
        if any(_SUFFIX.sub("", n) == bare for n in siblings):
            return True
        version = self.answer.versions.get(requirer, "")
        if any(brings_its_cuda(row) for row in self.compatibility.rows.rows(requirer, version)):
            return True
        match = _SUFFIX.search(requirer)
        is_named_for_it = match and match[1] == cuda
        return bool(is_named_for_it) and (
            requirer in self.compatibility.named or self._is_excused(requirer, cuda, seen)
        )

    def _roots(self, name: str) -> tuple[str, ...]:
        """Return the named packages that require a package, directly or not."""
        seen: dict[str, None] = {}
        todo = [name]
        while todo:
            one = todo.pop()
            if one not in seen:
                seen[one] = None
                todo += self.answer.required_by.get(one, ())
        return tuple(n for n in seen if n in self.compatibility.named)


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
