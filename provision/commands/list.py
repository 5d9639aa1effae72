"""`gpuenv list`: the environments that gpuenv made on this machine."""

from __future__ import annotations

from dataclasses import dataclass

from ..model import Emit, Listing, drop_event


@dataclass(frozen=True, kw_only=True)
class ListOptions:
    """The options of `list`: none of its own."""


def list(options: ListOptions, emit: Emit = drop_event) -> Listing:  # noqa: A001  # the verb's name
    """Return the environments that gpuenv made on this machine."""
    from ..environment import registry
    from .listed import listed

    return Listing(environments=listed(registry.environments()))
