"""Lists the compiled files of installed packages, and the modules that Python imports from them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from packaging.markers import UndefinedEnvironmentName
from packaging.requirements import InvalidRequirement, Requirement

from ...environment.distributions import Distribution, list_distributions
from ...model import WHEEL_NAMES, normalize_name
from ...system import untrusted

_ROW = re.compile(r"^([^,\"\n]+\.so(?:\.[0-9]+)*),", re.MULTILINE)
_TOP = re.compile(r"^([A-Za-z_]\w*)(?:/__init__)?\.(?:py|so|[\w-]+\.so),", re.MULTILINE)
_DEPENDS = re.compile(r'"depends": ?\[([^\]]*)\]')
_META = re.compile(r'"_path": ?"(lib/python3[^/"]*/site-packages/[^"]+\.so(?:\.[0-9]+)*)"')


@dataclass(frozen=True)
class Package:
    """An installed package. `files` are the absolute paths of its shared libraries.

    `site` is the folder that Python imports them from. `folder` is its dist-info. A conda package has none, and
    has `depends`.
    """

    name: str
    version: str
    site: str
    files: tuple[str, ...]
    folder: str | None = None
    depends: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.name} {self.version}"

    @cached_property
    def _info(self) -> Distribution | None:
        return Distribution(self.name, self.version, Path(self.folder)) if self.folder else None

    @cached_property
    def requires(self) -> tuple[str, ...]:
        """The names of its requirements, whatever their markers."""
        return tuple(dict.fromkeys((*self.depends, *(self._info.requires if self._info else ()))))

    def requires_always(self, python: str) -> tuple[str, ...]:
        """Return the names of its requirements on this machine without extras, for a version of Python."""
        rows = self._info.requirements if self._info else ()
        return tuple(
            dict.fromkeys((*self.depends, *(n for row in rows if (n := _name_if_required(row, python)))))
        )

    @cached_property
    def modules(self) -> tuple[str, ...]:
        """The top-level modules that it contains."""
        return tuple(dict.fromkeys(_TOP.findall(self._info.record_text if self._info else "")))


def _name_if_required(row: str, python: str) -> str | None:
    try:
        needed = Requirement(row)
        minor = ".".join(python.split(".")[:2])
        values = {"extra": "", "python_version": minor, "python_full_version": python}
        applies = needed.marker is None or needed.marker.evaluate(values)
    except (InvalidRequirement, UndefinedEnvironmentName):
        return None
    return normalize_name(needed.name) if applies else None


def list_packages(sites: Sequence[str], prefix: str) -> tuple[Package, ...]:
    """Return the packages with their compiled files, from conda-meta and from RECORD. Each file has one owner."""
    claimed: set[str] = set()
    packages = []
    for package in (*_read_conda(prefix, sites), *_read_records(sites)):
        files = tuple(f for f in package.files if f not in claimed)
        claimed.update(files)
        packages.append(replace(package, files=files))
    return tuple(packages)


def _read_records(sites: Sequence[str]) -> Iterator[Package]:
    for site in sites:
        for one in list_distributions(site):
            files = tuple(_join_paths(site, _ROW.findall(one.record_text)))
            yield Package(one.name, one.version, site, files, str(one.folder))


def _join_paths(folder: str, rows: Iterable[str]) -> Iterator[str]:
    for row in rows:
        if "\0" not in row:
            yield (
                f"{folder}/{row}"
                if ".." not in row and row[0] != "/"
                else os.path.normpath(f"{folder}/{row}")
            )


def _read_conda(prefix: str, sites: Sequence[str]) -> Iterator[Package]:
    """Yield the packages in conda-meta with files in site-packages. A conda package may have no RECORD."""
    meta = f"{prefix}/conda-meta"
    for name in list_names(meta):
        stem = name.removesuffix(".json")
        if stem == name or stem.count("-") < 2:
            continue
        try:
            text = untrusted.read_text(Path(meta, name))
        except OSError:
            continue
        files = tuple(_join_paths(prefix, _META.findall(text)))
        package, version, _ = stem.rsplit("-", 2)
        site = next((s for s in sites if files and files[0].startswith(f"{s}/")), None)
        if site:
            words = re.findall(r'"([\w.-]+)', next(iter(_DEPENDS.findall(text)), ""))
            yield Package(_name_wheel(package), version, site, files, depends=tuple(map(_name_wheel, words)))


def _name_wheel(name: str) -> str:
    """Return the name of the wheel for a conda package."""
    return normalize_name(WHEEL_NAMES.get(name, name))


def list_names(folder: str) -> list[str]:
    """Return the names in a folder; empty if it cannot be read."""
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def parse_module(path: str, site: str, python: str) -> tuple[str, bool] | None:
    """Return the module that Python `python` ("3.12.4") imports from a file, and whether the name alone shows
    it.

    A plain ".so" is a module only if it exports its PyInit function. Return None if the file is a module of
    another Python, or no module.
    """
    if not path.startswith(f"{site}/"):
        return None
    *parents, name = path[len(site) + 1 :].split("/")
    stem, _, suffix = name.partition(".")
    tag = f"cpython-{''.join(python.split('.')[:2])}"
    tagged = suffix == "abi3.so" or re.fullmatch(rf"{tag}(-[\w-]+)?\.so", suffix) is not None
    if not (tagged or suffix == "so") or not all(p.isidentifier() for p in (*parents, stem)):
        return None
    return ".".join((*parents, stem)), tagged
