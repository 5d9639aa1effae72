"""Group the questions of the page into classes with the same answer.

A question is a system, a glibc, a driver, a capability, a Python and a framework. Drivers between two floors
are one interval. A class has all pairs of interval and capability with the same objections. The objections
are those of `provision.resolve`. Texts have {driver}, {speaks} and {gpu} instead of values.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from functools import cached_property

from packaging.version import Version

from provision.model import (
    AvailableWheels,
    Build,
    FrameworkRequest,
    Profiles,
    Request,
    Target,
    TargetGpu,
)
from provision.resolve.available import serving_releases
from provision.resolve.choice import candidates
from provision.resolve.objections import objections
from provision.resolve.question import Question
from provision.system.versions import is_exact, major, version

GPU = "\x01"
"""The name of the GPU while texts are made: no board has it."""

_UNIQUE = "7701"
"""The last number of a version that stands for an interval: no text of a profile has it."""


@dataclass(frozen=True)
class System:
    """A platform with the operating system of its driver. `key` is its name in the page."""

    key: str
    title: str
    platform: str
    driver_os: str


SYSTEMS = (
    System("linux", "Linux, x86-64", "linux-x86_64", "linux"),
    System("arm", "Linux, ARM64", "linux-aarch64", "linux"),
    System("windows", "Windows", "windows-x86_64", "windows"),
    System("wsl", "Windows, in WSL 2", "linux-x86_64", "windows"),
)


@dataclass(frozen=True)
class Interval:
    """The drivers from `floor` to the next floor, represented by `driver`.

    A `floor` of None means no driver, and "" means older than the first floor.
    """

    floor: str | None
    driver: str | None
    speaks: str | None


@dataclass(frozen=True)
class Glibc:
    """The glibc releases from `floor` to the next one that a build or cuDNN needs, represented by `version`."""

    floor: str | None
    version: str | None


@dataclass(frozen=True)
class Questions:
    """All questions on one framework and one system."""

    known: Profiles
    system: System
    framework: str
    _serving: dict[Hashable, frozenset[str]] = field(default_factory=dict, repr=False, compare=False)

    @cached_property
    def _blank(self) -> Question:
        target = Target(platform=self.system.platform, driver_os=self.system.driver_os)
        return Question(self.request(None), target, self.known, AvailableWheels())

    @cached_property
    def _wanted(self) -> FrameworkRequest:
        return FrameworkRequest(name=self.framework)

    @cached_property
    def indexes(self) -> dict[str, str]:
        """The addresses of the indexes that the profiles name."""
        return {row.index: row.url for row in self.known.indexes}

    def request(self, python: str | None) -> Request:
        """Return the request of `gpuenv resolve --framework NAME [--python X]` for another machine."""
        return Request(frameworks=(FrameworkRequest(name=self.framework),), device="cuda", python=python)

    def target(self, interval: Interval, capability: str, glibc: Glibc) -> Target:
        """Return the target that represents a class."""
        return Target(
            platform=self.system.platform, driver_os=self.system.driver_os, driver=interval.driver,
            glibc=glibc.version, gpus=(TargetGpu(capability=capability, name=GPU),),
        )  # fmt: skip

    @cached_property
    def intervals(self) -> tuple[Interval, ...]:
        """No driver, then every interval, oldest first."""
        every = [
            Interval(floor, *self._stand_in(floor)) for floor in ("", *driver_floors(self.known, self.system))
        ]
        return (Interval(None, None, None), *every)

    def _stand_in(self, floor: str) -> tuple[str, str | None]:
        driver = f"{floor or '1'}.0.{_UNIQUE}" if "." not in floor else f"{floor}.{_UNIQUE}"
        question = self._blank.replace(
            target=Target(platform="", driver_os=self.system.driver_os, driver=driver)
        )
        return driver, question.driver_cuda

    @cached_property
    def glibcs(self) -> tuple[Glibc, ...]:
        """The intervals of glibc, newest first. Other systems have one without a version."""
        if not self.system.platform.startswith("linux"):
            return (Glibc(None, None),)
        return tuple(Glibc(floor, f"{floor}.{_UNIQUE}") for floor in reversed(glibc_floors(self.known)))

    @property
    def capabilities(self) -> tuple[str, ...]:
        """The capabilities of GPUs for the system. Tegra parts have only ARM processors."""
        arm = self.system.platform == "linux-aarch64"
        return tuple(g.capability for g in self.known.gpus if arm or not g.tegra)

    def class_of(self, interval: Interval, capability: str) -> Hashable:
        """Return what distinguishes a pair of interval and capability from others.

        That is all objections to all builds in order, which builds are newer than the driver's CUDA, and the
        cuDNN releases that support the GPU.
        """
        question = self._blank.replace(target=self.target(interval, capability, Glibc(None, None)))
        texts: dict[str, str] = {}
        rows = []
        for build in candidates(question, self._wanted):
            reasons = objections(question, self._wanted, build)
            for text in {r.text for r in reasons} - texts.keys():
                texts[text] = self.plain(text, interval)
            newer = bool(
                question.driver_cuda and build.cuda and version(build.cuda) > version(question.driver_cuda)
            )
            rows.append((build.version, build.cuda, build.index, newer, *(texts[r.text] for r in reasons)))
        return interval.driver is None, tuple(rows), tuple(self._cudnn(question, capability))

    def _cudnn(self, question: Question, capability: str) -> Iterator[frozenset[str]]:
        for build in self._loose:
            key = (capability, build.cudnn, build.cuda)
            if key not in self._serving:
                self._serving[key] = serving_releases(question, build)
            yield self._serving[key]

    @cached_property
    def _loose(self) -> tuple[Build, ...]:
        """One build for each CUDA major and cuDNN that its wheel leaves to the plan."""
        builds = {
            (b.cudnn, major(b.cuda)): b
            for b in self.known.builds
            if b.framework == self.framework and b.platform == self.system.platform and b.cuda and b.cudnn
            and not is_exact(b.cudnn)
        }  # fmt: skip
        return tuple(builds.values())

    def plain(
        self, text: str, interval: Interval, glibc: Glibc | None = None, python: str | None = None
    ) -> str:
        """Return a text with placeholders instead of the values that represent a class."""
        text = re.sub(re.escape(GPU) + r" \([\d.]+\)", "{gpu}", text)
        if interval.driver:
            text = text.replace(
                f"{interval.driver} supports CUDA {interval.speaks}", "{driver} supports CUDA {speaks}"
            )
            text = text.replace(interval.driver, "{driver}")
        if glibc and glibc.version:
            text = text.replace(glibc.version, "{glibc}")
        if python:
            text = re.sub(rf"; requested: {re.escape(python)}$", "; requested: {python}", text)
        return text


def driver_floors(known: Profiles, system: System) -> list[str]:
    """Return the driver versions at which an answer can change, oldest first."""
    windows = system.driver_os == "windows"
    floors = known.list_driver_floors(windows=windows) | {b.branch for b in known.branches}
    return sorted(floors | {g.first_driver for g in known.gpus if g.first_driver}, key=version)


def glibc_floors(known: Profiles) -> list[str]:
    """Return the glibc versions that builds and cuDNN need, oldest first, from manylinux2014 on.

    Older systems have no NVIDIA driver for any current GPU.
    """
    floors = {b.glibc for b in known.builds if b.cuda} | {c.glibc for c in known.cudnn}
    return sorted((g for g in floors if g and version(g) >= Version("2.17")), key=version)
