"""Compares the requirements of a built package with those of its lock."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from packaging.metadata import parse_email
from packaging.requirements import InvalidRequirement

from ..errors import BuildError
from ..lock.stated import applying, list_extras
from ..model import LockedPackage, PackageSources, Plan, normalize_name
from ..system import untrusted_files
from .read_source_archives import SourceArchives


def check_built(package: LockedPackage, plan: Plan, env: Path, sources: PackageSources) -> None:
    """Raise BuildError if a package built from a source archive has other requirements than the lock.

    The built requirements are stored by the hash of the archive, and the next solve uses them.
    """
    if not package.depends:
        return
    stated = package.depends[1:]  # the first one is Python
    for path in _find_metadata(package, env):
        try:
            about, _ = parse_email(untrusted_files.read_bytes(path))
            every = about.get("requires_dist") or ()
            built = applying(every, plan, list_extras(stated))
        except (OSError, InvalidRequirement, RecursionError) as error:
            raise BuildError(
                f"the metadata of the built {package.name} {package.version} cannot be read: {error}",
                hint=f"remove {package.name}, or request another release of it",
            ) from error
        if _strip_markers(built) != _strip_markers(stated):
            SourceArchives(sources).correct(package, every)
            raise BuildError(
                f"the built {package.name} {package.version} requires {_describe(built)}; the lock was solved with the "
                f"requirements of its source archive: {_describe(stated)}",
                hint=f"lock again: gpuenv lock; it then uses the requirements of the built {package.name}",
            )


def _find_metadata(package: LockedPackage, env: Path) -> Iterator[Path]:
    """Yield the package's metadata in an environment, or in a folder with unpacked packages."""
    paths = (*env.glob("lib*/python3*/site-packages/*.dist-info/METADATA"), *env.glob("*.dist-info/METADATA"))
    for path in paths:
        if normalize_name(path.parent.name.partition("-")[0]) == normalize_name(package.name):
            yield path


def _strip_markers(requires: tuple[str, ...]) -> set[str]:
    """Return requirements without their markers, which apply on both sides."""
    return {text.partition(" ; ")[0] for text in requires}


def _describe(requires: tuple[str, ...]) -> str:
    return ", ".join(sorted(_strip_markers(requires))) or "no package"
