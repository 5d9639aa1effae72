"""Install an environment from a bundle, without a network (`create --bundle`).

Modules that read bundles are imported only if there is one, because every `create` imports this module.
"""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path, PurePosixPath

from packaging.utils import parse_wheel_filename

from .. import detect
from ..errors import LockError, UsageError
from ..managers.protocol import locking
from ..model import Bundle, Emit, Event, Lock
from ..request.options import Choices
from ..wheels.cache_and_disk import size


def open_bundle(folder: Path, choices: Choices, lock: Path | None) -> tuple[Choices, Path]:
    """Return the options for installing a bundle, and the path of its lock.

    Raises LockError if the bundle is unfinished, or is for another platform, glibc or Python.
    """
    from .. import bundle

    if lock:
        raise UsageError(
            "--bundle and --lock cannot be used together: a bundle contains its own lock",
            hint="leave one of them out",
        )
    folder = folder.expanduser().resolve()
    if not folder.is_dir():
        raise UsageError(f"--bundle {folder}: no such folder", hint="make one: gpuenv bundle DIR")
    manifest = bundle.read(folder)
    if not manifest.complete:
        raise LockError(
            f"the bundle {folder} is unfinished: its creation was interrupted",
            hint="run the same `gpuenv bundle` command again on a machine with a network. It continues where it stopped",
        )
    here = detect.detect(()).target
    if manifest.target.platform != here.platform:
        raise LockError(
            f"the bundle {folder} is for {manifest.target.platform}; this machine is {here.platform}",
            hint=f"make one for it: gpuenv bundle DIR --platform {here.platform}",
        )
    _glibc_fits(folder, manifest, here.glibc)
    minor = ".".join((choices.python or "").split(".")[:2])
    if minor and not locking(manifest.manager).BRINGS_PYTHON and minor != manifest.python:
        raise LockError(
            f"the bundle {folder} is for Python {manifest.python}, not {minor}",
            hint=f"make one for it: gpuenv bundle DIR --python {minor}",
        )
    laid = dataclasses.replace(choices, bundle=folder, offline=True, manager=manifest.manager, find_links=[])
    return laid, folder / manifest.lock


def _glibc_fits(folder: Path, manifest: Bundle, glibc: str | None) -> None:
    """Raise LockError if a wheel needs a newer glibc than this machine's. The plan of a CPU bundle does not
    check it."""
    if glibc is None:
        return
    machine_glibc = tuple(int(n) for n in glibc.split("."))
    for path in (f.path for f in manifest.files if f.path.startswith("wheels/") and f.path.endswith(".whl")):
        tags = parse_wheel_filename(PurePosixPath(path).name)[3]
        wanted = [re.match(r"manylinux_(\d+)_(\d+)_", t.platform) for t in tags]
        if all(w and (int(w[1]), int(w[2])) > machine_glibc for w in wanted):
            raise LockError(
                f"{path} of the bundle {folder} needs a newer glibc than this machine's {glibc}",
                hint=f"make one for it: gpuenv bundle DIR --glibc {glibc}",
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
    emit(Event(kind="start", stage="build", text=f"checking {len(files)} files of the bundle, {size(total)}"))
    done = 0

    def report(more: int) -> None:
        nonlocal done
        done += more
        emit(Event(kind="progress", stage="build", text=f"checked {size(done)} of {size(total)}",
                   done=done, total=total, unit="bytes"))  # fmt: skip

    bundle.verify(c.bundle, files, report)
    bundle.refuse_unlisted(
        c.bundle, "gpuenv", manifest.files
    )  # pip would take a newer wheel that was put there


def unpack_python(c: Choices, emit: Emit) -> str | None:
    """Return the unpacked Python of the bundle, or None if it has none. Raises BuildError."""
    if c.bundle is None:
        return None
    from .. import bundle
    from ..bundle import python_archives

    manifest = bundle.read(c.bundle)
    if manifest.archive is None:
        return None
    archive = manifest.archive
    emit(Event(kind="start", stage="build", text=f"unpacking Python {archive.version}"))
    sha256 = next(f.sha256 for f in manifest.files if f.path == archive.path)
    return python_archives.install(c.bundle, archive, sha256 or "")


def name_origins(env: Path, lock: Lock, c: Choices) -> None:
    """Write the channels into the records of a conda environment, as if its packages came from there."""
    if c.bundle:
        from ..bundle import conda_channel

        conda_channel.name_origins(env, lock.packages, c.bundle)


def use_bundle_files(lock: Lock, c: Choices) -> Lock:
    """Return the lock with the addresses of its conda packages inside the bundle."""
    if c.bundle is None:
        return lock
    from ..bundle import conda_channel

    return dataclasses.replace(lock, packages=conda_channel.local_packages(lock.packages, c.bundle))
