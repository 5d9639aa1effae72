"""`gpuenv detect`: describe this machine."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..model import Emit, Machine, drop_event
from ..system.trust import settle_cache


@dataclass(frozen=True, kw_only=True)
class DetectOptions:
    """The options of `detect`: none."""


def detect(options: DetectOptions, emit: Emit = drop_event) -> Machine:
    """Return this machine: driver, GPUs, Pythons, CUDA and cuDNN files."""
    import platformdirs

    from .. import detect as stage

    return stage.detect(cache=settle_cache(Path(platformdirs.user_cache_dir("gpuenv"))))
