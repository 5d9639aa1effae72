"""Words that all stages share: what a field may hold, and what a stage tells while it works."""

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
"""The frameworks that a requirement of their name asks for. The package onnxruntime is a CPU build that many packages
require, and onnxruntime-gpu goes beside a framework: only --framework plans ONNX Runtime."""
FRAMEWORKS = (*PROJECT_FRAMEWORKS, "onnxruntime")

PLATFORMS = ("linux-x86_64", "linux-aarch64", "windows-x86_64")

NVIDIA_LIBRARY_FAMILIES = ("libcudnn", "libcublas", "libcudart", "libnvrtc", "libnvJitLink")


@dataclass(frozen=True, kw_only=True, slots=True)
class Event:
    """Something a stage tells while it works. `kind`: start, progress, note, warning or done; next, the command
    that a success leads to; summary, a sentence that says the result in place of its details; log, lines to show in any case. `done` and `total` are in `unit` (bytes, packages, stages);
    `files` is how many files are downloaded."""

    kind: str
    stage: str
    text: str
    done: int | None = None
    total: int | None = None
    unit: str | None = None
    files: int | None = None


Emit = Callable[[Event], None]
"""What a stage tells events to."""


def drop_event(_event: Event) -> None:
    """Drop an event: the `emit` of a caller who only wants the value."""
