"""A bundle: the manifest of a folder with everything that machines without a network need."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from provision.model.fleet_classes import HostClass
from provision.model.fleet_plans_and_locks import UnservedHosts
from provision.model.machine import Target
from provision.model.shared_words import Device, Manager


@dataclass(frozen=True, kw_only=True, slots=True)
class BundleFile:
    """A file of a bundle: its path in it (with /), its bytes and hash (None until the file exists)."""

    path: str
    size: int | None = None
    sha256: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class BundlePython:
    """An archive of a standalone Python: uv's name for it ("cpython-3.12.16-linux-x86_64-gnu"), version and path."""

    FORMS: ClassVar[dict[str, str]] = {
        "key": r"cpython-[0-9]+\.[0-9]+\.[0-9]+[a-z0-9.]*-(linux|windows)-[a-z0-9_]+-(gnu|none)",
        "version": r"[0-9]+\.[0-9]+\.[0-9]+[a-z0-9.]*",
    }

    key: str
    version: str
    path: str


@dataclass(frozen=True, kw_only=True, slots=True)
class BundlePlan:
    """One plan of a bundle for several machines: the file of its lock and the classes of hosts that it serves. The
    other fields are those of Bundle, for this plan."""

    lock: str
    classes: tuple[HostClass, ...]
    target: Target
    device: Device
    frameworks: tuple[str, ...]
    python: str | None
    archive: BundlePython | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Bundle:
    """The manifest of a bundle for machines without a network: gpuenv-bundle.json.

    `lock` is the file name of its lock, and `gpuenv` the version that made it. `asked` is a digest of its options.
    `complete` says whether every file exists. `python` is the minor version of the environment, and `archive` the
    Python in the bundle.

    A bundle for several machines has `plans`, most hosts first; its other fields describe the first plan. `unserved`
    are the hosts that no build fits.
    """

    SCHEMA: ClassVar[str] = "gpuenv.bundle/1"

    gpuenv: str
    manager: Manager
    lock: str
    target: Target
    device: Device
    frameworks: tuple[str, ...]
    python: str | None
    asked: str
    complete: bool = False
    archive: BundlePython | None = None
    files: tuple[BundleFile, ...] = ()
    notes: tuple[str, ...] = ()
    plans: tuple[BundlePlan, ...] = ()
    unserved: tuple[UnservedHosts, ...] = ()
