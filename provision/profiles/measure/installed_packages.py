"""Measures the compiled libraries of installed packages, as rows of profiles/satellites.yaml."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from packaging.metadata import parse_email
from packaging.utils import canonicalize_name

from provision.model import FRAMEWORKS, Satellite, from_plain
from provision.system import untrusted
from provision.system.elf import ElfError, read_elf

from . import evaluate_wheel_requirements as rq, interpret_library_symbols
from .satellites import WheelContext, framework_of, wheel_rows
from .wheel_libraries import LIBRARY, measure_files

_OF_FRAMEWORKS = ("libtorch", "libc10", "libtensorflow")


@dataclass(frozen=True)
class InstalledWheel:
    """A package in site-packages: its `info` folder (NAME-VERSION.dist-info), and the platform and Python of the
    environment."""

    package: str
    version: str
    info: Path
    platform: str
    python: str

    def needs_measuring(self) -> bool:
        """Return whether the package requires a framework, or has libraries that are linked to CUDA or a
        framework."""
        needed = {
            canonicalize_name(r.name) for r, _ in rq.required(self._requires, self.platform, [self.python])
        }
        return bool(self._libraries) and (
            not needed.isdisjoint(FRAMEWORKS) or any(map(_is_linked, self._libraries))
        )

    def rows(self) -> list[Satellite]:
        """Return the rows of the package. If its libraries contradict each other or are damaged, return one
        without facts."""
        row: dict[str, Any] = {
            "package": self.package, "version": self.version, "platform": self.platform, "index": "pypi", "form": "wheel",
            "pythons": [self.python],
        }  # fmt: skip
        site = self.info.parent
        try:
            files = ((p.relative_to(site).as_posix(), functools.partial(_open, p)) for p in self._libraries)
            fact: dict[str, Any] = {
                "libraries": measure_files(files),
                "requires": self._requires,
                "requires_python": "",
            }
            measured = [row | part for part in wheel_rows(WheelContext(self.package), fact)]
            built_for = framework_of(fact)
        except (ValueError, OSError):
            return [_make_satellite(row)]
        stated = {"built_for": built_for} if built_for else {}
        return [_make_satellite(_drop_names(one) | stated) for one in measured]

    @functools.cached_property
    def _requires(self) -> Sequence[str]:
        try:
            return parse_email(untrusted.read_text(self.info / "METADATA"))[0].get("requires_dist", [])
        except (OSError, ValueError):
            return []

    @functools.cached_property
    def _libraries(self) -> list[Path]:
        """The libraries that RECORD lists, inside site-packages."""
        return [self.info.parent / row for row in self._list_recorded() if (self.info.parent / row).is_file()]

    def _list_recorded(self) -> Iterator[str]:
        try:
            lines = untrusted.read_text(self.info / "RECORD").splitlines()
        except (OSError, ValueError):
            return
        for line in lines:
            row = line.rsplit(",", 2)[0].strip('"')
            if LIBRARY.fullmatch(row) and not row.startswith("/") and ".." not in row.split("/"):
                yield row


def _is_linked(library: Path) -> bool:
    """Return whether a library needs a library of NVIDIA or of a framework."""
    try:
        needed = read_elf(str(library)).needed
    except (ElfError, OSError):
        return False
    return any(interpret_library_symbols.NVIDIA.fullmatch(n) or n.startswith(_OF_FRAMEWORKS) for n in needed)


def _open(path: Path) -> IO[bytes]:
    return path.open("rb")


def _drop_names(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row without facts that only come from names in the code. These may be alternatives."""
    opened = {n for n in ("cuda", "cudnn") if row.get(f"{n}_by") == "dlopen"}
    return {n: v for n, v in row.items() if n.removesuffix("_by") not in opened}


def _make_satellite(row: dict[str, Any]) -> Satellite:
    values = dict(row)
    if "kernels" in values:
        values["kernels"] = values["kernels"].split()
    return from_plain(Satellite, values)
