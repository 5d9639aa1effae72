"""Find conda packages in a bundle, whose folders are channels, and record their original addresses."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable
from pathlib import Path

from ..model import LockedPackage
from ..system.untrusted import file_name_of_url, last_segments
from ..system.write_inside_folder import write_file


def channel_file(package: LockedPackage) -> str:
    """Return the path of a conda package in a bundle: "channel/conda-forge/linux-64/NAME.conda"."""
    *channel, subdir, file = last_segments(package.url, 3, hidden=True)
    return f"channel/{channel[0] if channel else 'channel'}/{subdir}/{file}"


def local_packages(packages: Iterable[LockedPackage], folder: Path) -> tuple[LockedPackage, ...]:
    """Return a lock's packages with addresses in the bundle: conda packages, and wheels without an index."""

    def moved(package: LockedPackage) -> LockedPackage:
        if package.is_conda:
            return dataclasses.replace(package, url=(folder / channel_file(package)).resolve().as_uri())
        if package.index is None:
            wheel = folder / "wheels" / file_name_of_url(package.url)
            return dataclasses.replace(package, url=wheel.resolve().as_uri())
        return package

    return tuple(map(moved, packages))


def name_origins(prefix: Path, packages: Iterable[LockedPackage], folder: Path) -> None:
    """Write the lock's addresses into conda-meta in place of the bundle's, which may not exist later."""
    packages = tuple(packages)
    origins = {here.url: p.url for p, here in zip(packages, local_packages(packages, folder), strict=True)}
    for path in (prefix / "conda-meta").glob("*.json"):
        data = json.loads(path.read_text(encoding="utf-8"))
        origin = origins.get(data.get("url") or "")
        if origin:
            addresses = {"url": origin, "channel": origin.rsplit("/", 2)[0]}
            write_file(path, json.dumps(data | addresses, indent=2) + "\n", root=prefix)
