"""Hosts of a fleet, and the classes of hosts with the same answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from provision.model.machine import Target
from provision.model.shared_words import Device


@dataclass(frozen=True, kw_only=True, slots=True)
class FleetHost:
    """A host by its name, with the target and the device of its plan."""

    name: str
    target: Target
    device: Device


@dataclass(frozen=True, kw_only=True, slots=True)
class HostClass:
    """Hosts for which every plan is the same: one platform, glibc, driver, set of capabilities and device.

    `target` has each capability once. `hosts` are names, sorted.
    """

    FORMS: ClassVar[dict[str, str]] = {"id": r"[a-z0-9][a-z0-9._-]{0,63}"}

    id: str
    target: Target
    device: Device
    hosts: tuple[str, ...]
