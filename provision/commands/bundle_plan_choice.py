"""Choose the lock of a bundle for several machines that is for this machine."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from .. import detect
from ..bundle.wheel_glibc import find_newer_glibc
from ..errors import LockError
from ..fleet.host_classes import is_same_class
from ..model import Bundle, BundlePlan, Device, Emit, Event, Machine, Target
from ..request import environment_paths as where
from ..request.options import Choices
from ..wheels import pylock
from .bundle_files import get_bundle_path
from .lock_acceptance import check_lock
from .read_request import described_target

_PARTS = ("driver", "gpus", "context", "hardware", "environment")


@dataclasses.dataclass(frozen=True)
class _Question:
    """The machine to install on, and its device. `machine` is None where the options describe another one."""

    folder: Path
    choices: Choices
    target: Target
    device: Device
    machine: Machine | None


def choose_lock(folder: Path, found: Bundle, choices: Choices, emit: Emit) -> str:
    """Return the lock of this machine's class, or else the first that fits this machine. Raises LockError with the
    bundle's classes where none does, MachineError for a broken driver."""
    asked = _read_question(folder, choices)
    objections: dict[str, str] = {}
    for plan in sorted(found.plans, key=lambda p: not _own_class(p, asked)):
        if why := _object_to(plan, asked):
            objections[plan.lock] = why
            continue
        emit(Event(kind="note", stage="lock", text=_describe_choice(plan, asked)))
        return plan.lock
    rows = [f"{_describe_classes(p)} ({p.lock}): {objections[p.lock]}" for p in found.plans]
    raise LockError(
        f"no lock of the bundle {folder} fits this machine ({_describe(asked)}). Its classes are {'; '.join(rows)}",
        hint="run `gpuenv detect --json > HOST.json` here, then `gpuenv bundle DIR` with one more --target HOST.json",
    )


def _read_question(folder: Path, choices: Choices) -> _Question:
    elsewhere = described_target(choices)
    if elsewhere:
        device: Device = "cuda" if elsewhere.driver or elsewhere.gpus else "cpu"
        target, machine = elsewhere, None
    else:
        machine = detect.detect(_PARTS, cache=where.get_cache_dir(choices))
        target = machine.target
        if choices.device == "auto":
            device = detect.judge_device("auto", machine)[0]
    if choices.device != "auto":
        device = "cpu" if choices.device == "cpu" else "cuda"
    return _Question(folder, choices, target, device, machine)


def _own_class(plan: BundlePlan, asked: _Question) -> str | None:
    """Return the id of the class that this machine belongs to, where the plan has it."""
    found = (c.id for c in plan.classes if c.device == asked.device and is_same_class(c.target, asked.target))
    return next(found, None)


def _object_to(plan: BundlePlan, asked: _Question) -> str | None:
    """Return why a plan does not fit this machine, or None."""
    minor = ".".join((asked.choices.python or "").split(".")[:2])
    if plan.target.platform != asked.target.platform:
        return f"for {plan.target.platform}"
    if plan.device != asked.device:
        return f"for {plan.device}, but this machine requires {asked.device}"
    if minor and minor != plan.python:
        return f"for Python {plan.python}, not {minor}"
    lock = pylock.read(asked.folder / plan.lock)
    try:
        check_lock(lock, asked.choices, asked.target, asked.machine)
    except LockError as error:
        return error.message
    newer = find_newer_glibc(map(get_bundle_path, lock.packages), asked.target.glibc)
    return f"{newer} needs a newer glibc than {asked.target.glibc}" if newer else None


def _describe_choice(plan: BundlePlan, asked: _Question) -> str:
    if own := _own_class(plan, asked):
        return f"this machine is of class {own}: installing {plan.lock} of the bundle"
    return f"no class of the bundle has machines like this one ({_describe(asked)}); {plan.lock} fits it: installing that"


def _describe_classes(plan: BundlePlan) -> str:
    return ", ".join(c.id for c in plan.classes)


def _describe(asked: _Question) -> str:
    """Return the machine in words: "linux-x86_64, glibc 2.35, driver 580.95.05, GPU 9.0"."""
    target = asked.target
    gpus = sorted({g.capability for g in target.gpus})
    words = [
        target.platform,
        f"glibc {target.glibc}" if target.glibc else "",
        f"driver {target.driver}" if target.driver else "no driver",
        f"GPU {', '.join(gpus)}" if gpus else "",
    ]
    return ", ".join(filter(None, words))
