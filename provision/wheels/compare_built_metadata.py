"""Compares the requirements of a built package with those of its lock."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from packaging.metadata import parse_email
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from ..errors import BuildError
from ..index.markers_and_tags_of_platform import CPYTHON, markers_of
from ..model import LockedPackage, PackageSources, Plan, normalize_name
from ..system import untrusted
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
            about, _ = parse_email(untrusted.read_bytes(path))
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


def applying(requires: Iterable[str], plan: Plan, extras: Iterable[str] | None) -> tuple[str, ...]:
    """Return the requirements that apply to a plan's Python and platform, in one spelling.

    `extras` None means all extras.
    """
    versions = {"python_version": plan.python or "", "python_full_version": f"{plan.python}.0"}
    markers = markers_of(plan.platform) | CPYTHON | versions
    lines: dict[str, None] = {}
    for text in requires:
        need = Requirement(text)
        applied = ["", *(list_extras([text]) if extras is None else extras)]
        if need.marker is None or any(need.marker.evaluate({**markers, "extra": e}) for e in applied):
            lines[_spell(need)] = None
    return tuple(sorted(lines))


def _spell(need: Requirement) -> str:
    """Return a requirement as "NAME SPECIFIER ; MARKER", which is valid for conda and PEP 508."""
    extras = f"[{','.join(sorted(need.extras))}]" if need.extras else ""
    target = f"@ {need.url}" if need.url else ",".join(sorted(map(str, need.specifier)))
    line = f"{canonicalize_name(need.name)}{extras} {target}".rstrip()
    return f"{line} ; {need.marker}" if need.marker else line


def list_extras(requires: Iterable[str]) -> list[str]:
    """Return the extras that the markers of requirements name."""
    return sorted({e for text in requires for e in re.findall(r"""extra\s*==\s*["']([\w.-]+)["']""", text)})


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
