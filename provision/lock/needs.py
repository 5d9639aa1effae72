"""Read the wheels of a lock as they arrive: which libraries the target lacks, and which rows no profile has."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ..config import rows
from ..config.options import Choices, get_cache_dir
from ..environment.distributions import find_distribution, find_sites
from ..model import (
    Emit,
    Event,
    Lock,
    LockedPackage,
    PackageSources,
    Satellite,
    normalize_name,
    requirement_name,
)
from ..resolve.satellites import SatelliteRows
from ..system import process
from .system_needs import MeasuredRows, SystemNeeds, is_compiled_wheel, needs_of, needs_of_installed

_OF_NVIDIA = re.compile(r"(?:nvidia|cuda|jax-cuda\d*)-.*")


@dataclass
class WheelNeeds:
    """What the wheels of a lock need: the system libraries that the target lacks, and rows that no profile has.

    Each wheel is read once, as soon as it can be. For another machine only glibc is known. `folders` contain wheels.
    """

    emit: Emit
    lock: Lock
    choices: Choices
    sources: PackageSources
    folders: Sequence[Path] = ()
    _read: set[LockedPackage] = field(default_factory=set)
    _measured: set[LockedPackage] = field(default_factory=set)

    def warn(self) -> None:
        """Warn about the wheels that are on this machine or were read before."""
        if unread := self._list_unread():
            self._warn(needs_of(unread, self.sources, self.folders), "lock")

    def read_installed(self, prefix: Path) -> None:
        """Warn about the wheels that are installed so far, and measure those that have no row."""
        if unread := self._list_unread():
            self._warn(needs_of_installed(unread, prefix, self.sources), "build")
        self._measure(prefix)

    def _list_unread(self) -> list[LockedPackage]:
        """Return the packages to read. A conda lock has none, because conda packages bring system libraries."""
        if any(package.is_conda for package in self.lock.packages):
            return []
        return [package for package in self.lock.packages if package not in self._read]

    def _warn(self, needs: dict[LockedPackage, SystemNeeds], stage: str) -> None:
        self._read |= needs.keys()
        choices = self.choices
        elsewhere = choices.elsewhere or choices.glibc or choices.platform
        for text in (
            *_of_glibc(needs, self.lock), *(() if elsewhere else _of_this_system(needs, choices))
        ):  # fmt: skip
            self.emit(Event("warning", stage, text))

    def _measure(self, prefix: Path) -> None:
        """Measure installed wheels with code for CUDA or a framework that have no row, and keep the rows."""
        kept, plan = MeasuredRows(get_cache_dir(self.choices)), self.lock.plan
        ours = {b.framework for b in plan.builds}
        ours |= {requirement_name(r) for b in plan.builds for r in b.requirements}
        for package in self.lock.packages:
            if package in self._measured or package.sha256 in kept or not is_compiled_wheel(package):
                continue
            if package.name in ours or _OF_NVIDIA.fullmatch(package.name):
                continue
            one = find_distribution(find_sites(prefix), normalize_name(package.name))
            if one is None or not (one.folder / "RECORD").is_file():
                continue  # it is not installed yet
            from ..profiles.measure.satellites import InstalledWheel  # few wheels are measured

            self._measured.add(package)
            files = [(row.name, Path(row.path)) for row in one.select_rows(".so")]
            wheel = InstalledWheel(
                package.name, package.version, files, one.requirements, plan.platform, plan.python or ""
            )
            if not wheel.needs_measuring():
                kept.keep(str(package.sha256), [])  # so that its libraries are not read again
            elif not SatelliteRows(rows.load(self.choices), plan.platform).rows(
                package.name, package.version
            ):
                text = f"measuring which libraries {package.name} {package.version} needs"
                self.emit(Event("start", "build", text))
                kept.keep(str(package.sha256), wheel.rows())


def _of_glibc(needs: dict[LockedPackage, SystemNeeds], lock: Lock) -> list[str]:
    has = lock.plan.target.glibc
    if not has:
        return []
    return [
        f"{package.name} {package.version} needs glibc {need.glibc}; the target has {has}"
        for package, need in needs.items()
        if need.exceeds(has)
    ]


def _of_this_system(needs: dict[LockedPackage, SystemNeeds], choices: Choices) -> list[str]:
    known = rows.load(choices, "system_libraries")
    named = {row.soname for row in known.system_libraries}
    wanted = {p: [n for n in need.libraries if n in named] for p, need in needs.items()}
    if not any(wanted.values()):
        return []
    from ..environment.loader import Loader
    from ..system.elf import ElfError

    try:
        loader = Loader(sys.executable, process.environ())
    except ElfError:
        return []  # not glibc: the search order of its loader is unknown
    there = {n: loader.finds(re.escape(n)) for names in wanted.values() for n in names}
    missing = {p: [n for n in names if not there[n]] for p, names in wanted.items()}
    missing = {p: names for p, names in missing.items() if names}
    if not missing:
        return []
    from ..verify import fixes

    known = rows.load(choices, *rows.FOR_FIXES)
    what = "; ".join(f"{p.name} {p.version} needs {', '.join(names)}" for p, names in missing.items())
    fix = fixes.describe_missing(
        {p.name: names for p, names in missing.items()}, known, fixes.read_distribution()
    )
    return [f"{what}, which this system does not have. {fix}"]


def measured_rows(lock: Lock | None, choices: Choices) -> tuple[Satellite, ...]:
    """Return the rows of a lock's wheels that were measured on this machine."""
    kept = MeasuredRows(get_cache_dir(choices))
    packages = lock.packages if lock else ()
    return tuple(row for p in packages for row in kept.rows(p.sha256, lock.plan.platform if lock else ""))
