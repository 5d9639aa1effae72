"""What indexes have of a package, in words: asked only after a solver could not find it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from packaging.utils import InvalidWheelFilename, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from ..errors import LockError
from ..system.redaction import redact
from .simple import project_files

if TYPE_CHECKING:
    from .http import Http
    from .simple import File


def holdings(http: Http, indexes: Iterable[str], package: str) -> list[str]:
    """A sentence for each index: which versions it has, that it has none, or why it cannot tell."""
    told = []
    for index in dict.fromkeys(indexes):
        try:
            found = _versions(project_files(http, index, package))
        except LockError as error:
            told.append(error.message.rstrip("."))
            continue
        where = redact(index)
        if not found:
            told.append(f"{where} has no wheel of {package}")
        elif len(found) == 1:
            told.append(f"{where} has {package} {found[0]} only")
        else:
            told.append(f"{where} has {len(found)} versions of {package}, {found[0]} to {found[-1]}")
    return told


def _versions(files: Iterable[File]) -> list[Version]:
    """The versions that have a wheel, oldest first."""
    found = set()
    for file in files:
        try:
            found.add(parse_wheel_filename(file.name)[1])
        except (InvalidWheelFilename, InvalidVersion):
            continue
    return sorted(found)
