"""Choose the lock for this machine from a bundle for several machines."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from .. import detect
from ..bundle import find_newer_glibc
from ..config import options as where
from ..config.options import Choices
from ..errors import LockError
from ..fleet.classes import is_same_class
from ..lock.accept import check_lock
from ..lock.context import described_target
from ..model import Bundle, BundlePlan, Device, Emit, Event, Machine, Target
from ..wheels import pylock
from .package_paths_and_download_addresses import get_bundle_path

_PARTS = ("driver", "gpus", "context", "hardware", "environment")


@dataclass(frozen=True)
class _InstallPlace:
    """The machine to install on, and its device. `machine` is None if the options describe another one."""

    folder: Path
    choices: Choices
    target: Target
    device: Device
    machine: Machine | None


def choose_lock(folder: Path, manifest: Bundle, choices: Choices, emit: Emit) -> str:
    """Return the lock of this machine's class, otherwise the first that fits this machine.

    Raises LockError with the bundle's classes if none fits, MachineError for a broken driver.
    """
    place = _read_place(folder, choices)
    objections: dict[str, str] = {}
    for plan in sorted(manifest.plans, key=lambda p: not _own_class(p, place)):
        if why := _object_to(plan, place):
            objections[plan.lock] = why
            continue
        emit(Event(kind="note", stage="lock", text=_describe_choice(plan, place)))
        return plan.lock
    rows = [f"{_describe_classes(p)} ({p.lock}): {objections[p.lock]}" for p in manifest.plans]
    raise LockError(
        f"no lock of the bundle {folder} fits this machine ({_describe(place)}). Its classes are {'; '.join(rows)}",
        hint="run `gpuenv detect --json > HOST.json` here, then `gpuenv bundle DIR` with one more --target HOST.json",
    )


def _read_place(folder: Path, choices: Choices) -> _InstallPlace:
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
    return _InstallPlace(folder, choices, target, device, machine)


def _own_class(plan: BundlePlan, place: _InstallPlace) -> str | None:
    """Return the id of the plan's class that this machine belongs to, or None."""
    ids = (c.id for c in plan.classes if c.device == place.device and is_same_class(c.target, place.target))
    return next(ids, None)


def _object_to(plan: BundlePlan, place: _InstallPlace) -> str | None:
    """Return why a plan does not fit this machine, or None."""
    minor = ".".join((place.choices.python or "").split(".")[:2])
    if plan.target.platform != place.target.platform:
        return f"for {plan.target.platform}"
    if plan.device != place.device:
        return f"for {plan.device}, but this machine requires {place.device}"
    if minor and minor != plan.python:
        return f"for Python {plan.python}, not {minor}"
    lock = pylock.read(place.folder / plan.lock)
    try:
        check_lock(lock, place.choices, place.target, place.machine)
    except LockError as error:
        return error.message
    newer = find_newer_glibc(map(get_bundle_path, lock.packages), place.target.glibc)
    return f"{newer} needs a newer glibc than {place.target.glibc}" if newer else None


def _describe_choice(plan: BundlePlan, place: _InstallPlace) -> str:
    if class_id := _own_class(plan, place):
        return f"this machine is of host class {class_id}: installing {plan.lock} of the bundle"
    return f"no host class of the bundle has machines like this one ({_describe(place)}): installing {plan.lock}, which fits this machine"


def _describe_classes(plan: BundlePlan) -> str:
    return ", ".join(c.id for c in plan.classes)


def _describe(place: _InstallPlace) -> str:
    """Return the machine in words: "linux-x86_64, glibc 2.35, driver 580.95.05, GPU 9.0"."""
    target = place.target
    gpus = sorted({g.capability for g in target.gpus})
    words = [
        target.platform,
        f"glibc {target.glibc}" if target.glibc else "",
        f"driver {target.driver}" if target.driver else "no driver",
        f"GPU {', '.join(gpus)}" if gpus else "",
    ]
    return ", ".join(filter(None, words))
