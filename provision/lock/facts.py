"""Compares uv's answer with the measured rows, and states which releases a query leaves out."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property

from packaging.utils import canonicalize_name

from ..index.wheel_names import applies, cpython_markers
from ..model import PYTORCH_INDEX_PACKAGES, Build, CompanionLimit, LockedPackage, Satellite
from ..model.values import dataclass
from ..resolve.question import Question
from ..resolve.satellites import (
    Conflict,
    LockedSet,
    SatelliteRows,
    companions_of_builds,
    objection,
    series,
    without_kernels,
)
from ..system.versions import meets, version
from .named import requirement
from .pages import ruled_pages


@dataclass(frozen=True)
class Facts:
    """The measured rows of a question's platform. `named` are the requested packages.

    `bounds_of` returns the bounds on frameworks that a release states, by framework, and `measured` the rows of a
    wheel that was measured on this machine, by its sha256.
    """

    question: Question
    named: frozenset[str]
    bounds_of: Callable[[LockedPackage], Mapping[str, str]]
    measured: Callable[[str | None], tuple[Satellite, ...]]

    @cached_property
    def rows(self) -> SatelliteRows:
        """The rows of the platform."""
        return SatelliteRows(self.question.profiles, self.question.target.platform)

    def left_out(self, options: Sequence[Sequence[Build]]) -> list[str]:
        """Return constraints that leave out each measured release that fits none of several sets of builds.

        A series without a fitting release is left out whole, because its other releases are built alike.
        """
        rows, lines = self.rows, []
        for package, versions in rows.packages.items():
            ignored = self._find_ignored(package)
            fits: dict[tuple[int, ...], bool] = {}
            unfit = []
            for release, alternatives in versions.items():
                of = series(release)
                fitting = any(
                    _comes_along(package, builds)
                    or objection(self.question, alternatives, builds, ignore_gpus_of=ignored) is None
                    for builds in options
                )
                fits[of] = fits.get(of, False) or fitting
                if not fitting:
                    unfit.append(release)
            whole = {s for s, fitting in fits.items() if not fitting}
            bounds = [f"!={'.'.join(map(str, s))}.*" for s in sorted(whole)]
            bounds += [f"!={r}" for r in unfit if series(r) not in whole]
            if bounds:
                lines.append(package + ",".join(bounds))
        return lines

    def limits(self, groups: Sequence[Sequence[Build]]) -> list[CompanionLimit]:
        """Return the limits on other packages that hold whichever build of each framework is chosen."""
        return [
            row for row in self.question.profiles.limits
            if any(all(b.framework == row.package and meets(b.version, row.versions) for b in g) for g in groups)
        ]  # fmt: skip

    def has_row(self, package: str, bounds: str) -> bool:
        """Return whether a measured release of a package is within bounds."""
        return any(meets(release, bounds) for release in self.rows.packages.get(package, {}))

    def why_left_out(self, package: str, builds: Sequence[Build], bounds: str = "") -> str | None:
        """Return the objection to the newest measured release within bounds that does not fit builds, or None."""
        rows = self.rows
        within = (r for r in rows.packages.get(package, {}) if meets(r, bounds))
        releases = sorted(within, key=version, reverse=True)
        ignored = self._find_ignored(package)
        reasons = (
            objection(self.question, rows.rows(package, r), builds, ignore_gpus_of=ignored) for r in releases
        )
        return next(filter(None, reasons), None)

    def why_unfit(
        self, package: str, release: str, sha256: str | None, builds: Sequence[Build]
    ) -> str | None:
        """Return why a release does not go with builds, or None."""
        if _comes_along(package, builds):
            return None
        alternatives = self.rows.rows(package, release, self.measured(sha256))
        return objection(self.question, alternatives, builds, ignore_gpus_of=self._find_ignored(package))

    def kernel_notes(self, packages: Sequence[LockedPackage], builds: Sequence[Build]) -> Iterator[str]:
        """Yield notes on named packages that have GPU code, but in no release for the GPUs of the target."""
        for package in packages:
            if package.name in self.named and self._find_ignored(package.name):
                rows = self.rows.rows(package.name, package.version)
                if why := objection(self.question, rows, builds):
                    yield f"{why}. No other release of this package has kernels for these GPUs"

    def conflicts(
        self,
        builds: Sequence[Build],
        packages: Sequence[LockedPackage],
        required_by: Mapping[str, tuple[str, ...]],
    ) -> list[Conflict]:
        """Return the packages of an answer that do not go with its builds, unnamed ones too."""
        found = [
            Conflict(name=p.name, version=p.version, why=why)
            for p in packages
            if p.name in self.named and (why := self._judge_named(p, builds))
        ]
        strangers = LockedSet(
            self.question, self.rows, builds, packages, required_by, self.named, self.measured
        ).strangers()
        for one in strangers:
            if _comes_along(one.name, builds):
                continue
            bare = one.version.partition("+")[0]
            if one.cuda is None and bare not in self.rows.packages.get(one.name, {}):
                file = next(p for p in packages if p.name == one.name)
                if self._bounds_framework(file):
                    continue  # its own metadata decides, not the row of another release
            why = (
                one.why if one.roots else f"the requested packages bring {one.name} {one.version}, {one.why}"
            )
            found.append(dataclasses.replace(one, why=why))
        return found

    def _judge_named(self, package: LockedPackage, builds: Sequence[Build]) -> str | None:
        if package.index is None and any(ruled_pages(self.question.profiles.pages, package.name)):
            return None  # a file of a page is chosen by its label; rows are about the index's files
        release = package.version.partition("+")[0]
        has_row = release in self.rows.packages.get(package.name, {}) or bool(self.measured(package.sha256))
        why = self.why_unfit(package.name, release, package.sha256, builds)
        if why and not has_row and self._bounds_framework(package):
            why = None
        return why or self._judge_companion(package, release, builds, has_row=has_row)

    def _judge_companion(
        self, package: LockedPackage, release: str, builds: Sequence[Build], *, has_row: bool
    ) -> str | None:
        """Return for which framework release a companion without a row is compiled, if the builds have another."""
        if has_row:
            return None
        compiled_for = companions_of_builds(self.question.profiles.builds).get((package.name, f"=={release}"))
        if compiled_for is None or compiled_for in {f"{b.framework} {b.version}" for b in builds}:
            return None
        return f"{package.name} {release} is compiled for {compiled_for}"

    def _bounds_framework(self, package: LockedPackage) -> bool:
        return bool(self.bounds_of(package))

    def _find_ignored(self, package: str) -> Sequence[Question]:
        """Return the targets whose GPUs do not decide: no release of a package has kernels for them."""
        if package not in self.named:
            return self.question.every
        return without_kernels(self.question, self.rows.packages.get(package, {}))


def _comes_along(package: str, builds: Sequence[Build]) -> bool:
    """Return whether a package comes from the index of a labelled build (+cu126), which builds it for each label.

    The rows are of the default index.
    """
    return package in PYTORCH_INDEX_PACKAGES and any(b.local for b in builds)


def stated_bounds(requires: Sequence[str], platform: str, python: str) -> dict[str, str]:
    """Return the bounds in Requires-Dist for a platform and a Python, by package. Those of an extra do not count."""
    markers = cpython_markers(platform, python)
    bounds: dict[str, str] = {}
    for need in filter(None, map(requirement, requires)):
        if applies(need.marker, markers):
            name = str(canonicalize_name(need.name))
            bounds[name] = ",".join(filter(None, (bounds.get(name, ""), str(need.specifier))))
    return bounds
