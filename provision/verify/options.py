"""Options of a verification, and the device that they mean."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import UsageError

if TYPE_CHECKING:
    from ..model import CudnnRelease, Lock, Machine, Target


@dataclass(frozen=True, kw_only=True, slots=True)
class Options:
    """Options of a verification. `timeout` is in seconds, for each child.

    `device` is cpu, all, cuda:N, or None for the lock's device (cuda without a lock). Empty `frameworks` means
    all installed ones. `cache_dir` takes bytecode that must not be written into the target. With `locked` every
    difference from the lock is a failure.
    """

    quick: bool = False
    deep: bool = False
    device: str | None = None
    frameworks: tuple[str, ...] = ()
    timeout: float = 300.0
    strict: bool = False
    locked: bool = False
    cache_dir: Path | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Baseline:
    """The values that an environment is compared with.

    `releases` are the known cuDNN releases. `target` is this machine, for the comparison with the lock's target.
    `read_machine` reads the driver and the GPUs that the environment's reports must agree with.
    """

    lock: Lock | None = None
    releases: Sequence[CudnnRelease] = ()
    target: Target | None = None
    read_machine: Callable[[], Machine] | None = None


def device_of(options: Options, lock: Lock | None) -> tuple[str, int | None]:
    """Return ("cpu" | "cuda" | "cuda:N", N): the requested device, else the lock's.

    Raise UsageError for an unknown device.
    """
    device = options.device or (lock.plan.device if lock else "cuda")
    if device == "cpu":
        return "cpu", None
    if device in ("all", "cuda", "auto"):
        return "cuda", None
    match = re.fullmatch(r"cuda:(\d+)", device)
    if not match:
        raise UsageError(f"unknown device {device!r}", hint="Use cpu, all, or cuda:N. N starts at 0.")
    return device, int(match.group(1))
