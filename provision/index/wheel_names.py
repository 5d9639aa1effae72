"""Tags and markers of platforms, and wheels in folders. This module imports no HTTP, because every plan uses it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path

from packaging.markers import Marker
from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import InvalidWheelFilename

from .. import model
from ..errors import LockError
from ..system import grants, process
from ..system.wheel_file import WheelName, parse_wheel

_CPYTHON = {"implementation_name": "cpython", "platform_python_implementation": "CPython", "extra": ""}
_SYSTEMS = {
    "linux": {"sys_platform": "linux", "platform_system": "Linux", "os_name": "posix"},
    "windows": {"sys_platform": "win32", "platform_system": "Windows", "os_name": "nt"},
}
_OLD_TAGS = {17: "manylinux2014", 12: "manylinux2010", 5: "manylinux1"}
"""PEP 513, 571 and 599: the minor glibc 2 behind the tags that do not say it."""


def markers_of(platform: str) -> dict[str, str]:
    """Return the variables that a platform decides ("linux-x86_64"). For a system without builds, return only the
    machine."""
    system, _, machine = platform.partition("-")
    return {**_SYSTEMS.get(system, {}), "platform_machine": "AMD64" if system == "windows" else machine}


def cpython_markers(platform: str, python: str | None) -> dict[str, str]:
    """Return the variables that a platform and CPython of a minor version ("3.12", or None if not known) decide."""
    versions = {"python_version": python, "python_full_version": f"{python}.0"} if python else {}
    return {**markers_of(platform), **_CPYTHON, **versions}


def applies(marker: Marker | None, known: Mapping[str, str], extras: Iterable[str] = ("",)) -> bool:
    """Return whether a marker holds with some variables, for one of the extras."""
    return marker is None or any(marker.evaluate({**known, "extra": extra}) for extra in extras)


@cache
def wheel_tags(python: str, platform: str, glibc: str | None) -> Mapping[Tag, int]:
    """Return the tags that CPython of a minor version ("3.12", free-threaded "3.14t") supports on a platform with a glibc,
    each with its rank, the best first."""
    kind, _, machine = platform.partition("-")
    platforms = ["win_amd64"] if kind == "windows" else _manylinux(glibc or model.ASSUMED_GLIBC, machine)
    parts = tuple(int(p) for p in python.rstrip("t").split("."))
    interpreter = "cp" + "".join(map(str, parts))
    abis = [f"{interpreter}t"] if python.endswith("t") else None
    tags = (*cpython_tags(parts, abis, platforms), *compatible_tags(parts, interpreter, platforms))
    return {tag: rank for rank, tag in enumerate(tags)}


def tags_of(file: str) -> frozenset[Tag]:
    """Return the tags of a wheel, or none for a source archive and a name that no installer takes."""
    try:
        return parse_wheel(file).tags
    except InvalidWheelFilename:
        return frozenset()


def rank_wheel(wheel: WheelName, tags: Mapping[Tag, int]) -> tuple[int, int] | None:
    """Return the sort key of a wheel by its best tag, or None if none is supported.

    A later build tag replaces an earlier upload of the same wheel (PEP 427).
    """
    best = min((tags[t] for t in wheel.tags if t in tags), default=None)
    return None if best is None else (best, -(wheel.build[0] if wheel.build else 0))


def _manylinux(glibc: str, machine: str) -> list[str]:
    tags = []
    for minor in range(int(glibc.split(".")[1]), min(_OLD_TAGS) - 1, -1):
        tags.append(f"manylinux_2_{minor}_{machine}")
        if minor in _OLD_TAGS:
            tags.append(f"{_OLD_TAGS[minor]}_{machine}")
    return [*tags, f"linux_{machine}"]


def glibc_of(tag: str) -> tuple[int, int] | None:
    """Return the glibc that a platform tag requires, (2, 28) for "manylinux_2_28_x86_64", or None without one."""
    if match := re.match(r"manylinux_(\d+)_(\d+)_", tag):
        return int(match[1]), int(match[2])
    return next(((2, minor) for minor, name in _OLD_TAGS.items() if tag.startswith(f"{name}_")), None)


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
        wheel = parse_wheel(filename)
    except InvalidWheelFilename:
        return None
    if wheel.label:
        return None  # uv takes no variant from a folder
    tags = tuple(sorted(map(str, wheel.tags)))
    return model.AvailableWheel(name=wheel.name, version=str(wheel.version), url=url, tags=tags)


def expand_address(package: model.LockedPackage) -> str:
    """Return a package's address with the values of its variables. Raises GrantError, MissingVariableError."""
    return grants.expand(package.url, f"the lock's address of {package.name}", process.environ())
