"""Searches the measured releases of profiles/satellites.yaml for one that fits an environment."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.version import InvalidVersion, Version

from ...model import Satellite
from ...system.loader_cache import loader_cache
from .compiled_files import Package, list_names

_OF_THE_DRIVER = {"libcuda.so.1", "libnvidia-ml.so.1"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Beside:
    """The contents of an environment: its Python ("3.12"), the versions of its packages, and the names of its
    libraries.

    `system` are the libraries of the system's loader cache. `platform` and `glibc` are those of the machine.
    """

    python: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    libraries: frozenset[str] = frozenset()
    system: frozenset[str] = frozenset()
    platform: str = ""
    glibc: str | None = None


def beside(packages: Sequence[Package], python: str, prefix: str, root: Path = Path("/")) -> Beside:
    """Read the contents of an environment. `python` is its version, `root` the system's root folder."""
    machine = platform.machine()
    names = {f.rpartition("/")[2] for p in packages for f in p.files}
    return Beside(
        python=".".join(python.split(".")[:2]),
        versions={p.name: p.version for p in packages},
        libraries=frozenset(names.union(list_names(f"{prefix}/lib"))),
        system=frozenset(name for name, _ in loader_cache(root, machine)),
        platform=f"linux-{machine}",
        glibc=(os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")[2] or None,
    )


def select_rows(package: Package, rows: Iterable[Satellite], here: Beside) -> list[Satellite]:
    """Return the rows of the installed release, on this platform."""
    return [
        row
        for row in rows
        if row.package == package.name
        and row.platform == here.platform
        and _is_release(row.version, package.version)
    ]


def find_fitting_release(package: Package, rows: Iterable[Satellite], here: Beside) -> Satellite | None:
    """Return the newest measured release that fits the environment's framework, CUDA, Python and glibc.

    Return None if none fits, or only the installed one.
    """
    fitting = [r for r in rows if r.package == package.name and r.form == "wheel" and _is_fitting(r, here)]
    newest = max(fitting, key=lambda r: Version(r.version), default=None)
    return None if newest is None or _is_release(newest.version, package.version) else newest


def find_other_framework(
    package: Package, rows: Iterable[Satellite], versions: Mapping[str, str], machine: str
) -> tuple[str, str] | None:
    """Return the framework that a measured wheel was built for, and the installed one of another release.

    Return None if they agree, or one of them is unknown. `machine` is that of the platform.
    """
    measured = [
        row
        for row in rows
        if row.package == package.name and row.form == "wheel" and row.abi
        and row.platform == f"linux-{machine}" and _is_release(row.version, package.version)
    ]  # fmt: skip
    wanted = [w for row in measured if (w := parse_framework(row))]
    if not wanted or wanted[0].name not in versions:
        return None
    installed = versions[wanted[0].name]
    if any(_is_allowed(w, versions.get(w.name)) for w in wanted):
        return None
    return str(wanted[0]), f"{wanted[0].name} {installed}"


def parse_framework(row: Satellite) -> Requirement | None:
    """Return the framework that a release was built for."""
    try:
        return Requirement(row.built_for) if row.built_for else None
    except InvalidRequirement:
        return None


def _is_fitting(row: Satellite, here: Beside) -> bool:
    return (
        row.platform == here.platform
        and any(_has_python(text, here.python) for text in row.pythons)
        and not (row.glibc and here.glibc and Version(row.glibc) > Version(here.glibc))
        and set(row.needs) - _OF_THE_DRIVER <= here.libraries | here.system
        and _has_framework(row, here)
    )


def _has_python(text: str, python: str) -> bool:
    """Return whether a wheel for "3.12", or for "3.10+" and later, supports a Python."""
    return Version(python) >= Version(text[:-1]) if text.endswith("+") else text == python


def _has_framework(row: Satellite, here: Beside) -> bool:
    wanted = parse_framework(row)
    if wanted is None:
        return not row.built_for
    return _is_allowed(wanted, here.versions.get(wanted.name))


def _is_allowed(wanted: Requirement, version: str | None) -> bool:
    """Return whether a requirement allows an installed version without its local label."""
    return version is not None and wanted.specifier.contains(version.partition("+")[0], prereleases=True)


def _is_release(row: str, installed: str) -> bool:
    """Return whether a row's version is the installed one, whatever its local label."""
    try:
        return Version(row) == Version(installed.partition("+")[0])
    except InvalidVersion:
        return row == installed
