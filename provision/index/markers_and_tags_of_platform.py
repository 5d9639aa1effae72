"""Marker variables (PEP 508) and wheel tags (PEP 425, PEP 600) of each platform."""

from __future__ import annotations

from packaging.tags import Tag, compatible_tags, cpython_tags

CPYTHON = {"implementation_name": "cpython", "platform_python_implementation": "CPython", "extra": ""}
_SYSTEMS = {
    "linux": {"sys_platform": "linux", "platform_system": "Linux", "os_name": "posix"},
    "windows": {"sys_platform": "win32", "platform_system": "Windows", "os_name": "nt"},
}
_OLD_TAGS = {17: "manylinux2014", 12: "manylinux2010", 5: "manylinux1"}


def markers_of(platform: str) -> dict[str, str]:
    """Return the variables that a platform decides ("linux-x86_64"). For a system without builds, return only the
    machine."""
    system, _, machine = platform.partition("-")
    return {**_SYSTEMS.get(system, {}), "platform_machine": "AMD64" if system == "windows" else machine}


def wheel_tags(python: str, platform: str, glibc: str | None) -> list[Tag]:
    """Return the tags that CPython of a minor version ("3.12") supports on a platform with a glibc, best first."""
    kind, _, machine = platform.partition("-")
    platforms = ["win_amd64"] if kind == "windows" else _manylinux(glibc or "2.17", machine)
    parts = tuple(int(p) for p in python.split("."))
    interpreter = "cp" + "".join(map(str, parts))
    return [*cpython_tags(parts, platforms=platforms), *compatible_tags(parts, interpreter, platforms)]


def _manylinux(glibc: str, machine: str) -> list[str]:
    tags = []
    for minor in range(int(glibc.split(".")[1]), min(_OLD_TAGS) - 1, -1):
        tags.append(f"manylinux_2_{minor}_{machine}")
        if minor in _OLD_TAGS:
            tags.append(f"{_OLD_TAGS[minor]}_{machine}")
    return [*tags, f"linux_{machine}"]
