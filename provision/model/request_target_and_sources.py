"""A request with its target and the sources of its packages, the input of the stages."""

from __future__ import annotations

from dataclasses import dataclass

from provision.model.catalog import Profiles
from provision.model.machine import Machine, Target
from provision.model.requests import AvailableWheels, PackageSources, ProjectRequirements, Request

_NO_DEMANDS = ProjectRequirements()


@dataclass(frozen=True, kw_only=True, slots=True)
class TransitiveFrameworks:
    """The frameworks that a project's packages require.

    `unread` are packages that were left out, because only their build can state their requirements.
    """

    frameworks: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class RequestContext:
    """The input of the stages: the request, its target, and the sources of packages.

    `machine` is None if the options describe another machine. `reason` says why the request has its device.
    `pythons_known` says that the request names the Pythons of this machine. `reading` forbids a solve to run source
    code.

    `targets` are those of several machines for one plan. `target` is then their oldest driver and glibc with all
    their GPUs.
    """

    request: Request
    target: Target
    machine: Machine | None
    profiles: Profiles
    supply: AvailableWheels
    sources: PackageSources
    reason: str = ""
    pythons_known: bool = False
    demands: ProjectRequirements = _NO_DEMANDS
    channels: tuple[str, ...] = ()
    reading: bool = False
    targets: tuple[Target, ...] = ()
