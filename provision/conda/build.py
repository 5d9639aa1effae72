"""Builds, changes and repairs conda environments, and keeps other files of the prefix.

The worker downloads and links channel packages. uv then installs the wheels."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..environment import place, record
from ..environment.distributions import read_distributions
from ..environment.install import (
    describe_copies,
    install_packages,
    reinstall_wheels,
    uninstall,
)
from ..environment.managers import BuildSettings, RepairWork, compare_locks
from ..environment.transaction import build_in_place
from ..environment.uv_install import UvInstall
from ..errors import BuildError
from ..index.refusals import CONDA_CHANNEL, UNREADABLE_HINT
from ..model import Emit, Event, Lock, LockedPackage, as_plain, format_bytes, normalize_name
from ..system.redaction import clean, redact
from ..system.versions import public
from . import activation, engine

transaction = build_in_place


def fetch(lock: Lock, packages: Sequence[LockedPackage], settings: BuildSettings) -> None:
    """Download packages into the caches and compare hashes, before the environment is renamed. Raises BuildError."""
    channelled, wheels = _split(packages)
    names = {p.name for p in channelled} | {"python"}  # pure packages are unpacked for one Python
    with place.draft(settings.env) as scratch:
        if channelled:
            named = tuple(p for p in lock.packages if p.is_conda and p.name in names)
            link(dataclasses.replace(lock, packages=named), scratch / "conda", settings, distrust=True)
        if wheels:
            some = dataclasses.replace(lock, packages=wheels)
            install_packages(
                UvInstall(some, settings.env, settings.sources, settings.emit, target=scratch / "wheels")
            )


def install(lock: Lock, prefix: Path, settings: BuildSettings) -> None:
    """Fill an empty prefix. Raises BuildError."""
    channelled, wheels = _split(lock.packages)
    text = f"installing {len(channelled)} conda packages"
    settings.emit(Event("start", "build", text, total=len(channelled)))
    _note_copies(link(lock, prefix, settings, distrust=settings.distrust), settings)
    activation.write_scripts(prefix, channelled, list_specs(lock))
    install_wheels_on_top(lock, wheels, prefix, settings)
    settings.emit(Event("done", "build", f"{len(lock.packages)} packages installed"))


def change(old: Lock, new: Lock, prefix: Path, settings: BuildSettings) -> None:
    """Change a prefix with the lock `old` to the lock `new`. Raises BuildError and leaves the prefix half changed."""
    out, into = compare_locks(old, new)
    before = {p.name: p for p in old.packages}
    channelled, wheels = _split(into)
    uninstall(prefix, [n for n in out if not before[n].is_conda])
    gone = [n for n in out if before[n].is_conda]
    if channelled or gone:
        _note_copies(link(new, prefix, settings, replaced=gone), settings)
        activation.record_history(prefix, [before[n] for n in gone], channelled, list_specs(new))
    install_wheels_on_top(new, wheels, prefix, settings)
    settings.emit(Event("done", "build", f"{len(into)} packages changed"))


def reinstall(lock: Lock, work: RepairWork, prefix: Path, settings: BuildSettings, *, fresh: bool) -> None:
    """Remove and reinstall the packages of the work. Raises BuildError.

    Files of the cache are compared with their hashes, because files of the prefix are links to them.
    """
    channelled, wheels = _split(work.packages)
    uninstall(prefix, [r.name for r in work.removed])
    if channelled:
        link(lock, prefix, settings, distrust=True, reinstall=[p.name for p in channelled])
    reinstall_wheels(lock, wheels, prefix, settings, fresh=fresh)


def write_lock(lock: Lock, prefix: Path) -> None:
    """Write the lock into the environment in a form that needs no conda-lock to read. Raises BuildError."""
    plain = as_plain(dataclasses.replace(lock, plan=dataclasses.replace(lock.plan, rejected=())))
    record.write(prefix, "lock.json", {"digest": record.lock_digest(lock), "lock": plain})


def finish(env: Path) -> str | None:
    """Add the environment to the list that conda, VS Code and Jupyter read, or return why that failed."""
    try:
        activation.register(env)
    except BuildError as error:
        return error.message
    return None


def _split(packages: Sequence[LockedPackage]) -> tuple[tuple[LockedPackage, ...], tuple[LockedPackage, ...]]:
    """Return the conda packages and the wheels."""
    return tuple(p for p in packages if p.is_conda), tuple(p for p in packages if not p.is_conda)


# Ratio of unpacked to packed bytes: 2.9 to 4.1 for CUDA packages of conda-forge, whose zstd packs tighter than wheels.
_UNPACKED = 4.1


def link(lock: Lock, prefix: Path, settings: BuildSettings, **more: Any) -> int:
    """Make the engine link the lock's conda packages into a prefix, and return the bytes that it had to copy.

    `more` extends the request. Raises BuildError.
    """
    packages = [p for p in lock.packages if p.is_conda]
    request = {
        "packages": [dataclasses.asdict(p) for p in packages],
        "prefix": str(prefix),
        "specs": list_specs(lock),
        "cache": str(engine.cache_dir(settings.sources.cache_dir)),
        "offline": settings.sources.offline,
        "channels": list(settings.channels),
        "distrust": False,
        "unpacked": _UNPACKED,
    }
    answer = engine.ask("install", request | more, _make_event_handler(settings.emit), BuildError)
    if "error" in answer:
        raise _explain(answer["error"], prefix, packages)
    return int(answer["copied"])


def _note_copies(copied: int, settings: BuildSettings) -> None:
    if copied:
        text = describe_copies(copied, engine.cache_dir(settings.sources.cache_dir), settings.env)
        settings.emit(Event("note", "build", text))


def list_specs(lock: Lock) -> list[str]:
    """Return the requested specs for conda's history: the packages of the frameworks with their versions."""
    pins = [p.split() for b in lock.plan.builds for p in b.requirements]
    return [f"{words[0]} =={words[1]}" for words in pins if len(words) == 3]  # the pin of a wheel is one word


