"""A bundle that is used: `create --bundle` installs its lock from its files, without any network. What reads
bundles is imported where there is one: every `create` passes here."""

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
    """The options with a bundle laid over them, and its lock, after holding the bundle against this machine.
    Raises LockError for one that is unfinished, or for another platform, glibc or Python."""
    from .. import bundle

    if lock:
        raise UsageError(
            "--bundle and --lock cannot be used together: a bundle contains its own lock",
            hint="leave one of them out",
        )
    folder = folder.expanduser().resolve()
    if not folder.is_dir():
        raise UsageError(f"--bundle {folder}: no such folder", hint="make one: gpuenv bundle DIR")
    found = bundle.read(folder)
    if not found.complete:
        raise LockError(
            f"the bundle {folder} is unfinished: its creation was interrupted",
            hint="run the same `gpuenv bundle` command again on a machine with a network. It continues where it stopped",
        )
    here = detect.detect(()).target
    if found.target.platform != here.platform:
        raise LockError(
            f"the bundle {folder} is for {found.target.platform}; this machine is {here.platform}",
            hint=f"make one for it: gpuenv bundle DIR --platform {here.platform}",
        )
    _glibc_fits(folder, found, here.glibc)
    minor = ".".join((choices.python or "").split(".")[:2])
    if minor and not locking(found.manager).BRINGS_PYTHON and minor != found.python:
        raise LockError(
            f"the bundle {folder} is for Python {found.python}, not {minor}",
            hint=f"make one for it: gpuenv bundle DIR --python {minor}",
        )
    laid = dataclasses.replace(choices, bundle=folder, offline=True, manager=found.manager, find_links=[])
    return laid, folder / found.lock


def _glibc_fits(folder: Path, found: Bundle, glibc: str | None) -> None:
    """Hold the tags of the wheels against this machine's glibc: a CPU plan has no other say in it."""
    if glibc is None:
        return
    mine = tuple(int(n) for n in glibc.split("."))
    for path in (f.path for f in found.files if f.path.startswith("wheels/") and f.path.endswith(".whl")):
        tags = parse_wheel_filename(PurePosixPath(path).name)[3]
        wanted = [re.match(r"manylinux_(\d+)_(\d+)_", t.platform) for t in tags]
        if all(w and (int(w[1]), int(w[2])) > mine for w in wanted):
            raise LockError(
                f"{path} of the bundle {folder} needs a newer glibc than this machine's {glibc}",
                hint=f"make one for it: gpuenv bundle DIR --glibc {glibc}",
            )


def check_files(c: Choices, emit: Emit) -> None:
    """Hold every file that is to be installed against the manifest. Raises BuildError naming those that are
    missing or changed."""
    if c.bundle is None:
        return
    from .. import bundle

    found = bundle.read(c.bundle)
    apart = ("python/", "README")  # uv compares the Python with its hash
    files = [f for f in found.files if not f.path.startswith(apart)]
    total = sum(f.size or 0 for f in files)
    emit(Event(kind="start", stage="build", text=f"checking {len(files)} files of the bundle, {size(total)}"))
    done = 0

    def told(more: int) -> None:
        nonlocal done
        done += more
        emit(Event(kind="progress", stage="build", text=f"checked {size(done)} of {size(total)}",
                   done=done, total=total, unit="bytes"))  # fmt: skip

    bundle.verify(c.bundle, files, told)
    bundle.refuse_unlisted(c.bundle, "gpuenv", found.files)  # pip would take a newer wheel that was put there


def unpack_python(c: Choices, emit: Emit) -> str | None:
    """The bundle's Python, unpacked; None where there is none in it. Raises BuildError."""
    if c.bundle is None:
        return None
    from .. import bundle
    from ..bundle import python_archives

    found = bundle.read(c.bundle)
    if found.archive is None:
        return None
    archive = found.archive
    emit(Event(kind="start", stage="build", text=f"unpacking Python {archive.version}"))
    sha256 = next(f.sha256 for f in found.files if f.path == archive.path)
    return python_archives.install(c.bundle, archive, sha256 or "")


def name_origins(env: Path, lock: Lock, c: Choices) -> None:
    """Have a conda environment's records name the channels, as if it had come from there."""
    if c.bundle:
        from ..bundle import conda_channel

        conda_channel.name_origins(env, lock.packages, c.bundle)


def use_bundle_files(lock: Lock, c: Choices) -> Lock:
    """A lock with its conda packages where the bundle has them."""
    if c.bundle is None:
        return lock
    from ..bundle import conda_channel

    return dataclasses.replace(lock, packages=conda_channel.local_packages(lock.packages, c.bundle))
