"""A request for one target, with profiles indexed for look-ups."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import field
from functools import cache, cached_property
from typing import Any

from packaging.requirements import Requirement

from ..model import (
    AvailableWheels,
    Build,
    CudnnRelease,
    GpuModel,
    KnownBadRelease,
    Profiles,
    Request,
    RequestContext,
    Target,
)
from ..model.values import Value
from ..system.versions import allows, major, meets, version


@cache
def _pins(text: str) -> tuple[str, tuple[str, ...]]:
    """Return the name of a requirement and the versions that it pins."""
    need = Requirement(text)
    return need.name, tuple(s.version.removesuffix(".*") for s in need.specifier if s.operator == "==")


class Question(Value, kw_only=False):
    """A request for one target, with profiles indexed for look-ups.

    `others` are the same request for further targets. A build must fit all of them. `known` are answers on
    cuDNN, which builds share.
    """

    request: Request
    target: Target
    profiles: Profiles
    available: AvailableWheels
    others: tuple[Question, ...] = ()
    known: dict[Hashable, Any] = field(default_factory=dict, repr=False, compare=False)

    def replace(self, **parts: Request | Target | AvailableWheels | tuple[Question, ...]) -> Question:
        """Return the question with another request, target or wheels, or with `others`. Look-ups in the profiles are
        kept."""
        if not parts.keys() & {"target", "others"}:
            parts["others"] = tuple(o.replace(**parts) for o in self.others)
        other = dataclasses.replace(self, **({"others": ()} | parts), known={})  # type: ignore[arg-type]  # by name
        for name in ("gpus", "releases", "known_bad"):
            other.__dict__[name] = getattr(self, name)  # cached_property stores its value there
        return other

    @property
    def per_target(self) -> tuple[Question, ...]:
        """The question for each of its targets."""
        return self, *self.others

    @cached_property
    def oldest_glibc(self) -> str | None:
        """The oldest glibc of all targets, or None if none is known."""
        known = [q.target.glibc for q in self.per_target if q.target.glibc]
        return min(known, key=version) if known else None

    @cached_property
    def gpus(self) -> dict[str, GpuModel]:
        return {g.capability: g for g in self.profiles.gpus}

    @cached_property
    def releases(self) -> dict[tuple[str, str], tuple[CudnnRelease, ...]]:
        """The cuDNN releases by CUDA major and platform, newest first."""
        by_platform: dict[tuple[str, str], list[CudnnRelease]] = {}
        for release in self.profiles.cudnn:
            by_platform.setdefault((release.cuda, release.platform), []).append(release)
        return {
            key: tuple(sorted(rows, key=lambda r: version(r.version), reverse=True))
            for key, rows in by_platform.items()
        }

    @cached_property
    def known_bad(self) -> dict[str, dict[str, list[KnownBadRelease]]]:
        rows: dict[str, dict[str, list[KnownBadRelease]]] = {}
        for row in self.profiles.known_bad:
            rows.setdefault(row.package, {}).setdefault(row.version, []).append(row)
        return rows

    def find_bad(self, package: str, version: str, build: Build) -> KnownBadRelease | None:
        """Return the row that makes a release bad on this target beside a build, or None."""
        if not (rows := self.known_bad.get(package, {}).get(version)):
            return None
        gpus = [(g.capability, g.name) for g in self.target.gpus]
        versions = {build.framework: build.version}
        return next((row for row in rows if row.applies(gpus, self.target.driver, versions)), None)

    def list_pinned_bad(self, build: Build) -> Iterator[KnownBadRelease]:
        """Yield the bad releases that a wheel pins: "nvidia-cublas==13.5.1.27.*"."""
        for name, pinned in map(_pins, build.requires):
            if name in self.known_bad:
                yield from filter(None, (self.find_bad(name, v, build) for v in pinned))

    @cached_property
    def driver_os(self) -> str:
        return self.target.driver_os or ("windows" if self.target.platform.startswith("windows") else "linux")

    @cached_property
    def driver_cuda(self) -> str | None:
        """The CUDA that the target's libcuda supports natively, or None without a driver."""
        known = [c for c in (self.target.driver_cuda, self.compat_cuda) if c]
        if self.target.driver:
            known += self._list_driver_cuda(self.target.driver)
        return max(known, key=version) if known else None

    @cached_property
    def compat_cuda(self) -> str | None:
        """The CUDA of a forward-compatibility libcuda, if one may be used. It works only on Linux."""
        return self.target.allowed_compat if self.driver_os == "linux" else None

    def _list_driver_cuda(self, driver: str) -> Iterator[str]:
        """Yield the CUDA releases that a driver supports, by each release's floor, otherwise by the driver's
        branch."""
        windows = self.driver_os == "windows"
        floors = {r.cuda: r.windows if windows else r.linux for r in self.profiles.cuda}
        for cuda, floor in floors.items():
            if floor and version(driver) >= version(floor):
                yield cuda
        for row in self.profiles.branches:
            if not floors.get(row.cuda) and int(row.branch) <= int(major(driver)):
                yield row.cuda

    def find_driver_floor(self, cuda: str) -> str | None:
        """Return the oldest driver for a CUDA release on the target's system."""
        return self.profiles.find_driver_floor(cuda, windows=self.driver_os == "windows")

    def branch(self, driver: str) -> str:
        """Return the newest known branch that a driver version belongs to ("475.14" belongs to 470)."""
        numbers = [b.branch for b in self.profiles.branches if int(b.branch) <= int(major(driver))]
        return max(numbers, key=int) if numbers else major(driver)

    def pythons(self, build: Build) -> tuple[str, ...]:
        """Return the Pythons that this build can be used with, best first."""
        refused = {u.split(":", 1)[0] for u in build.unresolvable}
        bound = self.request.requires_python
        refused |= {
            p for b in self.request.bounds if b.name == build.framework and not meets(build.version, b.specifier)
            for p in b.pythons
        }  # fmt: skip
        usable = [p for p in build.python if p not in refused and (not bound or allows(bound, p))]
        if self.request.python:
            return tuple(p for p in usable if p == self.request.python)
        if self.request.pythons:
            return tuple(p for p in self.request.pythons if p in usable)
        return tuple(sorted(usable, key=version, reverse=True))


def make_question(
    request: Request, profiles: Profiles, available: AvailableWheels, targets: Sequence[Target]
) -> Question:
    """Return the question of a request on all of some targets."""
    question = Question(request, targets[0], profiles, available)
    return question.replace(others=tuple(question.replace(target=other) for other in targets[1:]))


def make_joint_question(context: RequestContext) -> Question:
    """Return the question of a request on all its targets."""
    return make_question(
        context.request, context.profiles, context.available, context.targets or (context.target,)
    )
