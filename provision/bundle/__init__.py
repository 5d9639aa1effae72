"""Bundles: folders with everything that a machine without a network needs.

This module reads, writes and verifies the manifest of a bundle. The manifest exists from the start and is `complete`
only at the end, so that the next run continues after a kill. Files that are not in the manifest are never changed.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from ..errors import BuildError, LockError, UsageError
from ..index.downloads import has_hashes, part_path
from ..index.wheel_names import glibc_of
from ..model import Bundle, BundleFile, BundlePlan, BundlePython, as_document, from_plain, name_few
from ..system import trust
from ..system.files import (
    find_existing,
    hash_file,
    make_folder,
    refuse_links_out,
    remove_file,
    write_file,
    writing,
)
from ..system.redaction import redact_value
from ..system.untrusted import UnsafeNameError, check_relative
from ..system.wheel_file import parse_wheel
from ..templates import fill

MANIFEST = "gpuenv-bundle.json"
README = "README.txt"
_DRAFT = f".{MANIFEST}.gpuenv-new"
_READERS = 4


def read_existing(folder: Path) -> Bundle | None:
    """Return the bundle in a folder, or None for an empty or missing folder. Raises UsageError for other contents."""
    if os.path.lexists(folder) and not folder.is_dir():
        raise UsageError(f"{folder} is not a folder", hint="choose an empty or new folder")
    names = {p.name for p in folder.iterdir()} if folder.exists() else set()
    if MANIFEST not in names:
        if names - {_DRAFT}:
            raise UsageError(
                f"{folder} has other files ({', '.join(sorted(names)[:3])}): it was not changed",
                hint="choose an empty or new folder",
            )
        return None
    return read(folder)


def assert_writable(folder: Path) -> None:
    """Raise BuildError for a folder that cannot be created or written, before any other step."""
    place = find_existing(folder)
    with writing(place):
        tempfile.TemporaryFile(dir=place).close()
        if place == folder:
            refuse_links_out(folder)  # uv and the channel indexer write in it by path


def read(folder: Path) -> Bundle:
    """Read the manifest of a bundle. Raises LockError if it is missing or damaged."""
    path = folder / MANIFEST
    try:
        manifest = from_plain(Bundle, json.loads(trust.read_project(path)))
    except OSError as error:
        raise LockError(
            f"{folder} is not a bundle: {path.name}: {error.strerror}", hint="create one: gpuenv bundle DIR"
        ) from error
    except (ValueError, RecursionError) as error:
        raise LockError(
            f"{path} is damaged: {error}", hint="copy it again, or create it again: gpuenv bundle DIR"
        ) from error
    try:
        for name in (
            *list_locks(manifest), *(f.path for f in manifest.files), *(a.path for a in list_archives(manifest)),
        ):  # fmt: skip
            check_relative(name)
    except UnsafeNameError as error:
        raise LockError(
            f"{path} is damaged: {error.message}", hint="create it again: gpuenv bundle DIR"
        ) from error
    return manifest


def list_locks(bundle: Bundle) -> list[str]:
    """Return the names of the lock files of a bundle."""
    return list(dict.fromkeys([bundle.lock, *(p.lock for p in bundle.plans)]))


def list_archives(bundle: Bundle) -> tuple[BundlePython, ...]:
    """Return the Python archives of a bundle."""
    archives = [bundle.archive, *(p.archive for p in bundle.plans)]
    return tuple(dict.fromkeys(a for a in archives if a))


def is_archive_for(archive: BundlePython, minor: str, platform: str) -> bool:
    """Return whether an archive is a Python of a minor version for a platform."""
    return archive.version.startswith(f"{minor}.") and archive.key.split("-")[2:4] == platform.split("-")


def write_manifest(folder: Path, bundle: Bundle) -> None:
    """Write the manifest atomically. Raises BuildError."""
    text = json.dumps(redact_value(as_document(bundle)), indent=1) + "\n"
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        write_file(folder / MANIFEST, text, durable=True)


@contextmanager
def work_folder(folder: Path) -> Iterator[Path]:
    """Yield a folder for temporary parts of a bundle, and remove it at the end. Raises BuildError for the disk."""
    work = folder / ".work"
    shutil.rmtree(work, ignore_errors=True)
    try:
        with writing(folder):
            make_folder(work, root=folder)
            yield work
    finally:
        shutil.rmtree(work, ignore_errors=True)


def remove_old(folder: Path, before: Bundle, files: Iterable[BundleFile]) -> None:
    """Remove the files of an earlier bundle that this one does not have. Raises BuildError."""
    kept = {f.path for f in files}
    with writing(folder):
        for path in (folder / f.path for f in before.files if f.path not in kept):
            remove_file(path, root=folder)
            remove_file(part_path(path), root=folder)


def list_files(folder: Path, paths: Sequence[str]) -> tuple[BundleFile, ...]:
    """Return existing files with their sizes and hashes."""
    return tuple(
        BundleFile(path=p, size=(folder / p).stat().st_size, sha256=hash_file(folder / p)) for p in paths
    )


def is_whole(folder: Path, file: BundleFile) -> bool:
    """Return whether a file exists with the hash of the manifest."""
    path = folder / file.path
    return bool(file.sha256) and path.is_file() and has_hashes(path, {"sha256": file.sha256 or ""})


def verify(folder: Path, files: Sequence[BundleFile], on_progress: Callable[[int], None]) -> None:
    """Compare files with the hashes of the manifest.

    `on_progress` receives the bytes read. Raises BuildError with the names of wrong files.
    """

    def right(file: BundleFile) -> bool:
        good = is_whole(folder, file)
        on_progress(file.size or 0)
        return good

    with ThreadPoolExecutor(_READERS) as pool:
        wrong = [f.path for f, good in zip(files, pool.map(right, files), strict=True) if not good]
    if wrong:
        raise BuildError(
            f"{name_few(wrong)} of the bundle {folder} changed after its creation, or is missing", hint=_AGAIN
        )


def refuse_edited(folder: Path, before: Bundle) -> None:
    """Raise UsageError for an edited lock or README of a complete bundle. Changed wheels are downloaded again."""
    for file in before.files if before.complete else ():
        changed = file.path in (README, *list_locks(before)) and (folder / file.path).is_file()
        if changed and not is_whole(folder, file):
            raise UsageError(
                f"{folder / file.path} was edited after gpuenv wrote it. It was not replaced",
                hint="move it out of the bundle, or replace it with --force",
            )


def refuse_unlisted(folder: Path, files: Iterable[BundleFile]) -> None:
    """Raise BuildError for a package of gpuenv that the manifest does not list: pip would take a newer wheel."""
    listed = {f.path for f in files}
    existing = [p.relative_to(folder).as_posix() for p in sorted((folder / "gpuenv").glob("*"))]
    if added := [name for name in existing if name not in listed]:
        raise BuildError(f"{name_few(added)} in {folder} is not in the manifest", hint=_AGAIN)


_AGAIN = "copy the bundle again, or repair it with `gpuenv bundle` on a machine with a network"


def find_newer_glibc(files: Iterable[str], glibc: str | None) -> str | None:
    """Return the first wheel of a bundle whose tags need a newer glibc, or None.

    The plan of a CPU bundle does not check glibc.
    """
    if glibc is None:
        return None
    machine_glibc = tuple(int(n) for n in glibc.split("."))
    for path in (f for f in files if f.startswith("wheels/") and f.endswith(".whl")):
        tags = parse_wheel(PurePosixPath(path).name).tags
        needed = [glibc_of(t.platform) for t in tags]
        if all(n and n > machine_glibc for n in needed):
            return path
    return None


_MOST_HOSTS = 20
"""Hosts of a class that the README names."""


def readme(bundle: Bundle) -> str:
    """Return README.txt with the commands and their requirements."""
    plans: list[str] = []
    for plan in bundle.plans:
        plans += ["", f"{plan.lock}: {', '.join(plan.frameworks)} for {plan.device}, Python {plan.python}"]
        for one in plan.classes:
            more = len(one.hosts) - _MOST_HOSTS
            hosts = ", ".join(one.hosts[:_MOST_HOSTS]) + (f" and {more} more" if more > 0 else "")
            plans += [f"  class {one.id}: {one.target.words}", f"    {hosts}"]
    for missing in bundle.unserved if plans else ():
        plans += ["", f"Nothing for {missing.host or ', '.join(missing.classes)}: {missing.reason}"]
    every: tuple[Bundle | BundlePlan, ...] = bundle.plans or (bundle,)
    pythons: list[str] = []
    for python, archive in {plan.python: plan.archive for plan in every}.items():
        if archive is None:
            pythons += ["", f"Python is not included: the machine needs Python {python}."]
            continue
        major, minor = archive.version.split(".")[:2]
        sentence = (
            f"Python {archive.version} is included, and is used if the machine has no Python {major}.{minor}."
        )
        pythons += ["", sentence]
        if (int(major), int(minor)) >= (3, 10):
            pythons.append(_WITHOUT_PYTHON)
    values = {
        "plans": "\n".join(plans), "count": str(sum(len(c.hosts) for p in bundle.plans for c in p.classes)),
        "gpuenv": bundle.gpuenv, "frameworks": ", ".join(bundle.frameworks), "device": bundle.device,
        "machine": bundle.target.words, "python": str(bundle.python),
        "wanted": "'gpuenv[conda]'" if bundle.manager == "conda" else "gpuenv",
        "pythons": "\n".join(pythons), "notes": bundle.notes,
    }  # fmt: skip
    return fill("bundle.txt", values)


_WITHOUT_PYTHON = "Without any Python on the machine, unpack the archive with tar xzf, and use python/bin/python3 instead of python3."
