"""Folders of wheels on disk, and the address of a locked file.

This module imports no HTTP, because every plan uses it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename

from .. import model
from ..errors import LockError
from ..system import grants, process


def find_links(places: Sequence[str | Path]) -> tuple[model.AvailableWheel, ...]:
    """Return the wheels in folders (or wheel files) on disk, sorted by file name. Other files are ignored.

    Raises LockError for a folder that does not exist.
    """
    wheels: list[model.AvailableWheel] = []
    for place in places:
        path = Path(str(place).removeprefix("file://"))
        if not path.exists():
            raise LockError(
                f"the folder of wheels {path} does not exist", hint="check --find-links and pip.conf"
            )
        files = sorted(path.glob("*.whl")) if path.is_dir() else [path]
        wheels += filter(None, (parse_wheel_name(f.name, f.resolve().as_uri()) for f in files))
    return tuple(wheels)


def parse_wheel_name(filename: str, url: str) -> model.AvailableWheel | None:
    """Return a wheel by its file name, or None for a name that is not a wheel's."""
    try:
        name, version, _, tags = parse_wheel_filename(filename)
    except InvalidWheelFilename:
        return None
    return model.AvailableWheel(
        name=canonicalize_name(name), version=str(version), url=url, tags=tuple(sorted(map(str, tags)))
    )


def expand_address(package: model.LockedPackage) -> str:
    """Return a package's address with the values of its variables. Raises GrantError, MissingVariableError."""
    return grants.expand(package.url, f"the lock's address of {package.name}", process.environ())
