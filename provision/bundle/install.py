"""Install from a bundle without a network: the lock for this machine, its files, and its Python."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from .. import detect
from ..config.options import Choices, get_cache_dir
from ..config.target import described_target
from ..errors import LockError, UsageError
from ..fleet.classes import is_same_class
from ..lock.accept import check_lock
from ..lock.formats import locking
from ..model import Bundle, BundlePlan, Device, Emit, Event, Lock, Machine, Plan, Target, format_bytes
from ..model.values import dataclass
from ..wheels import pylock
from . import find_newer_glibc
from .packages import get_bundle_path


def open_bundle(folder: Path, choices: Choices, emit: Emit) -> tuple[Choices, Path]:
    """Return the options for installing a bundle, and the path of its lock for this machine.

    Raises LockError if the bundle is unfinished, or is for another platform, glibc or Python.
    """
    from .. import bundle

    folder = folder.expanduser().resolve()
    if not folder.is_dir():
        raise UsageError(f"--bundle {folder}: no such folder", hint="make one: gpuenv bundle DIR")
    manifest = bundle.read(folder)
    if not manifest.complete:
        raise LockError(
            f"the bundle {folder} is unfinished: its creation was interrupted",
            hint="run the same `gpuenv bundle` command again on a machine with a network. It continues where it stopped",
        )
    if manifest.plans:
        lock = choose_lock(folder, manifest, choices, emit)
    else:
        _check_machine(folder, manifest, choices)
        lock = manifest.lock
    laid = dataclasses.replace(choices, bundle=folder, offline=True, manager=manifest.manager, find_links=[])
    return laid, folder / lock


def _check_machine(folder: Path, manifest: Bundle, choices: Choices) -> None:
    """Raise LockError where a bundle for one machine is for another platform, glibc or Python."""
    from . import find_newer_glibc

    here = detect.detect(()).target
    if manifest.target.platform != here.platform:
        raise LockError(
            f"the bundle {folder} is for {manifest.target.platform}; this machine is {here.platform}",
            hint=f"create a bundle for this platform: gpuenv bundle DIR --platform {here.platform}",
        )
    if newer := find_newer_glibc([f.path for f in manifest.files], here.glibc):
        raise LockError(
            f"{newer} of the bundle {folder} needs a newer glibc than this machine's {here.glibc}",
            hint=f"create a bundle for this glibc: gpuenv bundle DIR --glibc {here.glibc}",
        )
    minor = ".".join((choices.python or "").split(".")[:2])
    if minor and not locking(manifest.manager).BRINGS_PYTHON and minor != manifest.python:
        raise LockError(
            f"the bundle {folder} is for Python {manifest.python}, not {minor}",
            hint=f"create a bundle for this Python: gpuenv bundle DIR --python {minor}",
        )


def check_files(c: Choices, emit: Emit) -> None:
    """Compare every file to install with the manifest. Raises BuildError that names missing or changed files."""
    from .. import bundle

    assert c.bundle

    manifest = bundle.read(c.bundle)
    apart = ("python/", "README")  # uv compares the Python with its hash
    files = [f for f in manifest.files if not f.path.startswith(apart)]
    total = sum(f.size or 0 for f in files)
    emit(
        Event(
            kind="start",
            stage="build",
            text=f"checking {len(files)} files of the bundle, {format_bytes(total)}",
        )
    )
    done = 0

    def report(more: int) -> None:
        nonlocal done
        done += more
        emit(Event(kind="progress", stage="build", text="checking the bundle",
                   done=done, total=total, unit="bytes"))  # fmt: skip

    bundle.verify(c.bundle, files, report)
    bundle.refuse_unlisted(
        c.bundle, "gpuenv", manifest.files
    )  # pip would take a newer wheel that was put there


def unpack_python(c: Choices, plan: Plan, env: Path, emit: Emit) -> str | None:
    """Return the bundle's Python for a plan, unpacked for an environment, or None without one. Raises BuildError."""
    from .. import bundle
    from . import files

    assert c.bundle

    manifest = bundle.read(c.bundle)
    minor = ".".join((plan.python or "").split(".")[:2])
    fitting = (a for a in bundle.archives_of(manifest) if bundle.is_archive_for(a, minor, plan.platform))
    if (archive := next(fitting, None)) is None:
        return None
    emit(Event(kind="start", stage="build", text=f"unpacking Python {archive.version}"))
    sha256 = next(f.sha256 for f in manifest.files if f.path == archive.path)
    return files.install(c.bundle, archive, sha256 or "", env)


def name_origins(env: Path, lock: Lock, c: Choices) -> None:
    """Write the channels into the records of a conda environment, as if its packages came from there."""
    from . import files

    assert c.bundle
    files.name_origins(env, lock.packages, c.bundle)


def use_bundle_files(lock: Lock, c: Choices) -> Lock:
    """Return the lock with the addresses of its conda packages inside the bundle."""
    from . import files

    assert c.bundle
    return dataclasses.replace(lock, packages=files.local_packages(lock.packages, c.bundle))


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
        machine = detect.detect(_PARTS, cache=get_cache_dir(choices))
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
