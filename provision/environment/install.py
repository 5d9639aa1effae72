"""Installs a lock's packages into an environment with uv, by hash, reinstalls and removes them.

uv runs first without the network, and links everything in the cache. If packages are missing, the size of the
download and the free space are checked. Then uv runs with the indexes.
"""

from __future__ import annotations

import dataclasses
import re
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import BuildError
from ..index import uv
from ..index.config import plain_sources, split_pytorch
from ..index.uv import installer_cache
from ..model import Event, Lock, LockedPackage, PackageSources, format_bytes, normalize_name
from ..system.kernels import read_nvidia_folders
from ..system.redaction import clean
from ..wheels.pylock import file_name, is_variant
from .distributions import find_distribution, find_sites, list_installed, read_distributions
from .uv_install import (
    UvInstall,
    cache_is_damaged,
    check_disk,
    explain_failed_build,
    explain_install_failure,
    find_undeclared,
    format_unhashed,
    is_wheel,
    lacks_only_files,
    list_local_files,
)

if TYPE_CHECKING:
    from .managers import BuildSettings


def install_packages(job: UvInstall) -> None:
    """Install packages into an environment of any kind, and the links that TensorFlow needs. Raises BuildError.

    Packages with a hash are first, and those that cannot have one, which are built, last. With a `target` only fetch them.
    """
    lock, path, sources, target, emit = job.lock, job.path, job.sources, job.target, job.emit
    refuse_builds(lock, sources)
    hashed = [p for p in lock.packages if not p.unhashed]
    words = f"{'fetching' if target else 'installing'} {_count(len(lock.packages))}"
    emit(Event("start", "build", words, total=len(lock.packages)))
    if hashed:
        _install_hashed(job)
    if target:
        return
    _install_unhashed(job)
    for site_packages in find_sites(path):
        if linked := link_missing_libraries(site_packages):
            text = f"links created for the libraries, so that TensorFlow's loader finds them: {', '.join(linked)}"
            emit(Event("note", "build", text))
    _note_copies(job)
    emit(Event("done", "build", f"{len(lock.packages)} packages installed"))


def _note_copies(job: UvInstall) -> None:
    """Say what was copied because uv cannot link files of a cache on another file system."""
    cache, env = installer_cache(job.sources), job.path
    asked = job.sources.uv.get("UV_LINK_MODE") == "copy"
    if asked or not cache.exists() or cache.stat().st_dev == env.stat().st_dev:
        return
    names = {normalize_name(p.name) for p in job.lock.packages if is_wheel(p)}
    found = (one for one in list_installed(env) if one.name in names)
    size = sum(int(row) for one in found for row in _ROW_SIZE.findall(one.record_text))
    job.emit(Event("note", "build", describe_copies(size, cache, env)))


def describe_copies(size: int, cache: Path, env: Path) -> str:
    """Return what a cache on another file system costs, and the option that avoids it."""
    return (
        f"{format_bytes(size)} were copied, because the cache {cache} is on another file system than {env.parent}. "
        "A cache beside it is linked instead: --cache-dir DIR"
    )


_ROW_SIZE = re.compile(r",(\d{1,15})\r?$", re.MULTILINE)


def _count(packages: int) -> str:
    return f"{packages} package{'' if packages == 1 else 's'}"


def refuse_builds(lock: Lock, sources: PackageSources) -> None:
    """Raise BuildError if an option forbids builds and the lock has packages that are built from source."""
    never = {normalize_name(name) for name in sources.only_binary}
    every = sources.no_build or ":all:" in never
    built = [p for p in lock.packages if not is_wheel(p)]
    refused = [f"{p.name} {p.version}".rstrip() for p in built if every or normalize_name(p.name) in never]
    if refused:
        option = "--no-build" if sources.no_build else "--only-binary"
        raise BuildError(
            f"the lock has packages that are built from source, but {option} forbids builds: {', '.join(refused)}",
            hint=f"remove {option}, or lock releases that have wheels",
        )


