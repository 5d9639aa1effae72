"""Words and callbacks that all stages share: devices, statuses, frameworks, events."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

Device = Literal["auto", "cuda", "cpu"]

Manager = Literal["venv", "conda"]

MANAGERS = get_args(Manager)

Status = Literal["pass", "warn", "fail", "skip"]

Confidence = Literal["certain", "likely", "possible"]

Outcome = Literal["works", "cpu", "unproven", "wrong", "fails"]

PROJECT_FRAMEWORKS = ("torch", "tensorflow", "jax")
"""The frameworks that a requirement of this name requests.

The package onnxruntime is a CPU build that many packages require. onnxruntime-gpu can be installed beside a
framework. So only --framework plans ONNX Runtime.
"""
FRAMEWORKS = (*PROJECT_FRAMEWORKS, "onnxruntime")

PLATFORMS = ("linux-x86_64", "linux-aarch64", "windows-x86_64")

NVIDIA_LIBRARY_FAMILIES = ("libcudnn", "libcublas", "libcudart", "libnvrtc", "libnvJitLink")


@dataclass(frozen=True, kw_only=True, slots=True)
class Event:
    """A message of a stage while it works.

    `kind` is start, progress, note, warning or done. Three more kinds are next (the command that follows a success),
    summary (a sentence in place of the result's details) and log (lines to show in any case). `done` and `total` are
    in `unit` (bytes, packages, stages). `files` is the number of files to download.
    """

    kind: str
    stage: str
    text: str
    done: int | None = None
    total: int | None = None
    unit: str | None = None
    files: int | None = None


Emit = Callable[[Event], None]
"""A callback that receives events."""


def drop_event(_event: Event) -> None:
    """Drop an event: the `emit` of a caller who only wants the value."""
