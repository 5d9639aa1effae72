"""Install an environment from a bundle, without a network (`create --bundle`).

Modules that read bundles are imported only if there is one, because every `create` imports this module.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

from .. import detect
from ..config.options import Choices
from ..errors import LockError, UsageError
from ..lock.formats import locking
from ..model import Bundle, Emit, Event, Lock, Plan, format_bytes


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
        from .bundle_plan_choice import choose_lock

        lock = choose_lock(folder, manifest, choices, emit)
    else:
        _check_machine(folder, manifest, choices)
        lock = manifest.lock
    laid = dataclasses.replace(choices, bundle=folder, offline=True, manager=manifest.manager, find_links=[])
    return laid, folder / lock


def _check_machine(folder: Path, manifest: Bundle, choices: Choices) -> None:
    """Raise LockError where a bundle for one machine is for another platform, glibc or Python."""
    from ..bundle import find_newer_glibc

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
    if c.bundle is None:
        return
    from .. import bundle

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
    if c.bundle is None:
        return None
    from .. import bundle
    from ..bundle import files

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
    if c.bundle:
        from ..bundle import files

        files.name_origins(env, lock.packages, c.bundle)


def use_bundle_files(lock: Lock, c: Choices) -> Lock:
    """Return the lock with the addresses of its conda packages inside the bundle."""
    if c.bundle is None:
        return lock
    from ..bundle import files

    return dataclasses.replace(lock, packages=files.local_packages(lock.packages, c.bundle))
