"""The rows of wheels that no profile has: measured where they are installed, kept in the cache by their sha256."""

from __future__ import annotations

import dataclasses
import json
import os
import re
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path

from ..config import rows
from ..config.options import Choices, get_cache_dir
from ..environment.distributions import find_distribution, find_sites
from ..model import Emit, Event, Lock, LockedPackage, Satellite, normalize_name, requirement_name
from ..resolve.satellites import SatelliteRows
from ..system import trust
from ..system.cache import cache_folder
from ..wheels.pylock import file_name

_OF_NVIDIA = re.compile(r"(?:nvidia|cuda|jax-cuda\d*)-.*")


@dataclasses.dataclass
class MeasuredRows:
    """The measured rows of a platform in a cache folder."""

    cache: Path
    platform: str

    @cached_property
    def _folder(self) -> Path:
        return cache_folder(self.cache, "satellites")

    @cached_property
    def _digests(self) -> set[str]:
        """The digests with rows, from one listing of the folder, which mostly has none."""
        try:
            return {name.removesuffix(".json") for name in os.listdir(self._folder)}  # noqa: PTH208  # names alone
        except OSError:
            return set()

    def __contains__(self, sha256: str | None) -> bool:
        return sha256 in self._digests

    def rows(self, sha256: str | None) -> tuple[Satellite, ...]:
        """Return the rows of a wheel, or none for one that was not measured."""
        if sha256 not in self._digests:
            return ()
        try:
            kept = json.loads(trust.read_cached(self._folder / f"{sha256}.json"))
            # earlier versions kept columns that nothing reads any more
            rows = [
                Satellite.from_columns({k: row[k] for k in Satellite._fields if k in row}) for row in kept
            ]
        except (OSError, ValueError, TypeError, AttributeError):
            return ()
        return tuple(row for row in rows if row.platform == self.platform)

    def write(self, sha256: str, rows: Iterable[Satellite]) -> None:
        """Store the rows of a wheel. The cache is optional."""
        trust.write_cached(self._folder / f"{sha256}.json", json.dumps([row._asdict() for row in rows]))
        self._digests.add(sha256)


def read_rows(lock: Lock | None, choices: Choices) -> tuple[Satellite, ...]:
    """Return the rows of a lock's wheels that were measured on this machine."""
    if lock is None:
        return ()
    kept = MeasuredRows(get_cache_dir(choices), lock.plan.platform)
    return tuple(row for p in lock.packages for row in kept.rows(p.sha256))


def measure(lock: Lock, prefix: Path, choices: Choices, emit: Emit) -> None:
    """Measure the installed wheels of a lock that have code for CUDA or a framework and no row, and keep the rows."""
    plan = lock.plan
    kept = MeasuredRows(get_cache_dir(choices), plan.platform)
    ours = {b.framework for b in plan.builds}
    ours |= {requirement_name(r) for b in plan.builds for r in b.requirements}
    for package in lock.packages:
        if package.sha256 in kept or package.name in ours or _OF_NVIDIA.fullmatch(package.name):
            continue
        if not _is_compiled_wheel(package):
            continue
        one = find_distribution(find_sites(prefix), normalize_name(package.name))
        if one is None:
            continue
        from ..profiles.measure.satellites import InstalledWheel  # few wheels are measured

        files = [(row.name, Path(row.path)) for row in one.select_rows(".so")]
        wheel = InstalledWheel(
            package.name, package.version, files, one.requirements, plan.platform, plan.python or ""
        )
        if not wheel.needs_measuring():
            kept.write(str(package.sha256), [])  # so that its libraries are not read again
        elif not SatelliteRows(rows.load(choices), plan.platform).rows(package.name, package.version):
            text = f"measuring which libraries {package.name} {package.version} needs"
            emit(Event("start", "build", text))
            kept.write(str(package.sha256), wheel.rows())


def _is_compiled_wheel(package: LockedPackage) -> bool:
    """Return whether a package is a wheel with compiled files and a hash."""
    if package.is_conda or not package.sha256:
        return False
    name = file_name(package)
    return name.endswith(".whl") and not name.endswith("-any.whl")
