"""Values of the search for the newest set of framework and named packages."""

from __future__ import annotations

from dataclasses import dataclass

from provision.model.prebuilt_wheels import PrebuiltWheel
from provision.model.satellites import Satellite


@dataclass(frozen=True, kw_only=True, slots=True)
class PackageRelease:
    """One release of a named package on the target's platform.

    `day` is the day of the upload, in days since 1970-01-01. It is at least one less than that of the next version.
    So a late fix of an old series is older than the following series. `pythons` are the minor versions with a file,
    and `wheels` those with a wheel. `requires` are the requirements on frameworks and on other named packages (PEP
    508, with markers). `compiles` says that a source archive has code to compile, and `compiled` that a wheel has
    compiled code.

    `requires_known` is False if the metadata was not read. `measured` are rows that were measured on this machine.
    `prebuilt` are wheels of a page, each for one minor release of a framework. `sourced` says that there is a source
    archive. A release without a version represents older releases that were not read.
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
    prebuilt: tuple[PrebuiltWheel, ...] = ()
    sourced: bool = True


@dataclass(frozen=True, kw_only=True, slots=True)
class NamedPackage:
    """A package that the user or the project names, with the releases within its bounds, newest first.

    `specifier` are its bounds ("" for none). `named_by` is the origin ("--with vllm", "requirements.txt line 3").
    `complete` says that all releases are here. Otherwise the next release has the day `next_day`. `dated` is False if
    the index has no upload times. A `day` is then the position of the version in their order. `paged` says that a page
    has prebuilt wheels of the package.
    """

    name: str
    specifier: str = ""
    extras: tuple[str, ...] = ()
    named_by: str = ""
    releases: tuple[PackageRelease, ...] = ()
    complete: bool = True
    next_day: int | None = None
    dated: bool = True
    paged: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class PassedOverBuild:
    """A build that fits the target, and was not chosen because it conflicts with a named package."""

    framework: str
    version: str
    cuda: str | None
    index: str
    because: str


@dataclass(frozen=True, kw_only=True, slots=True)
class HeldBackPackage:
    """A named package that is not locked in the newest release within its bounds.

    It has the reason, and the cost of the newest release, or None if no set has that release.
    """

    package: str
    locked: str
    newest: str
    because: str
    alternative: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class PackageSet:
    """A row of the ladder of sets: the best set for one framework version.

    `builds` are "torch 2.14.1 (CUDA 13.0)", and `packages` "vllm 0.33.0". `oldest` is the package that is furthest
    behind its newest release, and `behind` the number of days. `reason` says why there is no set, or why another was
    chosen. It is "" for the chosen set.
    """

    builds: tuple[str, ...]
    python: str | None = None
    packages: tuple[str, ...] = ()
    oldest: str | None = None
    behind: int = 0
    reason: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class JointSolution:
    """The result of the search for the newest set.

    `pins` are the releases of the named packages ("vllm==0.33.0"). `limits` exclude releases of other packages that
    conflict with the builds ("torchao!=0.18.*"). `ladder` has the best set for each framework version, newest first.
    `notes` are sentences on compiled packages with unknown needs, on prebuilt wheels, and on companions that are no
    longer released. `prebuilt` are the wheels of pages that the set takes.
    """

    python: str
    pins: tuple[str, ...] = ()
    limits: tuple[str, ...] = ()
    passed_over: tuple[PassedOverBuild, ...] = ()
    held_back: tuple[HeldBackPackage, ...] = ()
    ladder: tuple[PackageSet, ...] = ()
    notes: tuple[str, ...] = ()
    prebuilt: tuple[PrebuiltWheel, ...] = ()
