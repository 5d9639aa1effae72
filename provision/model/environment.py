"""What stands in a place: an environment, and what its lock put into it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from provision.model.drift import EnvironmentChange


@dataclass(frozen=True, kw_only=True, slots=True)
class Environment:
    """A built environment: absolute `path`, its `python` executable, whether it was `changed`. `drift` is how it
    differs from its lock, where it was compared and no verdict tells."""

    SCHEMA: ClassVar[str] = "gpuenv.environment/1"

    path: str
    manager: str | None
    python: str
    python_version: str | None = None
    made_by_gpuenv: bool = False
    changed: bool = False
    drift: tuple[EnvironmentChange, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class InstalledPackage:
    """A distribution as it was installed: the sha256 of its RECORD (None where it has none)."""

    name: str
    version: str
    record: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class InstallRecord:
    """What an environment's lock put into it, at the moment it was built: `.gpuenv/installed.json`."""

    SCHEMA: ClassVar[str] = "gpuenv.installed/1"

    packages: tuple[InstalledPackage, ...] = ()
