"""The questions of the page in classes: what no build of a framework tells apart has one answer.

A question is a system, a glibc, a driver, a capability, a Python and a framework. Drivers between two floors are one
interval. A pair of interval and capability belongs to the class of all pairs that draw the same objections. The objections
are those of `provision.resolve`; texts have {driver}, {speaks} and {gpu} in place of what is given.
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
    CudaMajor,
    CudaRelease,
    FrameworkRequest,
    Profiles,
    Request,
    Target,
    TargetGpu,
)
from provision.resolve.available_wheels import serving_releases
from provision.resolve.build_choice import candidates
from provision.resolve.objections import objections
from provision.resolve.question import Question
from provision.resolve.versions import is_exact, major, version

GPU = "\x01"
"""The name of the GPU while texts are made: no board has it."""

_UNIQUE = "7701"
"""The last number of a version that stands for an interval: no text of a profile has it."""


@dataclass(frozen=True)
class System:
    """A platform with the operating system of its driver. `key` names it in the page."""

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
    """Drivers from `floor` (None: no driver is given, "": older than the first floor) up to the next floor.
    `driver` stands for all of them."""

    floor: str | None
    driver: str | None
    speaks: str | None


@dataclass(frozen=True)
class Glibc:
    """The glibc releases from `floor` up to the next one that a build or a cuDNN asks for. `version` stands for them."""

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

    def request(self, python: str | None) -> Request:
        """What `gpuenv resolve --framework NAME [--python X]` asks for another machine."""
        return Request(frameworks=(FrameworkRequest(name=self.framework),), device="cuda", python=python)

    def target(self, interval: Interval, capability: str, glibc: Glibc) -> Target:
        """The target that stands for a class."""
        return Target(
            platform=self.system.platform, driver_os=self.system.driver_os, driver=interval.driver,
            glibc=glibc.version, gpus=(TargetGpu(capability=capability, name=GPU),),
        )  # fmt: skip

    @cached_property
    def intervals(self) -> tuple[Interval, ...]:
        """No driver, then every interval from the oldest on."""
        every = [
            Interval(floor, *self._stand_in(floor)) for floor in ("", *driver_floors(self.known, self.system))
        ]
        return (Interval(None, None, None), *every)

    def _stand_in(self, floor: str) -> tuple[str, str | None]:
        driver = f"{floor or '1'}.0.{_UNIQUE}" if "." not in floor else f"{floor}.{_UNIQUE}"
        asked = self._blank.changed(
            target=Target(platform="", driver_os=self.system.driver_os, driver=driver)
        )
        return driver, asked.speaks

    @cached_property
    def glibcs(self) -> tuple[Glibc, ...]:
        """The intervals of glibc, newest first; one without a version on other systems."""
        if not self.system.platform.startswith("linux"):
            return (Glibc(None, None),)
        return tuple(Glibc(floor, f"{floor}.{_UNIQUE}") for floor in reversed(glibc_floors(self.known)))

    @property
    def capabilities(self) -> tuple[str, ...]:
        """Tegra parts have ARM processors only."""
        arm = self.system.platform == "linux-aarch64"
        return tuple(g.capability for g in self.known.gpus if arm or not g.tegra)

    def class_of(self, interval: Interval, capability: str) -> Hashable:
        """What tells a pair from others: all objections to all builds in their order, which of them are newer than the
        driver's CUDA, and the cuDNN releases that serve the GPU."""
        asked = self._blank.changed(target=self.target(interval, capability, Glibc(None, None)))
        texts: dict[str, str] = {}
        rows = []
        for build in candidates(asked, self._wanted):
            reasons = objections(asked, self._wanted, build)
            for text in {r.text for r in reasons} - texts.keys():
                texts[text] = self.plain(text, interval)
            newer = bool(asked.speaks and build.cuda and version(build.cuda) > version(asked.speaks))
            rows.append((build.version, build.cuda, build.index, newer, *(texts[r.text] for r in reasons)))
        return interval.driver is None, tuple(rows), tuple(self._cudnn(asked, capability))

    def _cudnn(self, question: Question, capability: str) -> Iterator[frozenset[str]]:
        for build in self._loose:
            key = (capability, build.cudnn, build.cuda)
            if key not in self._serving:
                self._serving[key] = serving_releases(question, build)
            yield self._serving[key]

    @cached_property
    def _loose(self) -> tuple[Build, ...]:
        """One build for each CUDA major and cuDNN that its wheel leaves to the plan."""
        found = {
            (b.cudnn, major(b.cuda)): b
            for b in self.known.builds
            if b.framework == self.framework and b.platform == self.system.platform and b.cuda and b.cudnn
            and not is_exact(b.cudnn)
        }  # fmt: skip
        return tuple(found.values())

    def plain(
        self, text: str, interval: Interval, glibc: Glibc | None = None, python: str | None = None
    ) -> str:
        """A text with the names of what was given in place of the values that stand for a class."""
        text = re.sub(re.escape(GPU) + r" \([\d.]+\)", "{gpu}", text)
        if interval.driver:
            text = text.replace(
                f"{interval.driver} supports CUDA {interval.speaks}", "{driver} supports CUDA {speaks}"
            )
            text = text.replace(interval.driver, "{driver}")
        if glibc and glibc.version:
            text = text.replace(glibc.version, "{glibc}")
        if python:
            text = re.sub(rf"; asked for {re.escape(python)}$", "; asked for {python}", text)
        return text


def driver_floors(known: Profiles, system: System) -> list[str]:
    """The driver versions at which some answer can change, oldest first."""
    windows = system.driver_os == "windows"
    rows: tuple[CudaMajor | CudaRelease, ...] = (*known.majors, *known.cuda)
    found = {r.windows if windows else r.linux for r in rows}
    found |= {g.first_driver for g in known.gpus} | {b.branch for b in known.branches}
    return sorted((f for f in found if f), key=version)


def glibc_floors(known: Profiles) -> list[str]:
    """What builds and cuDNN ask for of glibc, oldest first, from manylinux2014 on: older systems have no NVIDIA
    driver that any GPU of today runs with."""
    asked = {b.glibc for b in known.builds if b.cuda} | {c.glibc for c in known.cudnn}
    return sorted((g for g in asked if g and version(g) >= Version("2.17")), key=version)
