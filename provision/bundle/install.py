"""Install from a bundle without a network: the lock for this machine, its files, and its Python."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from .. import detect
from ..config.options import Choices, get_cache_dir
from ..config.target import choose_device, described_target, get_minor_version
from ..errors import LockError, UsageError
from ..fleet.classes import is_same_class
from ..lock.accept import check_lock
from ..lock.formats import get_format
from ..model import Bundle, BundlePlan, Emit, Event, Machine, Plan, Target, format_bytes
from ..wheels import pylock
from . import find_newer_glibc, is_archive_for, list_archives, read, refuse_unlisted, verify
from .files import unpack_archive
from .packages import get_bundle_path


def open_bundle(folder: Path, choices: Choices, emit: Emit) -> tuple[Choices, Path]:
    """Return the options for installing a bundle, and the path of its lock for this machine.

    Raises LockError if the bundle is unfinished, or is for another platform, glibc or Python.
    """
    folder = folder.expanduser().resolve()
    if not folder.is_dir():
        raise UsageError(
            f"--bundle {folder}: no such folder",
            hint="check the path; to make one, on a machine with a network: gpuenv bundle DIR",
        )
    manifest = read(folder)
    if not manifest.complete:
        raise LockError(
            f"the bundle {folder} is unfinished: its creation was interrupted",
            hint="run the same `gpuenv bundle` command again on a machine with a network. It continues where it stopped",
        )
    locks = [f for f in manifest.files if "/" not in f.path and not f.path.startswith("README")]
    verify(folder, locks, lambda _bytes: None)  # before one is read
    if manifest.plans:
        lock = choose_lock(folder, manifest, choices, emit)
    else:
        _check_machine(folder, manifest, choices)
        lock = manifest.lock
    laid = dataclasses.replace(choices, bundle=folder, offline=True, manager=manifest.manager, find_links=[])
    return laid, folder / lock


def _check_machine(folder: Path, manifest: Bundle, choices: Choices) -> None:
    """Raise LockError where a bundle for one machine is for another platform, glibc or Python."""
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
    minor = get_minor_version(choices.python)
    if minor and not get_format(manifest.manager).BRINGS_PYTHON and minor != manifest.python:
        raise LockError(
            f"the bundle {folder} is for Python {manifest.python}, not {minor}",
            hint=f"create a bundle for this Python: gpuenv bundle DIR --python {minor}",
        )


def check_files(folder: Path, emit: Emit) -> None:
    """Compare every file to install with the manifest. Raises BuildError that names missing or changed files."""
    manifest = read(folder)
    apart = ("python/", "README")  # uv compares the Python with its hash
    files = [f for f in manifest.files if not f.path.startswith(apart)]
    total = sum(f.size or 0 for f in files)
    emit(Event("start", "build", f"checking {len(files)} files of the bundle, {format_bytes(total)}"))
    checked = 0

    def report(more: int) -> None:
        nonlocal checked
        checked += more
        emit(Event("progress", "build", "checking the bundle", done=checked, total=total, unit="bytes"))

    verify(folder, files, report)
    refuse_unlisted(folder, manifest.files)


def unpack_python(folder: Path, plan: Plan, env: Path, emit: Emit) -> str | None:
    """Return the bundle's Python for a plan, unpacked for an environment, or None without one. Raises BuildError."""
    manifest = read(folder)
    minor = get_minor_version(plan.python)
    fitting = (a for a in list_archives(manifest) if minor and is_archive_for(a, minor, plan.platform))
    if (archive := next(fitting, None)) is None:
        return None
    emit(Event("start", "build", f"unpacking Python {archive.version}"))
    sha256 = next(f.sha256 for f in manifest.files if f.path == archive.path)
    return unpack_archive(folder, archive, sha256 or "", env)


def choose_lock(folder: Path, manifest: Bundle, choices: Choices, emit: Emit) -> str:
    """Return the lock of this machine's class, otherwise the first that fits this machine.

    Raises LockError with the bundle's classes if none fits, MachineError for a broken driver.
    """
    machine, target = None, described_target(choices)
    if target is None:
        machine = detect.detect(detect.MACHINE, cache=get_cache_dir(choices))
        target = machine.target
    device, _ = choose_device(choices, machine, target)
    own = {
        plan.lock: one.id
        for plan in manifest.plans for one in plan.classes
        if one.device == device and is_same_class(one.target, target)
    }  # fmt: skip
    objections = {}
    for plan in sorted(manifest.plans, key=lambda p: p.lock not in own):
        why: str | None
        if plan.target.platform != target.platform:
            why = f"for {plan.target.platform}"
        elif plan.device != device:
            why = f"for {plan.device}, but this machine requires {device}"
        else:
            why = _find_objection(folder, plan, choices, target, machine)
        if why is None:
            text = f"this machine is of host class {own.get(plan.lock)}: installing {plan.lock} of the bundle"
            if plan.lock not in own:
                text = f"no host class of the bundle has machines like this one ({target.words}): installing {plan.lock}, which fits this machine"
            emit(Event("note", "lock", text))
            return plan.lock
        objections[plan.lock] = why
    rows = [f"{', '.join(c.id for c in p.classes)} ({p.lock}): {objections[p.lock]}" for p in manifest.plans]
    raise LockError(
        f"no lock of the bundle {folder} fits this machine ({target.words}). Its classes are {'; '.join(rows)}",
        hint="run `gpuenv detect --json > HOST.json` here, then `gpuenv bundle DIR` with one more --target HOST.json",
    )


def _find_objection(
    folder: Path, plan: BundlePlan, choices: Choices, target: Target, machine: Machine | None
) -> str | None:
    """Return why a plan does not fit a machine, or None. `machine` is this one if it is the target."""
    minor = get_minor_version(choices.python)
    if minor and minor != plan.python:
        return f"for Python {plan.python}, not {minor}"
    lock = pylock.read(folder / plan.lock)
    try:
        check_lock(lock, choices, target, machine)
    except LockError as error:
        return error.message
    newer = find_newer_glibc(map(get_bundle_path, lock.packages), target.glibc)
    return f"{newer} needs a newer glibc than {target.glibc}" if newer else None
