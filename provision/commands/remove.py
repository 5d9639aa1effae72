"""`gpuenv remove`: environments that gpuenv made."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..model import Emit, Removal, drop_event
from ..model.option import argument, group
from ..request.options import Choices


@dataclass(frozen=True, kw_only=True)
class RemoveOptions:
    """The options of `remove`. It has no use for a cache, which scripts may name all the same."""

    envs: list[Path] = argument(
        metavar="ENV...", help="Environments that gpuenv made.", complete="environments"
    )
    choices: Choices = group(Choices, "cache_dir")


def remove(options: RemoveOptions, emit: Emit = drop_event) -> Removal:
    """Remove environments that gpuenv made; anything else is left alone."""
    from . import removing

    return removing.remove(emit, options.envs)
