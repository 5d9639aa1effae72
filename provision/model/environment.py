"""A built environment, and the packages that were installed into it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from provision.model.drift import EnvironmentChange


@dataclass(frozen=True, kw_only=True, slots=True)
class Environment:
    """A built environment: absolute `path`, its `python` executable, and whether it was `changed`.

    `drift` are its differences from the lock. It is None if they were not compared or if a verdict has them.
    """

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
    """A distribution when it was installed: the sha256 of its RECORD, or None without a RECORD."""

    name: str
    version: str
    record: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class InstallRecord:
    """The packages that a lock installed, written when the environment was built: `.gpuenv/installed.json`."""

    SCHEMA: ClassVar[str] = "gpuenv.installed/1"

    packages: tuple[InstalledPackage, ...] = ()