def _make_event_handler(emit: Emit) -> Callable[[dict[str, Any]], None]:
    """Return a callback that turns messages of the engine into events, with the total progress of downloads."""
    fetched: dict[str, int] = {}
    total = 0

    def on_event(event: dict[str, Any]) -> None:
        nonlocal total
        if event["event"] == "fetching":
            total = event["total"]
            text = f"downloading {format_bytes(total)} ({event['packages']} packages)"
            emit(Event("start", "build", text, total=total, unit="bytes", files=event["packages"]))
        elif event["event"] == "download":
            fetched[event["name"]] = event["done"]
            received = sum(fetched.values())
            text = f"downloading {event['name']}"
            emit(Event("progress", "build", text, done=received, total=total, unit="bytes"))
        elif event["event"] == "link":
            text = f"linking {event['done']} of {event['total']} packages"
            emit(Event("progress", "build", text, done=event["done"], total=event["total"],
                       unit="packages"))  # fmt: skip

    return on_event


def install_wheels_on_top(
    lock: Lock, wheels: Sequence[LockedPackage], prefix: Path, settings: BuildSettings
) -> None:
    """Install the wheels without dependencies, so that none replaces a conda package. Raises BuildError."""
    conda = {normalize_name(p.name) for p in lock.packages if p.is_conda}
    both = sorted(p.name for p in wheels if normalize_name(p.name) in conda)
    if both:
        raise BuildError(
            f"the lock has {', '.join(both)} as a conda package and as a wheel; one would overwrite the other",
            hint="lock again: gpuenv lock --manager conda",
        )
    if wheels:
        some = dataclasses.replace(lock, packages=tuple(_find_missing(wheels, prefix)))
        install_packages(UvInstall(some, prefix, settings.sources, settings.emit))


def _find_missing(wheels: Sequence[LockedPackage], prefix: Path) -> list[LockedPackage]:
    """Return the wheels without those that a conda package of another name already provides.

    Raises BuildError if the conda package has another version, which the wheel would overwrite.
    """
    installed = {name: several[-1].version for name, several in read_distributions(prefix).items()}
    for wheel in wheels:
        version = installed.get(normalize_name(wheel.name), "")
        if version and version != public(wheel.version):
            raise BuildError(
                f"the conda package of {wheel.name} has version {version}, but the lock's wheel has {wheel.version}. "
                "One would overwrite the other",
                hint=f"request conda's version with --with '{wheel.name}=={version}'",
            )
    return [w for w in wheels if normalize_name(w.name) not in installed]


def _explain(error: Mapping[str, Any], prefix: Path, packages: Sequence[LockedPackage]) -> BuildError:
    """Return the error for a failure of the engine."""
    text = clean(error["text"])
    if error["kind"] == "Disk":
        return BuildError(
            f"{text} has {format_bytes(error['free'])} free; downloading and unpacking needs about {format_bytes(error['need'])}",
            hint="free space, or choose another disk: --cache-dir DIR and another ENV",
        )
    if error["kind"] == "Offline":
        return BuildError(
            f"--offline was given, but these packages are not in the cache: {text}",
            hint="run once with a network, or name a local channel with --channel DIR",
        )
    if error["kind"] == "UnsafeError":
        return BuildError(
            f"{text}: gpuenv does not write there",
            hint="remove that package, or rebuild an environment with damaged records: gpuenv create --recreate",
        )
    address = _find_address(text, packages)
    other = f"the conda packages could not be installed: {text.splitlines()[0] if text else error['kind']}"
    other += f": {address}" if address else ""
    return engine.explain(BuildError, text, address or str(prefix), _LOCAL_FAULTS, _FILE_FAULTS, other)


def _find_address(text: str, packages: Sequence[LockedPackage]) -> str | None:
    """Return the package address for a message of the engine, which often has only the file name."""
    file = re.search(r"failed to fetch (\S+\.(?:conda|tar\.bz2))", text)
    name = re.search(r"no data arrived for \d+ s: ([^\s,]+)", text)
    for package in packages:
        if (file and package.url.endswith(f"/{file[1]}")) or (name and package.name == name[1]):
            return redact(package.url)
    return engine.find_address(text)


_LOCAL_FAULTS = (
    (r"os error 28|no space left|disk quota", "the disk became full during the installation",
     "free space, or put ENV and --cache-dir on another disk"),
    (r"hash mismatch|checksum|sha256|md5", "a package's hash differs from the lock",
     "if the channel replaced the file, lock again: gpuenv lock --manager conda"),
    (r"invalid zip|zip archive|zstd|unexpected end of (?:file|archive)", "a file is not a valid conda package", UNREADABLE_HINT),
)  # fmt: skip
_FILE_FAULTS = (
    (r"\b404\b|\b410\b|no such file|not found", "a locked package is no longer available", "lock again, or name a mirror that has it"),
    (r"connection", "the conda channel does not respond", CONDA_CHANNEL.hints["unreachable"]),
    (r"permission denied|read-only", "the environment's folder is not writable", "choose an ENV in a writable folder"),
)  # fmt: skip
