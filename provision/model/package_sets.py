"""Sets of packages that go together: releases of the packages named beside a framework, and what a choice gave up."""

from __future__ import annotations

from dataclasses import dataclass

from provision.model.satellites import Satellite


@dataclass(frozen=True, kw_only=True, slots=True)
class PackageRelease:
    """One release of a named package on the target's platform.

    `day` counts days since 1970-01-01: the day of the upload, but at least one less than that of the next version (a
    late fix of an old series is not newer than the series after it). `pythons` are the minor
    versions with a file, `wheels` those of them with a wheel. `requires` are the requirements (PEP 508, markers as
    written) on frameworks and on other named packages. `compiles` says that a source archive has
    code to compile, `compiled` that a wheel has compiled code.
    `requires_known` is False where the metadata was not read. `measured` are rows that were measured on this machine.
    A release without a version stands for older ones of which nothing was read.
    """

    package: str
    version: str
    day: int
    pythons: tuple[str, ...] = ()
    wheels: tuple[str, ...] = ()
    requires: tuple[str, ...] = ()
    compiles: bool = False
    compiled: bool = False
    requires_known: bool = True
    measured: tuple[Satellite, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class NamedPackage:
    """A package that the user or the project names, with the releases that its bounds allow, newest first.

    `specifier` are its bounds ("" for none), `named_by` says who names it ("--with vllm", "requirements.txt line 3").
    `complete` says that all releases are here; else the next one has the day `next_day`. `dated` is False where the
    index states no upload times: a `day` is then the place of the version in their order.
    """

    name: str
    specifier: str = ""
    extras: tuple[str, ...] = ()
    named_by: str = ""
    releases: tuple[PackageRelease, ...] = ()
    complete: bool = True
    next_day: int | None = None
    dated: bool = True


@dataclass(frozen=True, kw_only=True, slots=True)
class PassedOverBuild:
    """A build that fits the target and was not chosen, because a package that was named does not go with it."""

    framework: str
    version: str
    cuda: str | None
    index: str
    because: str


@dataclass(frozen=True, kw_only=True, slots=True)
class HeldBackPackage:
    """A named package that is not locked in the newest release within its bounds: what holds it back, and what that
    release would cost (None where no set has it)."""

    package: str
    locked: str
    newest: str
    because: str
    alternative: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class PackageSet:
    """A row of the ladder of sets: for each framework version the best set with it. `builds` are "torch 2.14.1 (CUDA
    13.0)", `packages` "vllm 0.33.0"; `oldest` is the package that is furthest behind its newest release, `behind`
    by how many days. `reason` says why there is no set, or why another was chosen ("" for the chosen one)."""

    builds: tuple[str, ...]
    python: str | None = None
    packages: tuple[str, ...] = ()
    oldest: str | None = None
    behind: int = 0
    reason: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class JointSolution:
    """What the search for the newest set found. `pins` are the releases of the named packages ("vllm==0.33.0"),
    `limits` keep other packages away from releases that do not go with the builds ("torchao!=0.18.*"). `ladder` has
    the best set for each framework version, newest first. `notes` are sentences on compiled packages of which no
    needs are known, and on companions that are no longer made."""

    python: str
    pins: tuple[str, ...] = ()
    limits: tuple[str, ...] = ()
    passed_over: tuple[PassedOverBuild, ...] = ()
    held_back: tuple[HeldBackPackage, ...] = ()
    ladder: tuple[PackageSet, ...] = ()
    notes: tuple[str, ...] = ()
