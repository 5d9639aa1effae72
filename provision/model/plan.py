"""The plan that `resolve` returns, the lock with its files, and what a search says of other solutions."""

import re
from dataclasses import field
from typing import ClassVar

from .machine import Target
from .values import Value
from .words import Device, Manager


class FleetHost(Value):
    """A host by its name, with the target and the device of its plan."""

    name: str
    target: Target
    device: Device


class HostClass(Value):
    """Hosts for which every plan is the same: one platform, glibc, driver, set of capabilities and device.

    `target` has each capability once. `hosts` are names, sorted.
    """

    FORMS: ClassVar = {"id": r"[a-z0-9][a-z0-9._-]{0,63}"}

    id: str
    target: Target
    device: Device
    hosts: tuple[str, ...]


class HeldBackPackage(Value):
    """A named package that is not locked in the newest release within its bounds.

    It has the reason, and the cost of the newest release, or None if no set has that release.
    """

    package: str
    locked: str
    newest: str
    because: str
    alternative: str | None = None


class PackageSet(Value):
    """A solution that was compared.

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


class RejectionReason(Value, kw_only=False):
    """An objection to a build: its code, and a sentence with both numbers."""

    code: str
    text: str


class RejectedBuild(Value):
    """A rejected build, with all objections to it."""

    framework: str
    version: str
    cuda: str | None
    index: str
    reasons: tuple[RejectionReason, ...]


class PlannedBuild(Value):
    """One framework's build in a plan.

    `requirements` are its pins, as PEP 508 strings. `cudnn` is the four-part version, or None for a CPU build.
    `index_urls` are the addresses of its index, without credentials: one if it is locked, otherwise all that are asked.
    They are those of this run, and no file states them.
    """

    FORMS: ClassVar = {
        "framework": r"[a-z]{1,40}", "version": r"[\w.+!-]{1,100}", "cuda": r"\d{1,3}(\.\d{1,3}){0,2}", "cudnn": r"\d{1,4}(\.\d{1,6}){0,4}",
    }  # fmt: skip

    framework: str
    version: str
    cuda: str | None
    index: str
    requirements: tuple[str, ...]
    cudnn: str | None = None
    index_urls: tuple[str, ...] = field(default=(), metadata={"internal": True})

    @property
    def package_name(self) -> str:
        """Return the name of the framework's package on the index, that of the first pin."""
        named = re.match(r"[\w.-]+", self.requirements[0]) if self.requirements else None
        return named[0] if named else self.framework


class Plan(Value):
    """The result of `resolve`. If no build fits, `builds` is empty and `hint` says what would help.

    For a request with named packages, `held_back` are those without their newest release. `sets` are the best sets
    for each framework version. `pip` and `uv` are the commands that install the builds without gpuenv, if they were
    requested (`--pip`).
    """

    SCHEMA = "gpuenv.plan/1"
    FORMS: ClassVar = {"python": r"\d{1,2}\.\d{1,3}(\.\d{1,3})?", "platform": r"\w+-\w+"}

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
    pip: tuple[str, ...] = field(default=(), metadata={"optional": True})
    uv: tuple[str, ...] = field(default=(), metadata={"optional": True})

    @property
    def cuda(self) -> str | None:
        """The CUDA of the first build that has one."""
        return next((b.cuda for b in self.builds if b.cuda), None)


class LockedPackage(Value):
    """One locked file.

    `index` is its index or channel, or None for a local file. `size` is in bytes. `depends` are the requirements of a
    conda package, as in its channel. `url` is the address of a wheel, a source archive, or an `unhashed` source. An
    unhashed source cannot have a hash: a folder ("file:///...", `editable` or not) or a commit ("git+https://...@<40
    hex digits>").
    """

    FORMS: ClassVar = {
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
        """Return whether the package is a conda package, by its file name."""
        return self.url.endswith((".conda", ".tar.bz2"))

    @property
    def stem(self) -> str:
        """The name of a conda package's file without its ending: "numpy-2.3.1-py311h1_0"."""
        return self.url.rpartition("/")[2].removesuffix(".conda").removesuffix(".tar.bz2")

    @property
    def build(self) -> str:
        """The build string of a conda package: "py311h1_0"."""
        return self.stem.rpartition("-")[2]


class ExcludeNewer(Value):
    """A limit on upload times: later files than `cutoff` (UTC) are ignored.

    `span` is the duration in the user's option, or None for a date. `excepted` are the indexes without a limit:
    addresses, "pypi" or "pytorch".
    """

    FORMS: ClassVar = {"cutoff": r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", "span": r"[\w ,]{1,60}"}

    cutoff: str
    span: str | None = None
    excepted: tuple[str, ...] = ()


class Lock(Value):
    """The exact files to install, and the hardware that they were chosen for.

    `inputs` is a digest of the requirements of the project's files when the lock was made, or None without files.
    `exclude_newer` is the limit on upload times of the solve. `held_back` are the named packages without their newest
    release. They are known only just after the solve. `classes`
    are the hosts of a fleet's lock.
    """

    SCHEMA = "gpuenv.lock/1"

    manager: Manager
    target: Target
    plan: Plan
    packages: tuple[LockedPackage, ...]
    inputs: str | None = None
    exclude_newer: ExcludeNewer | None = None
    held_back: tuple[HeldBackPackage, ...] = ()
    classes: tuple[HostClass, ...] = ()
