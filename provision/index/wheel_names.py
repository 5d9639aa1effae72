"""What names of wheels say: their version, tags and builds. This module imports no HTTP, because every plan uses it."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Protocol

from packaging.specifiers import SpecifierSet
from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from .. import model
from ..errors import LockError
from ..model import BuiltFor, CxxAbi, WheelGlibc, WheelPage
from ..system import grants, process

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


_FIELDS = {
    "minor": r"(?P<minor>\d+\.\d+)",
    "digits": r"(?P<digits>\d{2,3})",
    "label": r"(?P<label>cpu|cu\d{2,3})",
    "cuda": r"(?P<cuda>\d\d)\d?",
    "abi": "(?P<abi>true|false)",
}


class FrameworkBuild(Protocol):
    """A build of the profiles or of a plan."""

    @property
    def framework(self) -> str:
        """The name of the framework."""

    @property
    def version(self) -> str:
        """The version without local label."""

    @property
    def cuda(self) -> str | None:
        """The CUDA release, or None for a CPU build."""


def read_name(page: WheelPage, file: str) -> tuple[str, BuiltFor] | None:
    """Return the version and the builds of a wheel of a page, or None for a file of another package or form."""
    try:
        name, version, _, _ = parse_wheel_filename(file)
    except (InvalidWheelFilename, InvalidVersion):
        return None
    if (
        page.local is None
        or version.local is None
        or name not in [canonicalize_name(p) for p in page.packages]
    ):
        return None
    match = _pattern(page.local).fullmatch(version.local)
    if match is None:
        return None
    parts = match.groupdict()
    digits, abi = parts.get("digits"), parts.get("abi")
    return version.public, BuiltFor(
        framework=page.framework, minor=parts.get("minor") or (f"{digits[0]}.{digits[1:]}" if digits else ""),
        label=parts.get("label"), cuda=parts.get("cuda"), cxx11={"true": "1", "false": "0"}.get(abi or ""),
    )  # fmt: skip


@functools.cache
def _pattern(rule: str) -> re.Pattern[str]:
    """Return the pattern of a local version in its normal form, which is lower case."""
    texts = re.split(r"\{(\w+)\}", rule)
    parts = [_FIELDS[text] if i % 2 else re.escape(text.lower()) for i, text in enumerate(texts)]
    return re.compile("".join(parts))


def serves(built_for: BuiltFor, build: FrameworkBuild, cxx11: str | None) -> bool:
    """Return whether a wheel is compiled for a build. `cxx11` is the build's C++11 string ABI, or None if unknown."""
    release = tuple(map(int, built_for.minor.split(".")))
    if built_for.framework != build.framework or Version(build.version).release[:2] != release:
        return False
    if built_for.label is not None and built_for.label != label_of(build.cuda):
        return False
    if built_for.cuda is not None and built_for.cuda != (build.cuda or "").split(".")[0]:
        return False
    return None in (built_for.cxx11, cxx11) or built_for.cxx11 == cxx11


def find_cxx11(rows: Iterable[CxxAbi], build: FrameworkBuild, platform: str) -> str | None:
    """Return the C++11 string ABI of a build on a platform, or None without a row for it."""
    for row in rows:
        if row.framework != build.framework or platform != (row.platform or platform):
            continue
        if row.cuda in (None, build.cuda) and SpecifierSet(row.versions).contains(
            build.version, prereleases=True
        ):
            return row.cxx11
    return None


def find_glibc(rows: Iterable[WheelGlibc], package: str, release: str) -> str | None:
    """Return the oldest glibc for the wheels of a release, None where no row has it."""
    for row in rows:
        if row.package == package and SpecifierSet(row.versions).contains(release, prereleases=True):
            return row.glibc
    return None


def label_of(cuda: str | None) -> str:
    """Return the local label of a build: "cu128", "cpu"."""
    return f"cu{cuda.replace('.', '')}" if cuda else "cpu"