def _install_hashed(job: UvInstall) -> None:
    """Install packages with hashes: wheels of the cache, then wheels of the indexes, then source archives.

    Packages of the PyTorch index come only from it, and all others never.
    """
    lock, sources = job.lock, job.sources
    hashed = [p for p in lock.packages if not p.unhashed]
    wheels = tuple(p for p in hashed if is_wheel(p))
    missing = _install_cached(job, wheels)
    if missing:
        total = sum(p.size or 0 for wanted in missing for p in wanted.lock.packages)
        files = sum(len(wanted.lock.packages) for wanted in missing)
        text = f"downloading up to {format_bytes(total)} ({_count(files)})"
        job.emit(Event("start", "build", total=total or None, unit="bytes", files=files, text=text))
        check_disk(installer_cache(sources), total)
    for wanted in missing:
        finished = wanted.install(offline=False)
        if not finished.ok:
            raise explain_install_failure(finished, lock)
    for package in (p for p in hashed if not is_wheel(p)):
        _build(job.select((package,)))


def _install_cached(job: UvInstall, wheels: tuple[LockedPackage, ...]) -> list[UvInstall]:
    """Install wheels without the network, and return what is missing. Raises BuildError.

    For the same release uv prefers an index's answer in its cache to a folder, and names a file that it cannot fetch.
    So without a network, files of folders are installed without any index, and the rest from the cache.
    """
    sources, missing, local = job.sources, [], list_local_files(job.sources)
    parts = []
    for some in split_pytorch(wheels, job.lock.plan):
        there = tuple(p for p in some if sources.no_index or file_name(p) in local)
        rest = [p for p in some if p not in there]
        variants = tuple(filter(is_variant, rest))
        parts += [(there, True), (variants, False), (tuple(p for p in rest if p not in variants), False)]
    for packages, only_files in parts:
        if not packages:
            continue
        wanted = dataclasses.replace(
            job.select(packages, local), sources=dataclasses.replace(sources, no_index=only_files)
        )
        finished = wanted.install(offline=True)
        if not finished.ok and only_files and cache_is_damaged(finished.stderr):
            job.emit(Event("warning", "build", "uv's cache is damaged: installing without it"))
            finished = wanted.install_uncached()
        if not finished.ok and (sources.offline or not lacks_only_files(finished.stderr)):
            raise explain_install_failure(finished, job.lock, offline=sources.offline)
        if not finished.ok:
            missing.append(wanted)
    return missing


def _build(wanted: UvInstall) -> None:
    """Build and install one source archive, after all wheels. Raises BuildError.

    A package that is compiled against a framework without requiring it (flash-attn imports torch in its setup.py) is
    built with the packages of the environment.
    """
    from ..wheels.releases import (  # it needs an HTTP client, and few locks need it
        SourceArchives,
        check_built,
    )

    (package,) = wanted.lock.packages
    text = f"building {package.name} {package.version} from its source"
    text += " (the hash of the source is checked, the build tools have no hashes)"
    wanted.emit(Event("start", "build", text))
    finished = wanted.install(offline=True)
    if not finished.ok and not wanted.sources.offline and not _has_undeclared(finished.stderr, wanted):
        finished = wanted.install(offline=False)
    if not finished.ok and _has_undeclared(finished.stderr, wanted):
        more = ("--no-build-isolation-package", package.name)
        without_isolation = dataclasses.replace(wanted, options=(*wanted.options, *more))
        finished = without_isolation.install(offline=wanted.sources.offline)
    if not finished.ok:
        raise explain_failed_build(package, finished, wanted.lock.plan, SourceArchives(wanted.sources))
    check_built(package, wanted.lock.plan, wanted.target or wanted.path, wanted.sources)


def _has_undeclared(log: str, wanted: UvInstall) -> bool:
    """Return whether a build failed only because it imports a package of the environment that it does not require."""
    name = find_undeclared(log)
    folders = (*find_sites(wanted.path), *([wanted.target] if wanted.target else ()))
    return bool(name) and find_distribution(folders, normalize_name(name)) is not None


