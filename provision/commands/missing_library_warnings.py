"""Warn before the install about libraries that wheels need and the target lacks."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ..config import rows
from ..config.options import Choices
from ..model import Emit, Event, Lock, LockedPackage, PackageSources
from ..system import process
from ..wheels.system_needs import SystemNeeds, needs_of, needs_of_installed


@dataclass
class MissingLibraries:
    """The system libraries that wheels of a lock need and the target lacks.

    Each wheel is reported once, as soon as it can be read. For another machine only glibc is known. `folders`
    contain wheels.
    """

    emit: Emit
    lock: Lock
    choices: Choices
    sources: PackageSources
    folders: Sequence[Path] = ()
    _read: set[LockedPackage] = field(default_factory=set)

    def warn(self) -> None:
        """Warn about the wheels that are on this machine or were read before."""
        if not self._unread():
            return
        self._warn(needs_of(self._unread(), self.sources, self.folders), "lock")

    def warn_of_installed(self, prefix: Path) -> None:
        """Warn about the wheels that are installed so far."""
        if not self._unread():
            return
        self._warn(needs_of_installed(self._unread(), prefix, self.sources), "build")

    def _unread(self) -> list[LockedPackage]:
        """Return the packages to read. A conda lock has none, because conda packages bring system libraries."""
        if any(package.is_conda for package in self.lock.packages):
            return []
        return [package for package in self.lock.packages if package not in self._read]

    def _warn(self, needs: dict[LockedPackage, SystemNeeds], stage: str) -> None:
        self._read |= needs.keys()
        choices = self.choices
        elsewhere = choices.elsewhere or choices.glibc or choices.platform
        for text in (
            *_of_glibc(needs, self.lock), *(() if elsewhere else _of_this_system(needs, choices))
        ):  # fmt: skip
            self.emit(Event(kind="warning", stage=stage, text=text))


def _of_glibc(needs: dict[LockedPackage, SystemNeeds], lock: Lock) -> list[str]:
    has = lock.plan.target.glibc
    if not has:
        return []
    return [
        f"{package.name} {package.version} needs glibc {need.glibc}; the target has {has}"
        for package, need in needs.items()
        if need.exceeds(has)
    ]


def _of_this_system(needs: dict[LockedPackage, SystemNeeds], choices: Choices) -> list[str]:
    from ..system.elf import ElfError
    from ..verify import fixes
    from ..verify.loader import Loader

    known = rows.load_for_verdict(choices)
    named = {row.soname for row in known.system_libraries}
    wanted = {p: [n for n in need.libraries if n in named] for p, need in needs.items()}
    if not any(wanted.values()):
        return []
    try:
        loader = Loader(sys.executable, process.environ())
    except ElfError:
        return []  # not glibc: the search order of its loader is unknown
    there = {n: loader.finds(re.escape(n)) for names in wanted.values() for n in names}
    missing = {p: [n for n in names if not there[n]] for p, names in wanted.items()}
    missing = {p: names for p, names in missing.items() if names}
    if not missing:
        return []
    what = "; ".join(f"{p.name} {p.version} needs {', '.join(names)}" for p, names in missing.items())
    fix = fixes.describe_missing(
        {p.name: names for p, names in missing.items()}, known, fixes.read_distribution()
    )
    return [f"{what}, which this system does not have. {fix}"]
