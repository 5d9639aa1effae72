"""`gpuenv detect`: describe this machine."""

from __future__ import annotations

from dataclasses import dataclass

from ..model import Emit, Machine, drop_event


@dataclass(frozen=True, kw_only=True)
class DetectOptions:
    """The options of `detect`: none."""


def detect(options: DetectOptions, emit: Emit = drop_event) -> Machine:
    """Return this machine: driver, GPUs, Pythons, CUDA and cuDNN files."""
    from .. import detect as stage

    return stage.detect()