def _install_unhashed(job: UvInstall) -> None:
    """Install folders and commits, last and without dependencies, which the lock has. Raises BuildError."""
    rows = [format_unhashed(p) for p in job.lock.packages if p.unhashed]
    if not rows:
        return
    job.emit(Event("note", "build", f"building from source, without a hash: {', '.join(rows)}"))
    wanted = dataclasses.replace(job, requirements="\n".join(rows) + "\n")
    finished = wanted.install(offline=job.sources.offline)
    if not finished.ok:
        raise explain_install_failure(finished, job.lock)


# --- taking out and putting back -------------------------------------------------------------------

_SETTINGS = uv.Settings(timeout=600)


def uninstall(env: Path, names: Iterable[str]) -> None:
    """Remove distributions and their files. Raises BuildError."""
    names = list(names)
    if not names:
        return
    finished = uv.run_uv(
        ["pip", "uninstall", *names], plain_sources(), python=env / "bin/python", settings=_SETTINGS
    )
    if not finished.ok:
        raise BuildError(
            f"{', '.join(names)} could not be removed", log=clean(finished.stderr),
            hint="rebuild the environment, which is unchanged: gpuenv create --recreate",
        )  # fmt: skip


def reinstall_wheels(
    lock: Lock, wheels: tuple[LockedPackage, ...], env: Path, settings: BuildSettings, *, fresh: bool
) -> None:
    """Reinstall some of a lock's wheels. Raises BuildError.

    `fresh` removes them from the installer's cache first, whose files were changed, so that they are downloaded again.
    """
    if not wheels:
        return
    # An installer cannot remove the files of a dist-info without a RECORD, and would keep them beside new ones.
    installed = read_distributions(env)
    for one in (d for p in wheels for d in installed.get(normalize_name(p.name), ())):
        if not (one.folder / "RECORD").is_file():
            shutil.rmtree(one.folder)
    if fresh:
        names = (p.name for p in wheels)
        uv.run_uv(["cache", "clean", *names], settings.sources, python=None, settings=_SETTINGS)
    some = dataclasses.replace(lock, packages=wheels)
    install_packages(UvInstall(some, env, settings.sources, settings.emit, reinstall=True))


# --- what uv does not do ---------------------------------------------------------------------------

_SONAME = re.compile(r"lib[A-Za-z0-9_]+\.so\.\d+")


def link_missing_libraries(site_packages: Path) -> tuple[str, ...]:
    """Link NVIDIA libraries of folders that TensorFlow's RUNPATH lacks into a folder that it has. Raises OSError.

    TensorFlow opens CUDA libraries by name, and finds those of the nvidia-* wheels through the RUNPATH of
    libtensorflow_framework.so, which lacks folders in some releases (2.21.0: that of cuSOLVER). It then reports "Cannot
    dlopen some GPU libraries", although all are installed. A link beside a library that it finds solves this for every
    program in the environment. TensorFlow's install page documents a similar remedy. All folders have the same depth,
    so that $ORIGIN paths of a library remain valid behind the link. Returns the names of the links.
    """
    framework = site_packages / "tensorflow" / "libtensorflow_framework.so.2"
    wheels = sorted(p for p in (site_packages / "nvidia").glob("*/lib") if p.is_dir())
    if not wheels or not framework.exists():
        return ()
    with framework.open("rb") as stream:
        named = read_nvidia_folders(stream)
    target = next((p for p in wheels if p.parent.name in named), None)
    if target is None:
        return ()
    linked = []
    for folder in wheels:
        for library in sorted(folder.iterdir()) if folder.parent.name not in named else ():
            link = target / library.name
            if _SONAME.fullmatch(library.name) and not link.exists():
                link.symlink_to(Path("../..") / folder.parent.name / "lib" / library.name)
                linked.append(library.name)
    return tuple(linked)
