"""Conda packages in a bundle: folders that are channels, and packages that point into them."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable
from pathlib import Path

from ..model import LockedPackage
from ..system.path_names import file_name_of_url, last_segments
from ..system.safe_write import write_file


def channel_file(package: LockedPackage) -> str:
    """Where a conda package lies in a bundle: "channel/conda-forge/linux-64/NAME.conda"."""
    *channel, subdir, file = last_segments(package.url, 3, hidden=True)
    return f"channel/{channel[0] if channel else 'channel'}/{subdir}/{file}"


def local_packages(packages: Iterable[LockedPackage], folder: Path) -> tuple[LockedPackage, ...]:
    """A lock's packages where the bundle has them: those of conda, and wheels that have an address of their
    own in place of an index."""

    def moved(package: LockedPackage) -> LockedPackage:
        if package.is_conda:
            return dataclasses.replace(package, url=(folder / channel_file(package)).resolve().as_uri())
        if package.index is None:
            wheel = folder / "wheels" / file_name_of_url(package.url)
            return dataclasses.replace(package, url=wheel.resolve().as_uri())
        return package

    return tuple(map(moved, packages))


def name_origins(prefix: Path, packages: Iterable[LockedPackage], folder: Path) -> None:
    """Write into conda-meta where the lock has a conda environment's packages from, in place of the bundle:
    conda goes on from there, and the bundle may be gone by then."""
    packages = tuple(packages)
    origins = {here.url: p.url for p, here in zip(packages, local_packages(packages, folder), strict=True)}
    for path in (prefix / "conda-meta").glob("*.json"):
        data = json.loads(path.read_text(encoding="utf-8"))
        origin = origins.get(data.get("url") or "")
        if origin:
            told = {"url": origin, "channel": origin.rsplit("/", 2)[0]}
            write_file(path, json.dumps(data | told, indent=2) + "\n", root=prefix)
