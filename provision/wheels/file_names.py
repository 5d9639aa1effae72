"""The file names in a lock's addresses. Bundles, caches and environments write files of these names."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlsplit

from ..model import Package, check_forms
from ..system.path_names import UnsafeNameError, last_segments

_CONDA_SEGMENTS = 3  # channel, platform and file


def check_all(packages: Sequence[Package], key: str) -> None:
    """Raise ValueError for a package whose texts or file name cannot be one; `key` is the list's name."""
    for position, package in enumerate(packages):
        check_forms(package, f"{key}[{position}]")
        urlsplit(package.index or "")  # raises ValueError for what is no address
        check(package)


def check(package: Package) -> Package:
    """Return a package whose address ends in a file name. Raises UnsafeNameError, ValueError for no address."""
    is_conda = package.url.endswith((".conda", ".tar.bz2"))
    try:
        if package.unhashed:  # a folder or a commit: its address ends in no file name
            urlsplit(package.url)
        else:
            last_segments(package.url, _CONDA_SEGMENTS if is_conda else 1, hidden=True)
    except UnsafeNameError as error:
        raise UnsafeNameError(
            f"{package.name} {package.version}: {error.message}", hint=error.hint
        ) from error
    return package
