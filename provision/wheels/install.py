"""Installs a lock's packages into an environment with uv, by hash.

uv runs first without the network, and links everything in the cache. If packages are missing, the size of the
download and the free space are checked. Then uv runs with the indexes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from ..errors import BuildError
from ..index import pytorch_index
from ..model import Event, Lock, LockedPackage, PackageSources, normalize_name
from . import cache_and_disk
from .bytecode import is_compiling, note_compiled
from .cache_and_disk import check_disk, installer_cache, size
from .tensorflow_library_links import link_unfound
from .uv_install import UvInstall, format_unhashed, is_wheel
from .uv_log import (
    cache_is_damaged,
    explain_failed_build,
    explain_install_failure,
    imports_undeclared,
    lacks_only_files,
)


def install_wheels(whole: UvInstall, emit: Callable[[Event], None]) -> None:
    """Install packages into an environment of any kind, and nothing else. Raises BuildError.

    Packages with a hash are first, and those that cannot have one last.
    """
    lock, path, sources, target = whole.lock, whole.path, whole.sources, whole.target
    refuse_builds(lock, sources)
    hashed = [p for p in lock.packages if not p.unhashed]
    words = f"{'fetching' if target else 'installing'} {_count(len(lock.packages))}"
    emit(Event(kind="start", stage="build", text=words, total=len(lock.packages)))
    check_disk(path, sum(p.size or 0 for p in hashed))
    if hashed:
        _install_hashed(whole, emit)
    if target:
        return
    _install_unhashed(whole, emit)
    if is_compiling():
        note_compiled(path, hashed)
    for site_packages in path.glob("lib/python3*/site-packages"):
        if linked := link_unfound(site_packages):
            text = f"links created for the libraries, so that TensorFlow's loader finds them: {', '.join(linked)}"
            emit(Event(kind="note", stage="build", text=text))
    emit(Event(kind="done", stage="build", text=f"{len(lock.packages)} packages installed"))


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


def _install_hashed(whole: UvInstall, emit: Callable[[Event], None]) -> None:
    """Install packages with hashes: wheels of the cache, then wheels of the indexes, then source archives.

    Packages of the PyTorch index come only from it, and all others never.
    """
    lock, sources = whole.lock, whole.sources
    hashed = [p for p in lock.packages if not p.unhashed]
    wheels = tuple(p for p in hashed if is_wheel(p))
    may_be_cached = cache_and_disk.may_be_here(wheels, sources)
    missing = _install_cached(whole, wheels, emit, try_cache=may_be_cached)
    if missing:
        total = sum(p.size or 0 for wanted in missing for p in wanted.lock.packages)
        files = sum(len(wanted.lock.packages) for wanted in missing)
        text = f"downloading {'up to ' if may_be_cached else ''}{size(total)} ({_count(files)})"
        emit(Event(kind="start", stage="build", total=total or None, unit="bytes", files=files, text=text))
        check_disk(installer_cache(sources), total, cached=True)
    for wanted in missing:
        _fetch(wanted, lock, emit)
    whole.report_fetched()
    for package in (p for p in hashed if not is_wheel(p)):
        _build(whole.only((package,)), emit)


def _install_cached(
    whole: UvInstall, wheels: tuple[LockedPackage, ...], emit: Callable[[Event], None], *, try_cache: bool
) -> list[UvInstall]:
    """Install wheels without the network, and return what is missing. Raises BuildError."""
    sources, missing = whole.sources, []
    parts = [
        part
        for some in filter(None, pytorch_index.split(wheels, whole.lock.plan))
        for part in cache_and_disk.split(some, sources)
    ]
    for packages, only_files in parts:
        wanted = dataclasses.replace(
            whole.only(packages, cache_and_disk.file_names(sources)),
            sources=dataclasses.replace(sources, no_index=only_files),
        )
        done = wanted.install(offline=True) if try_cache else None
        if done and not done.ok and only_files and cache_is_damaged(done.stderr):
            words = "uv's cache is damaged: installing without it"
            emit(Event(kind="warning", stage="build", text=words))
            done = wanted.install_uncached()
        if done and not done.ok and (sources.offline or not lacks_only_files(done.stderr)):
            raise explain_install_failure(done, whole.path, whole.lock)
        missing += [] if done and done.ok else [wanted]
    return missing


def _fetch(wanted: UvInstall, lock: Lock, emit: Callable[[Event], None]) -> None:
    done = wanted.install(offline=False, emit=emit)
    if not done.ok:
        raise explain_install_failure(done, wanted.path, lock)


def _build(wanted: UvInstall, emit: Callable[[Event], None]) -> None:
    """Build and install one source archive, after all wheels. Raises BuildError.

    A package that is compiled against a framework without requiring it (flash-attn imports torch in its setup.py) is
    built with the packages of the environment.
    """
    from .compare_built_metadata import check_built  # it needs an HTTP client, and few locks need it

    (package,) = wanted.lock.packages
    text = f"building {package.name} {package.version} from its source"
    emit(
        Event(
            kind="start",
            stage="build",
            text=f"{text} (the hash of the source is checked, the build tools have no hashes)",
        )
    )
    done = wanted.install(offline=True)
    if not done.ok and not wanted.sources.offline and not imports_undeclared(done.stderr):
        done = wanted.install(offline=False, emit=emit)
    if not done.ok and imports_undeclared(done.stderr):
        more = ("--no-build-isolation-package", package.name)
        without_isolation = dataclasses.replace(wanted, options=(*wanted.options, *more))
        done = without_isolation.install(offline=wanted.sources.offline, emit=emit)
    if not done.ok:
        raise explain_failed_build(package, done)
    check_built(package, wanted.lock.plan, wanted.target or wanted.path, wanted.sources)


def _install_unhashed(whole: UvInstall, emit: Callable[[Event], None]) -> None:
    """Install folders and commits, last and without dependencies, which the lock has. Raises BuildError."""
    rows = [format_unhashed(p) for p in whole.lock.packages if p.unhashed]
    if not rows:
        return
    emit(Event(kind="note", stage="build", text=f"building from source, without a hash: {', '.join(rows)}"))
    wanted = dataclasses.replace(whole, requirements="\n".join(rows) + "\n")
    done = wanted.install(offline=whole.sources.offline, emit=emit)
    if not done.ok:
        raise explain_install_failure(done, whole.path, whole.lock)
