"""What is decided: the plan and the lock."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from provision.model.fleet_classes import HostClass
from provision.model.machine import Target
from provision.model.package_sets import HeldBackPackage, PackageSet
from provision.model.shared_words import Device, Manager


@dataclass(frozen=True, kw_only=True, slots=True)
class RejectionReason:
    """An objection: a code of the design's list and a sentence with both numbers in it."""

    code: str
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class RejectedBuild:
    """A build that was not taken, and every objection to it."""

    framework: str
    version: str
    cuda: str | None
    index: str
    reasons: tuple[RejectionReason, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedBuild:
    """One framework's build. `requirements` are the pins that make it, as PEP 508 strings;
    `cudnn` is the four-part version (None for a CPU build)."""

    FORMS: ClassVar[dict[str, str]] = {
        "framework": r"[a-z]{1,40}", "version": r"[\w.+!-]{1,100}", "cuda": r"\d{1,3}(\.\d{1,3}){0,2}", "cudnn": r"\d{1,4}(\.\d{1,6}){0,4}",
    }  # fmt: skip

    framework: str
    version: str
    cuda: str | None
    index: str
    requirements: tuple[str, ...]
    cudnn: str | None = None

    @property
    def package_name(self) -> str:
        """The name of the framework's package on the index: that of the first pin."""
        named = re.match(r"[\w.-]+", self.requirements[0]) if self.requirements else None
        return named[0] if named else self.framework


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """What resolve decided, or why nothing fits (`builds` empty, `hint` what would help). Where packages are named,
    `held_back` are those that do not get their newest release, and `sets` the best set for each framework version."""

    SCHEMA: ClassVar[str] = "gpuenv.plan/1"
    FORMS: ClassVar[dict[str, str]] = {"python": r"\d{1,2}\.\d{1,3}(\.\d{1,3})?", "platform": r"\w+-\w+"}

    builds: tuple[PlannedBuild, ...]
    python: str | None
    platform: str
    manager: Manager
    device: Device
    target: Target
    cuda_major: str | None = None
    cudnn: str | None = None
    packages: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    hint: str | None = None
    rejected: tuple[RejectedBuild, ...] = ()
    held_back: tuple[HeldBackPackage, ...] = ()
    sets: tuple[PackageSet, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class LockedPackage:
    """One locked file. `index` is the index or channel it came from (None for a local file), `size`
    bytes. `depends` is what a conda package requires, as its channel has it.

    `url` is a wheel's or a source archive's, or of what cannot carry a hash (`unhashed`): a folder
    ("file:///...", `editable` or not) or a commit ("git+https://...@<40 hex digits>")."""

    FORMS: ClassVar[dict[str, str]] = {
        "name": r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,200}", "version": r"[\w.+!~-]{0,200}", "url": r"[^\x00-\x20\x7f]+", "index": r"[^\x00-\x1f\x7f]*",
        "sha256": r"[0-9a-fA-F]{64}", "md5": r"[0-9a-fA-F]{32}",
    }  # fmt: skip

    name: str
    version: str
    url: str
    sha256: str | None = None
    md5: str | None = None
    index: str | None = None
    size: int | None = None
    unhashed: bool = False
    editable: bool = False
    depends: tuple[str, ...] = ()

    @property
    def is_conda(self) -> bool:
        """Whether a conda channel has it, by the name of its file."""
        return self.url.endswith((".conda", ".tar.bz2"))


@dataclass(frozen=True, kw_only=True, slots=True)
class ExcludeNewer:
    """A limit on uploads: none after `cutoff` (UTC) is taken. `span` is the duration that gave it (None for a
    date), `excepted` are the indexes without a limit: addresses, "pypi" or "pytorch"."""

    FORMS: ClassVar[dict[str, str]] = {"cutoff": r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", "span": r"[\w ,]{1,60}"}

    cutoff: str
    span: str | None = None
    excepted: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Lock:
    """Exactly what is installed, and the hardware it was made for. `inputs` is a digest of what the
    project's files asked for when the lock was made (None without files). `exclude_newer` is the limit on
    uploads that it was solved with. `held_back` are the named packages that are not locked in their newest release,
    known only where the lock was just made, as are the packages that each package is `required_by`. `classes` are the hosts that a lock of a fleet is for."""

    SCHEMA: ClassVar[str] = "gpuenv.lock/1"

    manager: Manager
    target: Target
    plan: Plan
    packages: tuple[LockedPackage, ...]
    inputs: str | None = None
    exclude_newer: ExcludeNewer | None = None
    held_back: tuple[HeldBackPackage, ...] = ()
    classes: tuple[HostClass, ...] = ()
    required_by: Mapping[str, tuple[str, ...]] = field(
        default_factory=dict, compare=False, metadata={"internal": True}
    )
