"""Measure downloaded wheels that no profile describes, and remember the result.

Measured are wheels with code for CUDA or a framework.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from ..config import options, rows
from ..config.options import Choices
from ..environment.distributions import find_distribution, find_sites
from ..model import Emit, Event, Lock, LockedPackage, Satellite, normalize_name
from ..wheels.system_needs import MeasuredRows, is_compiled_wheel

_OF_NVIDIA = re.compile(r"(?:nvidia|cuda|jax-cuda\d*)-.*")


@dataclass
class Measuring:
    """The measurement of a lock's wheels while they are installed, each once."""

    emit: Emit
    lock: Lock
    choices: Choices
    _seen: set[LockedPackage] = field(default_factory=set)

    def measure(self, prefix: Path) -> None:
        """Measure the wheels installed so far that have no row."""
        kept = MeasuredRows(options.get_cache_dir(self.choices))
        infos = {}
        for package in self.lock.packages:
            if package not in self._seen and package.sha256 not in kept and self._counts(package):
                infos[package] = _info(package, prefix)
        folders = {package: info for package, info in infos.items() if info}
        self._seen |= folders.keys()
        if folders:
            self._keep(folders, kept)

    def _keep(self, folders: dict[LockedPackage, Path], kept: MeasuredRows) -> None:
        from ..profiles.measure.satellites import InstalledWheel

        plan = self.lock.plan
        for package, info in folders.items():
            wheel = InstalledWheel(package.name, package.version, info, plan.platform, plan.python or "")
            if not wheel.needs_measuring():
                kept.keep(str(package.sha256), [])  # so that its libraries are not read again
            elif not self._has_row(package):
                text = f"measuring which libraries {package.name} {package.version} needs"
                self.emit(Event(kind="start", stage="build", text=text))
                kept.keep(str(package.sha256), wheel.rows())

    def _counts(self, package: LockedPackage) -> bool:
        """Return whether a package is a compiled wheel that is not part of a framework's build or of CUDA."""
        planned = {b.framework for b in self.lock.plan.builds}
        planned |= {
            canonicalize_name(Requirement(r).name) for b in self.lock.plan.builds for r in b.requirements
        }
        theirs = package.name in planned or _OF_NVIDIA.fullmatch(package.name)
        return is_compiled_wheel(package) and not theirs

    def _has_row(self, package: LockedPackage) -> bool:
        """Return whether the profiles have a row of this minor version."""
        return any(
            row.package == package.name and row.platform == self.lock.plan.platform
            and _series(row.version) == _series(package.version)
            for row in rows.load_all(self.choices).satellites
        )  # fmt: skip


def measured_rows(lock: Lock | None, choices: Choices) -> tuple[Satellite, ...]:
    """Return the rows of a lock's wheels that were measured on this machine."""
    kept = MeasuredRows(options.get_cache_dir(choices))
    packages = lock.packages if lock else ()
    return tuple(row for p in packages for row in kept.of([p.sha256], lock.plan.platform if lock else ""))


def _series(version: str) -> list[str]:
    return version.partition("+")[0].split(".")[:2]


def _info(package: LockedPackage, prefix: Path) -> Path | None:
    """Return the dist-info folder of a package, or None if it is not installed yet."""
    one = find_distribution(find_sites(prefix), normalize_name(package.name))
    return one.folder if one and (one.folder / "RECORD").is_file() else None
